"""The demo: one video, two questions, and how the video was compressed for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aviot.budget import Budget
from aviot.engine.base import Report
from aviot.explain.outputs import Outputs, explain
from aviot.explain.pictures import open_with_pictures
from aviot.explain.study import MATCHED, UNNAMED, Asking
from aviot.explain.view import View
from aviot.methods.registry import DEFAULT
from aviot.scenes import save, scene_with_questions
from aviot.session import VideoLM
from aviot.utils.files import atomic_write, explain_write_errors

MAX_NEW_TOKENS = 16
VIDEO, PAGE = "scene.mp4", "report.html"


@dataclass(frozen=True)
class Asked:
    """A question, the answer from the video compressed for it, and the budgets of that compression."""

    question: str
    answer: str
    truth: str | None  # the right answer, if it is known
    budgets: tuple[tuple[int, ...], ...]  # supports per segment, stage by stage

    @property
    def right(self) -> bool | None:
        """True if the answer is right; None if the right one is not known."""
        return None if self.truth is None else self.answer.strip().lower() == self.truth


@dataclass(frozen=True)
class Demo:
    """The results that the demo shows."""

    video: Path
    page: Path
    frames: int
    path: tuple[int, ...]  # frames or supports, stage by stage
    tokens_before: int
    tokens_after: int
    spans: tuple[tuple[float, float], ...]  # start and end of the first stage's segments, in seconds
    asked: tuple[Asked, ...]
    model: str = UNNAMED  # name of the model that answered
    notice: str | None = None  # a warning about every answer


def draw_scene(number: int, folder: Path) -> tuple[Path, dict[str, str]]:
    """Write a scene of the test split as a video file; return the file, and its first two questions with answers.

    Raises ValueError for a scene with one question.
    """
    drawn = scene_with_questions(number)
    video = folder / VIDEO
    Outputs(folder / PAGE).check(video)
    with explain_write_errors(video, "free some space or name another folder"), atomic_write(video) as partial:
        save(drawn.scene, partial)
    return video, dict(drawn.questions)


def show(
    lm: VideoLM,
    video: Path,
    questions: Mapping[str, str | None],
    page: Path,
    *,
    budget: Budget | None,
    report: Report,
) -> Demo:
    """Compress a video for every question, answer each, and write the page that shows the answers' sources.

    `questions` maps each question to its right answer, or to None if that is not known.
    """
    outputs = Outputs(page)
    outputs.check(video)
    asking = Asking(tuple(questions), budget, DEFAULT, MAX_NEW_TOKENS)
    asked = asking.questions
    session, pictures = open_with_pictures(lm, video, report=report)
    read = session.video
    views: dict[int | None, Allocation] = {}

    def note(view: View) -> None:
        views[view.question] = Allocation.of(view)

    found, _ = explain(session, pictures, asking, outputs, note)
    answers = {condition.question: condition.answer for condition in found.conditions if condition.kind == MATCHED}
    first = views[0]
    ends = [sum(first.segments[: place + 1]) for place in range(len(first.segments))]
    seconds = [*read.times, read.duration]
    return Demo(
        video=video,
        page=page,
        frames=len(read),
        path=first.path,
        tokens_before=found.tokens[0],
        tokens_after=found.tokens[1],
        spans=tuple((seconds[start], seconds[end]) for start, end in zip([0, *ends], ends, strict=False)),
        asked=tuple(
            Asked(question, answers[number], questions.get(question), views[number].budgets)
            for number, question in enumerate(asked)
        ),
        model=found.model.name,
        notice=found.notice,
    )


@dataclass(frozen=True)
class Allocation:
    """The budgets of a view, without its large arrays."""

    path: tuple[int, ...]
    budgets: tuple[tuple[int, ...], ...]
    segments: tuple[int, ...]  # frames per segment of the first stage; empty without compression

    @staticmethod
    def of(view: View) -> "Allocation":
        """Return the budgets of a view."""
        return Allocation(view.path, view.budgets, tuple(view.segments[0]) if view.segments else ())

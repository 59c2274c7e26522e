"""A minute with a video language model: one video, two questions, and what each made of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aviot.explain.build import Outputs, explain
from aviot.explain.model_info import UNNAMED
from aviot.explain.study import MATCHED, check_questions, read_with_pictures
from aviot.explain.view import View
from aviot.files import naming_failures, replacing
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.models.answering import Report
from aviot.models.session import Session
from aviot.synthetic import Question, World, WorldConfig, save

FRAMES = 64
MAX_NEW_TOKENS = 16
VIDEO, PAGE = "scene.mp4", "report.html"


@dataclass(frozen=True)
class Asked:
    """A question, the answer from the tokens that were compressed for it, and where its supports went."""

    question: str
    answer: str
    truth: str | None  # the right answer, where it is known
    budgets: tuple[tuple[int, ...], ...]  # supports of each segment, stage by stage

    @property
    def right(self) -> bool | None:
        """Whether the answer is the right one; None where that is not known."""
        return None if self.truth is None else self.answer.strip().lower() == self.truth


@dataclass(frozen=True)
class Demo:
    """Everything that is shown."""

    video: Path
    page: Path
    frames: int
    path: tuple[int, ...]  # frames, stage by stage
    tokens_before: int
    tokens_after: int
    spans: tuple[tuple[float, float], ...]  # seconds at which the first stage's segments begin and end
    asked: tuple[Asked, ...]
    model: str = UNNAMED  # name of the model that answered
    notice: str | None = None  # a warning that belongs to every answer


def draw_scene(number: int, folder: Path) -> tuple[Path, tuple[Question, ...]]:
    """Write a scene that nobody trained on as a video file; the file and its first two questions.

    A scene in which there was room for one story alone is refused.
    """
    world = World(WorldConfig(frames=(FRAMES,)))
    scene = world.scene("test", number)
    questions = world.questions(scene)[:2]
    if len(questions) < 2:
        raise ValueError(f"scene {number} has one question, and two are to be asked; give another number")
    video = folder / VIDEO
    Outputs(folder / PAGE).check(video)
    with naming_failures(video, "free some space or name another folder"), replacing(video) as partial:
        save(scene, partial)
    return video, questions


def show(
    model: AviotForConditionalGeneration,
    processor: AviotProcessor,
    video: Path,
    questions: Mapping[str, str | None],
    page: Path,
    *,
    ratio: float | None,
    report: Report,
) -> Demo:
    """Compress a video for every question, answer each, and write the page that shows what it was made from.

    `questions` come with their right answers, where they are known.
    """
    outputs = Outputs(page)
    outputs.check(video)
    asked = check_questions(list(questions))
    report("decode")
    read, pictures = read_with_pictures(processor, video)
    views: dict[int | None, Allotted] = {}
    found, _ = explain(
        Session(model, processor, read, report),
        pictures,
        asked,
        outputs,
        lambda view: views.update({view.heard: Allotted.of(view)}),
        ratio=ratio,
        compressor="aviot",
        max_new_tokens=MAX_NEW_TOKENS,
    )
    answers = {condition.question: condition.answer for condition in found.conditions if condition.kind == MATCHED}
    first = views[0]
    ends = [sum(first.segments[: place + 1]) for place in range(len(first.segments))]
    seconds = [*read.times, read.duration]
    return Demo(
        video=video,
        page=page,
        frames=len(read),
        path=first.path,
        tokens_before=len(read) * found.tokens_per_support,
        tokens_after=first.path[-1] * found.tokens_per_support,
        spans=tuple((seconds[start], seconds[end]) for start, end in zip([0, *ends], ends, strict=False)),
        asked=tuple(
            Asked(question, answers[number], questions.get(question), views[number].budgets)
            for number, question in enumerate(asked)
        ),
        model=found.model.name,
        notice=found.notice,
    )


@dataclass(frozen=True)
class Allotted:
    """What is kept of a view, which is large."""

    path: tuple[int, ...]
    budgets: tuple[tuple[int, ...], ...]
    segments: tuple[int, ...]  # frames in each of the first stage's; none where nothing was compressed

    @staticmethod
    def of(view: View) -> "Allotted":
        """A view's stages."""
        return Allotted(view.path, view.budgets, tuple(view.segments[0]) if view.segments else ())

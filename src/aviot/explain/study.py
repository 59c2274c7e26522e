"""Questions about a video, answered from compressions for each question, for another one and for none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from aviot import methods
from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.base import Backbone
from aviot.budget import Budget
from aviot.bundled import FOREIGN, NAME, is_drawn, is_embedded
from aviot.explain.pictures import Pictures, by_moment
from aviot.explain.view import View, view_of
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence
from aviot.request import MOST_QUESTIONS
from aviot.request import check_questions as require_questions
from aviot.session import VideoSession
from aviot.video import Video

MATCHED, ROTATED, NONE = "matched", "rotated", "none"  # conditioning of the compression, in the supplement's words
UNNAMED = "unnamed model"  # created in memory instead of loaded from a directory
_HUB_CACHE = "models--"  # prefix of a model's directory in Hugging Face's cache, above `snapshots/REVISION`


@dataclass(frozen=True)
class ModelInfo:
    """The model behind an answer: its name, its size, and whether it is the bundled demo model."""

    name: str
    parameters: int
    layers: int  # of the decoder
    width: int  # of the decoder
    bundled: bool

    @staticmethod
    def of(backbone: Backbone) -> "ModelInfo":
        """Describe a loaded model."""
        folder = Path(backbone.name_or_path).absolute() if backbone.name_or_path else None
        bundled = folder is not None and is_embedded(folder)
        return ModelInfo(
            name=NAME if bundled else _folder_name(folder),
            parameters=sum(weight.numel() for weight in backbone.model.parameters()),
            layers=backbone.decoder.layers,
            width=backbone.decoder.width,
            bundled=bundled,
        )

    @property
    def facts(self) -> str:
        """The model's size in one phrase."""
        size = f"{self.parameters / 1e9:.1f} B" if self.parameters >= 1e9 else f"{self.parameters / 1e6:.1f} M"
        return f"{size} parameters, decoder of {self.layers} layers, {self.width} wide"

    def notice(self, video: Video) -> str | None:
        """Return the warning for every answer about a video (it is damaged or unknown to the model), or None."""
        damaged = None if video.damage is None else f"The video is damaged: {video.damage}."
        return " ".join(filter(None, (damaged, self.foreign(video)))) or None

    def foreign(self, video: Video) -> str | None:
        """Return the warning that the video is unlike anything in the model's training data, or None.

        The bundled demo model was trained on its procedural world only. Files that this package drew say that they
        show it (`aviot.bundled.is_drawn`); all other files, folders of images and arrays count as foreign.
        """
        return FOREIGN if self.bundled and not is_drawn(video.comment) else None


def _folder_name(folder: Path | None) -> str:
    if folder is None:
        return UNNAMED
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith(_HUB_CACHE):
        return folder.parents[1].name.removeprefix(_HUB_CACHE).replace("--", "/")
    return folder.name or str(folder)


@dataclass(frozen=True)
class Condition:
    """A question to the language model, the conditioning of the compression that it read, and the answer."""

    question: int
    kind: str
    view: int  # index of the compression
    support: int  # shown first: the support with most of the frames that are relevant to the question
    frame: int  # shown first: the frame that contributes most to it
    answer: str
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """The distance between two compressions of one video, by the supplement's measures."""

    first: int  # index of a view, like `second`
    second: int
    allocation: float | None  # distance of the first stage's budgets, 0 to 2; None without budgets
    temporal: float  # divergence of the outputs' source times, in bits


@dataclass(frozen=True)
class Study:
    """The results of an explanation, without the views themselves."""

    model: ModelInfo
    notice: str | None  # a warning that applies to every answer
    video: Video
    times: tuple[float, ...]  # of the encoder's frames, which may be merged from several of the video's
    pictures: Pictures  # one per time
    questions: tuple[str, ...]
    ratio: float
    method: str
    tokens: tuple[int, int]  # visual tokens before and after compression
    decoder: DecoderShape
    grid: tuple[int, int]
    cover: float  # fraction of a frame's sides that the patches cover
    conditions: tuple[Condition, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Asking:
    """Questions about one video and the settings of its compression; a budget of None is the checkpoint's own."""

    questions: tuple[str, ...]
    budget: Budget | None
    method: str
    max_new_tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", check_questions(self.questions))

    @property
    def conditioning(self) -> tuple[int | None, ...]:
        """Indices of the questions that the video is compressed for; None stands for no question."""
        uses_question = methods.get(self.method).uses_question
        return (*range(len(self.questions)), None) if uses_question else (None,)


def check_questions(questions: Sequence[str]) -> tuple[str, ...]:
    """Return one to four questions in order, without duplicates."""
    asked = tuple(dict.fromkeys(question.strip() for question in questions))
    require_questions(asked, MOST_QUESTIONS)
    return asked


def study(session: VideoSession, pictures: Pictures, asking: Asking, use: Callable[[View], None]) -> Study:
    """Compress for every question and for none, call `use` with each view, and answer under every condition.

    Views are large (150 MB for 224 frames and 56 outputs) and are made one after the other; `use` copies what is needed
    later.
    """
    asked, conditioning = asking.questions, asking.conditioning
    method = methods.get(asking.method)
    relevance = torch.stack([session.relevance(question) for question in asked])
    planned = [
        (question, kind, place)
        for question in range(len(asked))
        for kind, place in conditions_of(question, len(asked), len(conditioning))
    ]
    conditions: dict[tuple[int, str], Condition] = {}
    summaries, tokens = [], (0, 0)
    for here, number in enumerate(conditioning):
        read = session.compress(None if number is None else asked[number], budget=asking.budget, method=method)
        answered = [(question, kind) for question, kind, place in planned if place == here]
        replies = [  # before provenance: a prompt that is too long raises before that work is done
            session.answer(asked[question], read, max_new_tokens=asking.max_new_tokens) for question, _ in answered
        ]
        session.report("provenance")
        view = view_of(read.made, number, session.sources(method), relevance)
        use(view)
        for (question, kind), reply in zip(answered, replies, strict=True):
            conditions[question, kind] = Condition(
                question, kind, here, *view.starting_pair(question), reply.text, reply.milliseconds
            )
            tokens = reply.tokens_before, reply.tokens_after
        summaries.append((view.budgets, view.frames))
        grid = view.grid
        del read, view  # frees their memory before the next compression
    model = ModelInfo.of(session.backbone)
    budget = asking.budget or session.backbone.default_budget
    return Study(
        model=model,
        notice=model.notice(session.video),
        video=session.video,
        times=session.encoded.times,
        pictures=by_moment(pictures, session.video, session.encoded.times),
        questions=asked,
        ratio=budget.ratio or round(tokens[0] / tokens[1], 2),
        method=method.name,
        tokens=tokens,
        decoder=session.backbone.decoder,
        grid=grid,
        cover=session.backbone.patch_cover,
        conditions=tuple(conditions[question, kind] for question, kind, _ in planned),
        comparisons=tuple(_compare(summaries)),
    )


def conditions_of(question: int, questions: int, views: int) -> Iterator[tuple[str, int]]:
    """Yield the conditions under which a question is answered, each with the index of its view.

    A method that ignores the question has one view. Rotated means conditioned on the next question, or for the last
    question on the first.
    """
    if views > 1:
        yield MATCHED, question
    if views > 1 and questions > 1:
        yield ROTATED, (question + 1) % questions
    yield NONE, views - 1


def _compare(summaries: Sequence[tuple[Any, Any]]) -> Iterator[Comparison]:
    for (first, (ours, here)), (second, (theirs, there)) in combinations(enumerate(summaries), 2):
        allocation = allocation_distance(ours[0], theirs[0]) if ours else None
        yield Comparison(first, second, allocation, temporal_divergence(here, there))

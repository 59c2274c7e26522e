"""A video, questions about it, and what the compressor makes of each: told the question, another one, or nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from aviot import methods
from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.base import Backbone
from aviot.budget import Budget
from aviot.engine.base import Report
from aviot.explain.model_info import ModelInfo
from aviot.explain.pictures import LARGEST_SIDE, Pictures, apart, pictures_of
from aviot.explain.view import View, view_of
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence
from aviot.request import MOST_QUESTIONS
from aviot.request import check_questions as require_questions
from aviot.session import VideoLM, VideoSession
from aviot.video import Scaling, Video

MATCHED, ROTATED, NONE = "matched", "rotated", "none"  # what the compressor is told, as the supplement names it


@dataclass(frozen=True)
class Condition:
    """A question put to the language model, what the compressor heard meanwhile, and the answer."""

    question: int
    kind: str
    view: int  # which compression that is
    support: int  # shown first: the support that holds most of what the question is about
    frame: int  # shown first: the frame that most of it is from
    answer: str
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """Two compressions of one video apart from each other, as the supplement measures it."""

    first: int  # views
    second: int
    allocation: float | None  # distance of the first stage's budgets, 0 to 2; None where there are none to compare
    temporal: float  # divergence of where in time the outputs come from, in bits


@dataclass(frozen=True)
class Study:
    """Everything that is shown, but for the views themselves."""

    model: ModelInfo
    notice: str | None  # a warning that belongs to every answer
    video: Video
    pictures: Pictures
    questions: tuple[str, ...]
    ratio: float
    method: str
    tokens: tuple[int, int]  # visual tokens before and after compression
    decoder: DecoderShape
    grid: tuple[int, int]
    cover: float  # share of a frame's sides that the patches cover
    conditions: tuple[Condition, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Asking:
    """Questions about one video, and how it is compressed for them; a budget of None is the checkpoint's own."""

    questions: tuple[str, ...]
    budget: Budget | None
    method: str
    max_new_tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", check_questions(self.questions))

    @property
    def conditioning(self) -> tuple[int | None, ...]:
        """The questions, by number, that the video is compressed for; None for a compression without one."""
        uses_question = methods.get(self.method).uses_question
        return (*range(len(self.questions)), None) if uses_question else (None,)


def open_with_pictures(
    lm: VideoLM, source: Any, *, report: Report = lambda _: None, **how: Any
) -> tuple[VideoSession, Pictures]:
    """Open a video as `VideoLM.open` does, with pictures of its frames for people; decoded once."""
    report("decode")
    video, pictures = read_with_pictures(lm.backbone, source, **how)
    return lm.open(video, report=report), pictures


def read_with_pictures(backbone: Backbone, source: Any, **how: Any) -> tuple[Video, Pictures]:
    """Read a video as the backbone does, with pictures of its frames for people.

    Where frames are scaled to one square, the pictures are kept beside it; else they are the encoder's own frames.
    """
    side = backbone.image_size
    if side is None:
        video = backbone.read(source, **how)
        return video, pictures_of(video)
    return apart(backbone.read(source, transform=Scaling(side, LARGEST_SIDE), **how), side)


def check_questions(questions: Sequence[str]) -> tuple[str, ...]:
    """Return one to four questions, each once, in order."""
    asked = tuple(dict.fromkeys(question.strip() for question in questions))
    require_questions(asked, MOST_QUESTIONS)
    return asked


def study(session: VideoSession, pictures: Pictures, asking: Asking, keep: Callable[[View], None]) -> Study:
    """Compress for every question and for none, hand each view to `keep`, and answer under every condition.

    Views are large (of 224 frames and 56 outputs, 150 MB with their paths) and are made one after the other; `keep`
    takes what is needed of one.
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
        replies = [  # before provenance: a prompt that is too long is known before more is done for it
            session.answer(asked[question], read, max_new_tokens=asking.max_new_tokens) for question, _ in answered
        ]
        session.report("provenance")
        view = view_of(read.made, number, session.sources(method), relevance)
        keep(view)
        for (question, kind), reply in zip(answered, replies, strict=True):
            conditions[question, kind] = Condition(
                question, kind, here, *view.starting_pair(question), reply.text, reply.milliseconds
            )
            tokens = reply.tokens_before, reply.tokens_after
        summaries.append((view.budgets, view.frames))
        grid = view.grid
        del read, view  # before the next is made
    model = ModelInfo.of(session.backbone)
    budget = asking.budget or session.backbone.default_budget
    return Study(
        model=model,
        notice=model.notice(session.video),
        video=session.video,
        pictures=pictures,
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
    """What the compressor can be told while a question is asked, and the view of each.

    A baseline has one view and hears nothing. Rotated is the next question, and the first after the last.
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

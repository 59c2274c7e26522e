"""A video, questions about it, and what the compressor makes of each: told the question, another one, or nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from aviot.accounting import Backbone
from aviot.explain.model_info import ModelInfo
from aviot.explain.pictures import LARGEST_SIDE, Pictures, apart
from aviot.explain.view import View, view_of
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence
from aviot.models.configuration import AviotConfig
from aviot.models.processing import AviotProcessor
from aviot.models.session import Session
from aviot.request import MOST_QUESTIONS, CompressorName
from aviot.request import check_questions as require_questions
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
    compressor: str
    tokens_per_support: int
    backbone: Backbone
    grid: tuple[int, int]
    cover: float  # share of a frame's sides that the patches cover
    conditions: tuple[Condition, ...]
    comparisons: tuple[Comparison, ...]


def read_with_pictures(processor: AviotProcessor, source: Any, **how: Any) -> tuple[Video, Pictures]:
    """Read a video as `processor.read` does, with pictures of its frames for people; decoded once."""
    scaling = Scaling(processor.image_size, LARGEST_SIDE)
    return apart(processor.read(source, transform=scaling, **how), processor.image_size)


def check_questions(questions: Sequence[str]) -> tuple[str, ...]:
    """One to four questions, each once, in order."""
    asked = tuple(dict.fromkeys(question.strip() for question in questions))
    require_questions(asked, MOST_QUESTIONS)
    return asked


def study(
    session: Session,
    pictures: Pictures,
    questions: Sequence[str],
    keep: Callable[[View], None],
    *,
    ratio: float | None,
    compressor: CompressorName = "aviot",
    max_new_tokens: int,
) -> Study:
    """Compress for every question and for none, hand each view to `keep`, and answer under every condition.

    Views are large (of 224 frames and 56 outputs, 150 MB with their paths) and are made one after the other; what is
    needed of one is for `keep` to take.
    """
    asked, config = check_questions(questions), session.model.config
    ratio = config.ratio if ratio is None else ratio
    relevance = torch.stack([session.relevance(question) for question in asked])
    heard = (*range(len(asked)), None) if compressor == "aviot" else (None,)
    planned = [
        (question, kind, place)
        for question in range(len(asked))
        for kind, place in conditions_of(question, len(asked), len(heard))
    ]
    conditions: dict[tuple[int, str], Condition] = {}
    summaries = []
    for here, number in enumerate(heard):
        listened = session.compress(None if number is None else asked[number], ratio=ratio, compressor=compressor)
        answered = [(question, kind) for question, kind, place in planned if place == here]
        replies = [  # before provenance: a prompt that is too long is known before more is done for it
            session.answer(asked[question], listened.tokens, max_new_tokens=max_new_tokens) for question, _ in answered
        ]
        session.report("provenance")
        view = view_of(listened.compression, number, session.positioned(), relevance)
        keep(view)
        for (question, kind), reply in zip(answered, replies, strict=True):
            conditions[question, kind] = Condition(
                question, kind, here, *view.starting_pair(question), reply.text, reply.milliseconds
            )
        summaries.append((view.budgets, view.frames))
        del listened, view  # before the next is made
    model = ModelInfo.of(session.model)
    return Study(
        model=model,
        notice=model.notice(session.video),
        video=session.video,
        pictures=pictures,
        questions=asked,
        ratio=ratio,
        compressor=compressor,
        tokens_per_support=session.model.model.connector.tokens_per_support,
        backbone=_backbone(config),
        grid=config.compressor.grid,
        cover=session.patch_cover,
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


def _backbone(config: AviotConfig) -> Backbone:
    text = config.text_config
    return Backbone(
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        feed_forward=text.intermediate_size,
        grid=config.compressor.grid,
        pool_stride=config.pool_stride,
    )

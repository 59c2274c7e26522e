"""Questions about a video, answered from compressions for each question, for another one and for none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from aviot import methods
from aviot.accounting import Backbone as DecoderShape
from aviot.backbones.base import Backbone, History
from aviot.budget import Budget
from aviot.bundled import FOREIGN, NAME, is_drawn, is_embedded
from aviot.explain.blends import blended
from aviot.explain.pictures import Pictures, by_moment
from aviot.explain.spending import sentence
from aviot.explain.view import View, view_of
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence
from aviot.methods.base import Compressed
from aviot.request import MOST_QUESTIONS
from aviot.request import check_questions as require_questions
from aviot.session import Answer, VideoSession
from aviot.video import Video

MATCHED, ROTATED, NONE = "matched", "rotated", "none"  # conditioning of the compression, in the supplement's words
UNNAMED = "unnamed model"  # created in memory instead of loaded from a directory
SHOWN_SUPPORTS = 6  # of a compression that a page compares with
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
    tokens: tuple[int, int] = (0, 0)  # visual tokens before and after compression
    layer_tokens: tuple[int, ...] = ()  # of a method inside the decoder: visual tokens that each layer read


@dataclass(frozen=True)
class Setting:
    """Another method or budget that a page compares with; a budget of None is the checkpoint's own."""

    method: str
    budget: Budget | None


@dataclass(frozen=True)
class Alternative:
    """A question answered in another setting; `refused` has the reason if the method cannot serve it.

    `spent` is each frame's share of all tokens, `supports` the outputs that matter most, as pictures, `spans` their
    first and last frames.
    """

    question: int
    method: str
    title: str
    budget: str
    answer: str = ""
    tokens: tuple[int, int] = (0, 0)
    spent: tuple[float, ...] = ()
    sentence: str = ""
    supports: tuple[Image.Image, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    refused: str = ""


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
    alternatives: tuple[Alternative, ...] = ()
    per_frame: int = 1  # tokens of a whole frame before compression


@dataclass(frozen=True)
class Asking:
    """Questions about one video and the settings of its compression; a budget of None is the checkpoint's own.

    `also` has other methods and budgets that the same questions are asked with, for comparison. `histories` has the
    earlier turns of questions that were asked in a conversation.
    """

    questions: tuple[str, ...]
    budget: Budget | None
    method: str
    max_new_tokens: int
    also: tuple[Setting, ...] = ()
    histories: Mapping[str, History] = field(default_factory=dict)

    def history(self, question: str) -> History:
        """Return the earlier turns of a question's conversation."""
        return self.histories.get(question, ())

    def __post_init__(self) -> None:
        object.__setattr__(self, "questions", check_questions(self.questions))

    @property
    def conditioning(self) -> tuple[int | None, ...]:
        """Indices of the questions that the video is compressed for; None stands for no question."""
        method = methods.get(self.method)
        if method.inside is not None:  # what it keeps depends on the prompt, which has the question
            return tuple(range(len(self.questions)))
        return (*range(len(self.questions)), None) if method.uses_question else (None,)

    @property
    def planned(self) -> list[tuple[int, str, int]]:
        """Question, kind and compression of every answer."""
        count = len(self.questions)
        if methods.get(self.method).inside is not None:
            return [(question, MATCHED, question) for question in range(count)]
        views = len(self.conditioning)
        return [(number, kind, place) for number in range(count) for kind, place in conditions_of(number, count, views)]


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
    asked, planned = asking.questions, asking.planned
    relevance = torch.stack([session.relevance(question) for question in asked])
    conditions: dict[tuple[int, str], Condition] = {}
    summaries = []
    for here, number in enumerate(asking.conditioning):
        answered = [(question, kind) for question, kind, place in planned if place == here]
        made, replies = _answers(session, asking, number, [question for question, _ in answered])
        session.report("provenance")
        sources = session.source_features(asking.method)
        view = view_of(made, number, sources.features, relevance, sources.grid)
        del sources
        use(view)
        for (question, kind), reply in zip(answered, replies, strict=True):
            conditions[question, kind] = Condition(
                question,
                kind,
                here,
                *view.starting_pair(question),
                reply.text,
                reply.milliseconds,
                (reply.tokens_before, reply.tokens_after),
                reply.layer_tokens,
            )
        summaries.append((view.budgets, view.frames))
        grid = view.grid
        del made, view  # frees their memory before the next compression
    tokens = next(iter(conditions.values())).tokens
    seen = by_moment(pictures, session.video, session.encoded.times)
    others = [_alternative(session, seen, asking, number, relevance) for number in _other_numbers(asking)]
    model = ModelInfo.of(session.backbone)
    budget = asking.budget or session.backbone.default_budget
    return Study(
        model=model,
        notice=model.notice(session.video),
        video=session.video,
        times=session.encoded.times,
        pictures=seen,
        questions=asked,
        ratio=budget.ratio or round(tokens[0] / tokens[1], 2),
        method=asking.method,
        tokens=tokens,
        decoder=session.backbone.decoder,
        grid=grid,
        cover=session.backbone.patch_cover,
        conditions=tuple(conditions[question, kind] for question, kind, _ in planned),
        comparisons=tuple(_compare(summaries)),
        alternatives=tuple(others),
        per_frame=session.encoded.tokens_per_frame,
    )


def _answers(
    session: VideoSession, asking: Asking, number: int | None, questions: Sequence[int]
) -> tuple[Compressed, list[Answer]]:
    """Compress for a question (None: for no question), and answer questions from the result.

    A prompt that is too long raises here, before provenance is computed.
    """
    asked, method = asking.questions, methods.get(asking.method)
    if method.inside is not None:
        assert number is not None  # its one question
        reply = session.ask(
            asked[number],
            budget=asking.budget,
            method=method,
            max_new_tokens=asking.max_new_tokens,
            history=asking.history(asked[number]),
        )
        assert reply.compressed is not None  # `ask` keeps the record
        return reply.compressed, [reply]
    about = None if number is None else asked[number]
    earlier = () if about is None else asking.history(about)
    read = session.compress(about, budget=asking.budget, method=method, history=earlier)
    return read.made, [
        session.answer(
            asked[question], read, max_new_tokens=asking.max_new_tokens, history=asking.history(asked[question])
        )
        for question in questions
    ]


def _other_numbers(asking: Asking) -> Iterator[tuple[int, Setting]]:
    for setting in asking.also:
        for question in range(len(asking.questions)):
            yield question, setting


def _alternative(
    session: VideoSession,
    pictures: Pictures,
    asking: Asking,
    which: tuple[int, Setting],
    relevance: Float[Tensor, "Q T"],
) -> Alternative:
    """Answer a question in another setting; a method that refuses costs its own entry only."""
    question, setting = which
    method = methods.get(setting.method)
    budget = setting.budget or session.backbone.default_budget
    entry = Alternative(question, method.name, method.title or method.name, str(budget) if method.compresses else "")
    session.report(method.name)
    try:
        reply = session.ask(
            asking.questions[question],
            budget=budget,
            method=method,
            max_new_tokens=asking.max_new_tokens,
            history=asking.history(asking.questions[question]),
        )
    except ValueError as error:
        return replace(entry, refused=str(error))
    assert reply.compressed is not None  # `ask` keeps the record
    sources = session.source_features(method)
    view = view_of(reply.compressed, question, sources.features, relevance, sources.grid)
    best = view.scores(question).argsort(descending=True, stable=True)[:SHOWN_SUPPORTS].sort().values
    spans, tokens, spent = view.spans, (reply.tokens_before, reply.tokens_after), tuple(view.spent.tolist())
    return replace(
        entry,
        title=entry.title if reply.method == method.name else f"{entry.title} (as {reply.method})",
        answer=reply.text,
        tokens=tokens,
        spent=spent,
        sentence=sentence(tokens, session.encoded.times, spent),
        supports=tuple(blended(view.coefficients[best], pictures, view.grid, session.backbone.patch_cover)),
        spans=tuple(spans[output] for output in best.tolist()),
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

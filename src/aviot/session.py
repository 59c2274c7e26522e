"""A video language model, and sessions with one video: encoded once, asked any number of questions.

This is the only place that encodes, compresses, places and decodes: all commands, the app, evaluation and the
benchmarks use `VideoSession`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from jaxtyping import Float
from torch import Tensor

from aviot import methods
from aviot.answers import Answer as Answer
from aviot.answers import ConditionedVideo as ConditionedVideo
from aviot.answers import save_compression as save_compression
from aviot.auto_budget import Chosen, check_total, escalate
from aviot.auto_budget import Step as Step
from aviot.backbones import registry as backbones
from aviot.backbones.base import Backbone, CompressionRequest, EncodedVideo, History, Prompt, VideoInPrompt
from aviot.backbones.checkpoints.folder import ORIGIN, resolve_folder
from aviot.backbones.loading import LoadOptions
from aviot.backbones.pipeline import Trace, open_video
from aviot.budget import AutoBudget, Budget, as_budget
from aviot.engine.base import DecoderInput, Engine, Generated, Reducing, Report, Stopwatch
from aviot.engine.transformers import TransformersEngine
from aviot.grounding.when import FrameEvidence, answer_spans
from aviot.methods.base import Method
from aviot.methods.features import VideoFeatures
from aviot.methods.registry import DEFAULT
from aviot.request import MAX_NEW_TOKENS, check_history, check_max_new_tokens, check_question, check_questions
from aviot.utils.machine import device_named
from aviot.video import Transform, Video, read_video
from aviot.video.background import reports_progress
from aviot.video.frames import Progress

AnyBudget = Budget | AutoBudget | float | Literal["auto"]
"""A fixed budget, its ratio, or one that is chosen for each question by how sure the answer is."""


class AskOptions(TypedDict, total=False):
    """The options of `VideoSession.ask`."""

    budget: AnyBudget | None
    method: str | Method
    max_new_tokens: int
    history: History
    grounding: bool


class VideoLM:
    """A video language model: one backbone, one engine, and every method of the registry.

    `VideoLM(model, processor)` wraps a loaded model; `VideoLM.from_pretrained` loads one.
    """

    def __init__(self, model: Any, processor: Any = None, *, engine: Engine | None = None) -> None:
        self.backbone = model if isinstance(model, Backbone) else backbones.wrap(model, processor)
        self.engine = engine or TransformersEngine(self.backbone.model, self.backbone.tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        device: str = "auto",
        base: str | Path | None = None,
        dtype: Any = "auto",
        device_map: str | Mapping[str, int | str] | None = None,
        quantization: Literal["4bit", "8bit"] | None = None,
        compile_encoder: bool = False,
        **origin: Any,
    ) -> "VideoLM":
        """Load a checkpoint of any supported family onto a device (auto, cpu, cuda or cuda:N), or over several.

        `dtype` is float32, bfloat16 or float16; auto is the checkpoint's own. `device_map` is accelerate's: auto, or
        the device of each module. `quantization` makes bitsandbytes quantise the weights. An adapter that `aviot train`
        wrote is put on its base model, whose weights must be those that it was trained for; `base` is the model's place
        if it is not the recorded one. A name on the hub is looked up in its cache on this machine and fetched only with
        `download=True`; no code of a checkpoint is run. `compile_encoder` makes some encoders on a GPU faster, after
        seconds of compilation with the first videos.
        """
        unknown = sorted(set(origin) - set(ORIGIN))
        if unknown:
            known = ("device", "base", "dtype", "device_map", "quantization", "compile_encoder", *ORIGIN)
            raise TypeError(f"unknown arguments {', '.join(unknown)}; expected {', '.join(known)}")
        options = LoadOptions(dtype, device_map, quantization)
        target = device_named(device)
        folder = resolve_folder(source, **origin)
        backbone = backbones.load(folder, target, options, base=base, **origin)
        if compile_encoder:
            backbone.compile_encoder()
        return cls(backbone)

    def open(
        self,
        source: Any,
        *,
        report: Report = lambda _: None,
        transform: Transform | None = None,
        reader: Callable[..., Video] = read_video,
        trace: Trace | None = None,
        **sampling: Any,
    ) -> "VideoSession":
        """Read and encode a video: a file, a folder of images, an array, or a `Video` that was read before.

        `sampling` takes `fps`, `max_frames`, `frames`, `source_fps` and `sampling`; the defaults are the checkpoint's.
        Frames are encoded while later ones are decoded, where model and reader allow that. `report` is called with the
        name of each step as it begins; `trace` records what ran when.
        """
        watch = Stopwatch(self.backbone.device, report)
        if isinstance(source, Video):
            with watch.part("encode"):
                encoded = self._encode(source)
            return VideoSession(self, encoded, watch)
        follows = reports_progress(reader)

        def read(progress: Progress) -> Video:
            how = partial(reader, progress=progress) if follows else reader
            return self.backbone.read(source, transform=transform, reader=how, **sampling)

        return VideoSession(self, open_video(self.backbone, read, self._encode, watch, trace), watch)

    def _encode(self, video: Video) -> EncodedVideo:
        (encoded,) = self.backbone.encode([video])
        return encoded

    def resume(self, encoded: EncodedVideo, report: Report = lambda _: None) -> "VideoSession":
        """Return a session with a video that this model encoded before; `report` hears of each step as it begins."""
        return VideoSession(self, encoded, Stopwatch(self.backbone.device, report))

    def ask_all(
        self,
        asked: Sequence[tuple["VideoSession", str]],
        *,
        budget: AnyBudget | None = None,
        method: str | Method = DEFAULT,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> "list[Answer]":
        """Answer questions about several opened videos in one batch; each pair is a session and a question.

        With an automatic budget each question is asked by itself.
        """
        check_max_new_tokens(max_new_tokens)
        found, sessions = methods.get(method), list(dict.fromkeys(session for session, _ in asked))
        for session, question in asked:
            check_question(question)
            if session.lm is not self:
                raise ValueError("a session was opened by another model; open its video with this one")
        limit = self.backbone.default_budget if budget is None else as_budget(budget)
        if len(sessions) < 2 or found.inside is not None or isinstance(limit, AutoBudget):
            how = AskOptions(budget=budget, method=found, max_new_tokens=max_new_tokens)
            return [session.ask(question, **how) for session, question in asked]
        prompts = [replace(session.prompt(question), video=sessions.index(session)) for session, question in asked]
        watch = Stopwatch(self.backbone.device)
        with watch.part("compress"):
            encoded = [session.encoded for session in sessions]
            videos = _checked(self.backbone.compress(encoded, prompts, CompressionRequest(limit, found)))
            inputs = _placed(self.backbone, prompts, videos, max_new_tokens)
        replies = self.engine.generate_scored(inputs, max_new_tokens, watch)
        return [
            session._answer(prompt, reply, video, watch, found)
            for (session, _), prompt, reply, video in zip(asked, prompts, replies, videos, strict=True)
        ]


def reducing_for(
    method: Method, video: VideoInPrompt, limit: Budget, frames: int, tokens_per_frame: int
) -> Reducing | None:
    """Return what a method does inside the decoder on one prompt, whose video has a record; None if it does nothing.

    The budget of a method with a stage before it is that stage's.
    """
    if method.inside is None:
        return None
    assert video.made is not None  # the request has a record
    assert video.order is not None  # methods on single tokens always have it
    count = min(len(video.tokens), limit.count(frames, tokens_per_frame)) if method.inside is method else None
    return Reducing(method.inside, video.made, video.order, count)


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt for an engine: its visual tokens, the decoder's input, and what a method does inside the decoder."""

    prompt: Prompt
    video: VideoInPrompt
    inputs: DecoderInput
    reducing: Reducing | None


class VideoSession:
    """One encoded video; question, budget and method can change with every call."""

    def __init__(self, lm: VideoLM, encoded: EncodedVideo, watch: Stopwatch) -> None:
        self.lm, self.backbone, self.encoded = lm, lm.backbone, encoded
        self.report = watch.report
        self.opening_milliseconds = watch.rounded()
        self._opening: dict[str, float] | None = dict(watch.spent)

    @property
    def video(self) -> Video:
        """The sampled video."""
        return self.encoded.video

    @overload
    def ask(self, question: str, *, stream: Literal[False] = False, **how: Unpack[AskOptions]) -> Answer: ...

    @overload
    def ask(self, question: str, *, stream: Literal[True], **how: Unpack[AskOptions]) -> Iterator[str]: ...

    def ask(
        self,
        question: str,
        *,
        budget: AnyBudget | None = None,
        method: str | Method = DEFAULT,
        max_new_tokens: int = MAX_NEW_TOKENS,
        history: History = (),
        stream: bool = False,
        grounding: bool = False,
    ) -> Answer | Iterator[str]:
        """Answer one question; with `stream`, yield the answer's text in pieces instead.

        With the budget "auto" (`AutoBudget`) the question is asked with few tokens, and again with more where the
        answer is not sure enough; streamed, it is one piece, since it must be complete to be judged. `history` has
        earlier questions and answers about the same video. The times of the first answer include those of opening the
        video. With `grounding`, the answer says when in the video it is about (`Answer.when`).
        """
        check_question(question)
        check_history(history)
        check_max_new_tokens(max_new_tokens)
        found, limit = methods.get(method), self._budget(budget)
        prompt = self.prompt(question, history=history)
        if stream and grounding:
            raise ValueError("grounding needs the complete answer; ask without stream, or without grounding")
        if not stream:
            answers = self.answer_all([prompt], budget=limit, method=found, max_new_tokens=max_new_tokens, record=True)
            return self.grounded(answers[0]) if grounding else answers[0]
        if isinstance(limit, AutoBudget):
            auto = limit
            return (
                answer.text
                for answer in self.answer_all([prompt], budget=auto, method=found, max_new_tokens=max_new_tokens)
            )
        ready = self.prepare(prompt, budget=limit, method=found, max_new_tokens=max_new_tokens)
        return self.lm.engine.stream(ready.inputs, max_new_tokens, ready.reducing)

    def prepare(
        self,
        prompt: Prompt,
        *,
        budget: Budget | float | None = None,
        method: str | Method = DEFAULT,
        max_new_tokens: int = MAX_NEW_TOKENS,
        record: bool = False,
        video: VideoInPrompt | None = None,
    ) -> "PreparedPrompt":
        """Return a prompt that is ready for an engine: compressed, with its visual tokens in place.

        `video` has the tokens of an earlier call for the same question, budget and method, which are not made again.
        """
        found = methods.get(method)
        limit = self.backbone.default_budget if budget is None else Budget.of(budget)
        if video is None:
            record = record or found.inside is not None  # which says where its tokens stand
            (video,) = self._compress([prompt], CompressionRequest(limit, found, record=record, times=self._times))
        inputs = self._place([prompt], [video], max_new_tokens)
        return PreparedPrompt(prompt, video, inputs, self._reducing(found, video, limit))

    def without_features(self) -> "VideoSession":
        """Return a session that places tokens that were made before, and holds neither frames nor features."""
        none = self.video.frames[:0]
        copied = none.copy() if isinstance(none, np.ndarray) else none.clone()  # a view would hold all frames
        video = replace(self.video, frames=copied)
        encoded = replace(self.encoded, video=video, features=self.encoded.features[:0].clone(), extras={}, cache={})
        return self.lm.resume(encoded)

    def ask_all(
        self,
        questions: Sequence[str],
        *,
        budget: AnyBudget | None = None,
        total: int | None = None,
        method: str | Method = DEFAULT,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> list[Answer]:
        """Answer several questions about the video in one batch, or in one per step of an automatic budget.

        `total` limits the visual tokens that all questions read together under an automatic budget: where it is not
        enough to ask all unsure ones again, those whose answers are least probable come first.
        """
        check_questions(questions)
        limit = self._budget(budget)
        if total is not None:
            if not isinstance(limit, AutoBudget):
                raise ValueError("a total is shared out by how sure the answers are: give it with the budget 'auto'")
            limit = replace(limit, total=total)
        prompts = [self.prompt(question) for question in questions]
        return self.answer_all(prompts, budget=limit, method=method, max_new_tokens=max_new_tokens, record=True)

    def prompt(self, question: str, *, history: History = (), span: tuple[int, int] | None = None) -> Prompt:
        """Return a question's prompt; `span` is the range of its characters without instructions."""
        return self.backbone.prompt(question, self.video, history=history, span=span)

    def answer_all(
        self,
        prompts: Sequence[Prompt],
        *,
        budget: AnyBudget | None,
        method: str | Method = DEFAULT,
        max_new_tokens: int = MAX_NEW_TOKENS,
        record: bool = False,
    ) -> list[Answer]:
        """Answer several prompts in one batch; with `record`, answers include their provenance."""
        found, limit = methods.get(method), self._budget(budget)
        if not prompts:
            return []
        if isinstance(limit, AutoBudget):

            def ask(asked: Sequence[Prompt], step: Budget) -> list[Answer]:
                return self.answer_all(asked, budget=step, method=found, max_new_tokens=max_new_tokens, record=record)

            return self._answer_auto(prompts, limit, found, ask)
        if found.inside is not None:
            return [self._answer_reduced(prompt, limit, found, max_new_tokens) for prompt in prompts]
        watch = self._watch()
        with watch.part("compress"):
            request = CompressionRequest(limit, found, record=record, times=self._times)
            videos = self._compress(prompts, request)
            inputs = self._place(prompts, videos, max_new_tokens)
        replies = self.lm.engine.generate_scored(inputs, max_new_tokens, watch)
        return [
            self._answer(prompt, reply, video, watch, found)
            for prompt, reply, video in zip(prompts, replies, videos, strict=True)
        ]

    def compress(
        self,
        question: str | None,
        *,
        budget: Budget | float | None = None,
        method: str | Method = DEFAULT,
        history: History = (),
    ) -> ConditionedVideo:
        """Compress for a question (None: unconditioned), with provenance; `answer` takes the result."""
        found = methods.get(method)
        if found.inside is not None:
            raise ValueError(f"method {found.name!r} drops tokens inside the decoder; ask a question with it instead")
        limit = self.backbone.default_budget if budget is None else Budget.of(budget)
        self.report("compress")
        prompt = self.prompt("-" if question is None else question, history=history)
        prompt = prompt if question is not None else replace(prompt, question=None)
        request = CompressionRequest(limit, found, times=self._times)
        (video,) = self._compress([prompt], request)
        return ConditionedVideo(question, video, self.backbone.method(found).name)

    def answer(
        self, question: str, read: ConditionedVideo, *, max_new_tokens: int = MAX_NEW_TOKENS, history: History = ()
    ) -> Answer:
        """Answer a question from the result of `compress`, which may be for another question."""
        prompt = self.prompt(question, history=history)
        watch = Stopwatch(self.backbone.device, self.report)
        inputs = self._place([prompt], [read.video], max_new_tokens)
        (reply,) = self.lm.engine.generate_scored(inputs, max_new_tokens, watch)
        return replace(self._answer(prompt, reply, read.video, watch), method=read.method)

    def grounded(self, answer: Answer) -> Answer:
        """Return an answer with the spans of time that it rests on; it must have a record of its compression."""
        count = len(self.encoded.times)
        shares = [1 / count] * count if answer.compressed is None else answer.compressed.frame_shares.tolist()
        evidence = FrameEvidence(
            times=self._times,
            shares=shares,
            relevance=self.relevance(answer.question).float().tolist(),
            duration=self.video.duration,
            supports=answer.supports,
        )
        spans, source = answer_spans(answer.text, evidence)
        return replace(answer, when=spans, when_from=source)

    def relevance(self, question: str) -> Float[Tensor, "T"]:
        """Return each frame's similarity to a question, on the CPU; it does not depend on the method."""
        return self.backbone.relevance(self.encoded, self.prompt(question))

    def sources(self, method: str | Method) -> Float[Tensor, "T S D"]:
        """Return the features or tokens that a method mixes; not cached, since they are as large as the features."""
        return self.backbone.sources(self.encoded, methods.get(method))

    def source_features(self, method: str | Method) -> VideoFeatures:
        """Return what a method mixes, with the grid of its positions; not cached either."""
        return self.backbone.features(self.encoded, self.backbone.method(method), conditioned=False)

    def _compress(self, prompts: Sequence[Prompt], request: CompressionRequest) -> list[VideoInPrompt]:
        return _checked(self.backbone.compress([self.encoded], prompts, request))

    def _place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt], max_new_tokens: int) -> DecoderInput:
        return _placed(self.backbone, prompts, videos, max_new_tokens)

    def _answer_reduced(self, prompt: Prompt, limit: Budget, method: Method, max_new_tokens: int) -> Answer:
        """Answer with fewer visual tokens in later decoder layers than in the first ones."""
        watch = self._watch()
        with watch.part("compress"):
            (video,) = self._compress([prompt], CompressionRequest(limit, method, times=self._times))
            inputs = self._place([prompt], [video], max_new_tokens)
        reducing = self._reducing(method, video, limit)
        assert reducing is not None  # the method acts inside the decoder
        (reply,) = self.lm.engine.generate_scored(inputs, max_new_tokens, watch, reducing)
        answer, left = self._answer(prompt, reply, video, watch, method), reducing.record
        compressed = left.result(reducing.made, reducing.order)
        return replace(answer, tokens_after=left.left, compressed=compressed, layer_tokens=tuple(reducing.counts))

    def _reducing(self, method: Method, video: VideoInPrompt, limit: Budget) -> Reducing | None:
        return reducing_for(method, video, limit, len(self.encoded.times), self.encoded.tokens_per_frame)

    def _answer_auto(
        self,
        prompts: Sequence[Prompt],
        auto: AutoBudget,
        method: Method,
        ask: Callable[[Sequence[Prompt], Budget], list[Answer]],
    ) -> list[Answer]:
        """Return the accepted answer to each prompt, with the tokens and times of all steps."""
        chosen = Chosen.of(auto, self.backbone.calibration)
        frames, each = len(self.encoded.times), self.encoded.tokens_per_frame
        steps = auto.steps(frames, each)
        whole = method.point == "features"  # which keeps whole frames' worth of tokens
        costs = [each * step.frames(frames, each) if whole else step.count(frames, each) for step in steps]
        check_total(auto.total, len(prompts) * costs[0])
        done = []
        for tries in escalate(ask, prompts, dict(zip(steps, costs, strict=True)), chosen.quality, auto.total):
            tried = [
                Step.of(step, answer.tokens_entering, answer.probability)
                for step, answer in zip(steps, tries, strict=False)
            ]
            names = dict.fromkeys(name for answer in tries for name in answer.milliseconds)
            spent = {name: round(sum(answer.milliseconds.get(name, 0.0) for answer in tries), 1) for name in names}
            reason = chosen.explained(tried, steps)
            done.append(replace(tries[-1], milliseconds=spent, steps=tuple(tried), reason=reason))
        return done

    def _answer(
        self, prompt: Prompt, reply: Generated, video: VideoInPrompt, watch: Stopwatch, method: Method | None = None
    ) -> Answer:
        made, encoded = video.made, self.encoded
        compression = None if made is None else made.compression
        whole = (len(encoded.times),)
        path, budgets = (whole, ()) if compression is None else (compression.path, compression.budgets)
        return Answer(
            question=prompt.text,
            text=reply.text,
            frames=len(self.video),
            supports=video.supports(encoded.tokens_per_frame),
            tokens_before=encoded.tokens_before,
            tokens_after=len(video.tokens),
            path=path,
            budgets=budgets,
            milliseconds=watch.rounded(),
            compressed=made,
            probability=reply.probability,
            method="" if method is None else self.backbone.method(method).name,
        )

    def _budget(self, budget: AnyBudget | None) -> Budget | AutoBudget:
        return self.backbone.default_budget if budget is None else as_budget(budget)

    def _watch(self) -> Stopwatch:
        """Return a stopwatch; the first one includes the times of opening the video."""
        opening, self._opening = self._opening or {}, None
        return Stopwatch(self.backbone.device, self.report, dict(opening))

    @property
    def _times(self) -> tuple[float, ...]:
        return self.encoded.times


def _checked(videos: list[VideoInPrompt]) -> list[VideoInPrompt]:
    """Return compressed videos; raise ValueError if a compression is not finite."""
    for video in videos:
        if video.made is not None and video.made.compression is not None:
            video.made.compression.check()
    return videos


def _placed(
    backbone: Backbone, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt], max_new_tokens: int
) -> DecoderInput:
    """Return the decoder's input; raise ValueError if it is too long for the answer to fit."""
    inputs = backbone.place(prompts, videos)
    backbone.check_length(inputs.length, max_new_tokens)
    return inputs

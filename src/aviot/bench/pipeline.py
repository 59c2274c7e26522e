"""The parts of a model from pixels to the first and the next token, timed for each method on any backbone."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aviot import methods
from aviot.backbones.base import CompressionRequest, EncodedVideo, Prompt, VideoInPrompt, with_question
from aviot.backbones.pipeline import Trace
from aviot.bench.compressor import DEFAULT_METHODS, Setup, over_settings, random_features, time_backward
from aviot.bench.methods import attempt_method
from aviot.bench.replayed import replayed_mix
from aviot.bench.result import FIRST_TOKEN, MethodResult, total_ms
from aviot.bench.run import Options
from aviot.bench.timing import Measurement, NotMeasured, Part, Work, attempt, bandwidth_share, fewest_bytes
from aviot.bench.workload import random_videos
from aviot.budget import Budget
from aviot.engine.base import DecoderInput, Reducing, Report
from aviot.engine.transformers import TransformersEngine
from aviot.methods.aviot import Compressor
from aviot.methods.aviot.replay import Replays
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.methods.registry import UNCOMPRESSED
from aviot.session import VideoLM, reducing_for

WHOLE = Budget(keep=1.0)


class Pipeline:
    """One model and one batch of random videos, encoded once, with the steps from features to tokens."""

    def __init__(self, lm: VideoLM, batch: int, frames: int, seed: int) -> None:
        self.backbone, self.batch, self.frames = lm.backbone, batch, frames
        self.engine = TransformersEngine(lm.backbone.model, lm.backbone.tokenizer)
        self.videos = random_videos(self.backbone, batch, frames, seed)
        self.pixels = self.backbone.pixels(self.videos)
        self.encoded = self.encode()
        prompts = [self.backbone.benchmark_prompt(video) for video in self.videos]
        self.prompts: list[Prompt] = [replace(prompt, video=number) for number, prompt in enumerate(prompts)]
        self.replays = Replays()
        self._records: dict[tuple[Hashable, ...], list[Compressed]] = {}

    def encode(self) -> list[Any]:
        """Return encoder features of the pixels."""
        return self.backbone.encode(self.videos, self.pixels)

    def features(self, method: Method) -> VideoFeatures:
        """Return a method's inputs for all videos as one batch."""
        each = [self.backbone.features(one, method, conditioned=method.uses_question) for one in self.encoded]
        needed = [  # a replay copies its inputs, and no more
            name for name in each[0].extras if name in method.needs or (name == "pooling" and method.before_pooling)
        ]
        extras = {name: torch.stack([one.extras[name] for one in each]) for name in needed}
        return replace(each[0], features=torch.stack([one.features for one in each]), extras=extras)

    def compress(self, videos: VideoFeatures, method: Method, budget: Budget) -> list[Compressed]:
        """Compress all videos for their questions; on a GPU, replayed as a CUDA graph."""
        questions = [prompt.question if method.uses_question else None for prompt in self.prompts]
        if not isinstance(method, FrameMethod):
            return [
                method(with_question(videos.only(place), method, prompt), question=question, budget=budget)
                for place, (prompt, question) in enumerate(zip(self.prompts, questions, strict=True))
            ]
        asked = torch.stack([one for one in questions if one is not None]) if method.uses_question else None
        if not method.replayable:
            made = method.mix(videos, question=asked, budget=budget)
            return [Compressed.of_frames(made.video(place), videos.only(place)) for place in range(self.batch)]

        modules = tuple(self.backbone.parts.values())
        mixed = replayed_mix(self.replays, method, videos, asked=asked, budget=budget, modules=modules)
        key = (*method.replay_key, budget)
        if key not in self._records:  # once: positions and provenance follow from inputs that do not change
            found = method.mix(videos, question=asked, budget=budget)
            self._records[key] = [
                Compressed.of_frames(found.video(place), videos.only(place)) for place in range(self.batch)
            ]
        return [_replayed(one, record) for one, record in zip(mixed, self._records[key], strict=True)]

    def project(self, made: list[Compressed], method: Method) -> list[VideoInPrompt]:
        """Return each video's decoder tokens from its compressed features."""
        return [self.backbone.project(one, method) for one in made]

    def to_tokens(self, method: Method, budget: Budget) -> list[VideoInPrompt]:
        """Return each prompt's decoder tokens from encoder features, in one call, as the model runs it."""
        return self.backbone.compress(self.encoded, self.prompts, CompressionRequest(budget, method, record=False))

    def decoder_input(self, method: Method, budget: Budget) -> DecoderInput:
        """Return the decoder's input: the prompts with their tokens in place."""
        return self.backbone.place(self.prompts, self.to_tokens(method, budget))

    def prefill(self, inputs: DecoderInput, reducing: Reducing | None = None) -> Any:
        """Run the decoder over the whole prompt; `reducing` is for one run."""
        return self.engine.prefill(inputs, reducing)

    def reducing(self, method: Method, budget: Budget) -> Callable[[], Reducing | None]:
        """Return a function that starts what a method does inside the decoder; raise ValueError for a batch."""
        if method.inside is None:
            return lambda: None
        if self.batch > 1:
            raise ValueError(f"method {method.name!r} acts inside the decoder, on one prompt at a time; give one video")
        (video,) = self.backbone.compress(self.encoded, self.prompts, CompressionRequest(budget, method))
        return partial(reducing_for, method, video, budget, self.frames, self.encoded[0].tokens_per_frame)

    def next_token(self, inputs: DecoderInput) -> Work:
        """Return a function that decodes one more token after the prompt; each call extends the cache."""
        return self.engine.next_token(self.prefill(inputs).past_key_values, self.batch)


def _replayed(features: Tensor, record: Compressed) -> Compressed:
    """Return replayed features with the record of the same compression."""
    return Compressed(
        features.flatten(0, 1),
        record.grid,
        lambda: record.positions,
        lambda: record.mixture,
        record.compression,
        record.frame_times,
    )


def read_prompt(lm: VideoLM, encoded: EncodedVideo, method: Method, budget: Budget, trace: Trace) -> None:
    """Compress one encoded video for a question and run the decoder over the prompt."""
    backbone, inside = lm.backbone, method.inside is not None
    with trace.span("compress", backbone.device):
        prompt = backbone.benchmark_prompt(encoded.video)
        (video,) = backbone.compress([encoded], [prompt], CompressionRequest(budget, method, record=inside))
        inputs = backbone.place([prompt], [video])
    size = len(encoded.times), encoded.tokens_per_frame
    with trace.span("prefill", backbone.device):
        reducing = reducing_for(method, video, budget, *size) if inside else None
        TransformersEngine(backbone.model, backbone.tokenizer).prefill(inputs, reducing)


def measure_model(
    lm: VideoLM, setup: Setup, options: Options, report: Report
) -> tuple[tuple[MethodResult, ...], tuple[str, ...]]:
    """Time every method at every frame count, batch size and ratio; return notes on missing measurements too."""

    def measure_one(count: int, batch: int) -> list[MethodResult]:
        report(f"{count} frames, batch {batch}: encode")
        found = _measure_setting(Pipeline(lm, batch, count, setup.seed), setup, options, report)
        if setup.backward:
            found = [_with_backward(row, lm, setup, report) for row in found]
        return _compared(found)

    return over_settings(options.frames, options.batches, measure_one)


@torch.inference_mode()
def _measure_setting(pipeline: Pipeline, setup: Setup, options: Options, report: Report) -> list[MethodResult]:
    encode = setup.time(pipeline.encode)
    chosen = [name for name in options.methods or DEFAULT_METHODS if name != UNCOMPRESSED]
    settings: list[tuple[str, float | None]] = [(UNCOMPRESSED, None)]
    settings += [(name, ratio) for ratio in options.ratios for name in chosen]
    rows = []
    for name, ratio in settings:
        report(
            f"{pipeline.frames} frames, batch {pipeline.batch}: {name}" + ("" if ratio is None else f" at {ratio:g}")
        )
        method = pipeline.backbone.method(name)
        found, refusal = attempt_method(partial(_method_parts, pipeline, setup, method, ratio))
        parts = {"encode": encode} | ({"compress": found} if isinstance(found, NotMeasured) else found)
        rows.append(replace(_row(pipeline, setup, method, ratio, parts), refusal=refusal))
    return rows


def _method_parts(pipeline: Pipeline, setup: Setup, method: Method, ratio: float | None) -> dict[str, Part]:
    """Time one method's parts after the encoder; if memory runs out, the remaining parts are not measured."""
    budget = WHOLE if ratio is None else Budget(ratio=ratio)
    parts: dict[str, Part] = {}

    def features_alone() -> None:
        features = pipeline.features(method)
        made = pipeline.compress(features, method, budget)
        if method.compresses and method.inside is not method:
            parts["compress"] = setup.time(lambda: pipeline.compress(features, method, budget))
        parts["project"] = setup.time(lambda: pipeline.project(made, method))

    def decoder() -> None:
        parts["to_tokens"] = setup.time(lambda: pipeline.to_tokens(method, budget))
        parts["decoder_input"] = setup.time(lambda: pipeline.decoder_input(method, budget))
        inputs, reducing = pipeline.decoder_input(method, budget), pipeline.reducing(method, budget)
        parts["prefill"] = setup.time(lambda: pipeline.prefill(inputs, reducing()))
        if method.inside is None:  # after a reduction, later layers have shorter caches
            parts["next_token"] = setup.time(pipeline.next_token(inputs))

    compress = ("compress",) if method.compresses and method.inside is not method else ()
    names = (*compress, "project", "to_tokens", "decoder_input", "prefill")
    names += ("next_token",) if method.inside is None else ()
    for steps in (features_alone, decoder):
        failure = attempt(steps)
        if failure is not None:
            parts |= {name: failure for name in names if name not in parts}
    return parts


def _row(pipeline: Pipeline, setup: Setup, method: Method, ratio: float | None, parts: dict[str, Part]) -> MethodResult:
    path, supports, tokens = _outcome(pipeline, method, ratio, parts)
    share = None
    if method.trained and (shape := pipeline.encoded[0].features.shape):
        moved = pipeline.batch * fewest_bytes(path, shape[1], shape[2], setup.dtype.itemsize)
        share = bandwidth_share(moved, parts["compress"], setup.bandwidth)
    first = total_ms(parts, FIRST_TOKEN)
    return MethodResult(
        method=method.name,
        frames=pipeline.frames,
        batch=pipeline.batch,
        ratio=ratio,
        supports=supports,
        tokens=tokens,
        path=path,
        parts=parts,
        bandwidth_share=share,
        first_token_ms=first,
        videos_per_second=None if first is None else 1000 * pipeline.batch / first,
    )


def _outcome(
    pipeline: Pipeline, method: Method, ratio: float | None, parts: dict[str, Part]
) -> tuple[tuple[int, ...], int, int | None]:
    """Return a method's path, and the numbers of supports and of visual tokens of a video after it, if it ran."""
    backbone, frames = pipeline.backbone, pipeline.frames
    if ratio is None:
        return (frames,), frames, pipeline.encoded[0].tokens_before
    if "project" not in parts:
        return (), 0, None
    budget = Budget(ratio=ratio)
    request = CompressionRequest(budget, method)
    (video,) = backbone.compress(pipeline.encoded[:1], pipeline.prompts[:1], request)
    record = None if video.made is None else video.made.compression
    path, tokens = (frames,) if record is None else record.path, len(video.tokens)
    if isinstance(parts["prefill"], Measurement) and (reducing := pipeline.reducing(method, budget)()):
        pipeline.prefill(pipeline.decoder_input(method, budget), reducing)
        tokens = reducing.record.left
    return path, video.supports(pipeline.encoded[0].tokens_per_frame), tokens


def _compared(rows: list[MethodResult]) -> list[MethodResult]:
    """Return the rows of one setting with their speed-ups over the first, which is uncompressed."""
    whole = rows[0].first_token_ms
    return [
        replace(row, factor=None if whole is None or row.first_token_ms is None else whole / row.first_token_ms)
        for row in rows
    ]


def _with_backward(row: MethodResult, lm: VideoLM, setup: Setup, report: Report) -> MethodResult:
    """Return the row with the compressor's forward and backward time, on random features of the same shape."""
    compressor = lm.backbone.parts.get("compressor")
    if not methods.get(row.method).trained or not isinstance(compressor, Compressor):
        return row
    report(f"{row.frames} frames, batch {row.batch}: forward and backward at {row.ratio:g}")

    def work() -> Part:
        given = random_features(compressor.config, setup, row.batch, row.frames)
        return time_backward(compressor, given.u, given, row.supports, setup)

    return replace(row, parts=row.parts | {"backward": attempt(work)})

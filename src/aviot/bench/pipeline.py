"""From pixels to the first token and the one after: each part by itself, for each method, on any backbone."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from aviot import methods
from aviot.backbones.base import CompressionRequest, Prompt, VideoInPrompt
from aviot.bench.alone import COMPRESSING, Setup, Tell, backward_part, over_settings, random_features
from aviot.bench.bandwidth import bandwidth_share, fewest_bytes
from aviot.bench.options import Options
from aviot.bench.result import FIRST_TOKEN, Row, total_ms
from aviot.bench.timing import Part, Work, attempt
from aviot.bench.workload import random_videos
from aviot.budget import Budget
from aviot.engine.base import DecoderInput
from aviot.engine.transformers import TransformersEngine
from aviot.methods.aviot import Compressor
from aviot.methods.aviot.replay import Replays
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.methods.registry import UNCOMPRESSED
from aviot.session import VideoLM

WHOLE = Budget(keep=1.0)


class Pipeline:
    """One model and one batch of random videos, encoded once, with every method's way to the decoder."""

    def __init__(self, lm: VideoLM, batch: int, frames: int, seed: int) -> None:
        self.backbone, self.batch, self.frames = lm.backbone, batch, frames
        self.engine = TransformersEngine(lm.backbone.model, lm.backbone.tokenizer)
        self.videos = random_videos(self.backbone, batch, frames, seed)
        self.pixels = self.backbone.pixels(self.videos)
        self.encoded = self.encode()
        prompts = [self.backbone.benchmark_prompt(video) for video in self.videos]
        self.prompts: list[Prompt] = [replace(prompt, video=number) for number, prompt in enumerate(prompts)]
        self.replays = Replays()

    def encode(self) -> list[Any]:
        """Turn pixels into encoder features."""
        return self.backbone.encode(self.videos, self.pixels)

    def features(self, method: Method) -> VideoFeatures:
        """Return what a method reads of all videos, as one batch."""
        each = [self.backbone.features(one, method, conditioned=method.uses_question) for one in self.encoded]
        extras = {name: torch.stack([one.extras[name] for one in each]) for name in each[0].extras}
        return replace(each[0], features=torch.stack([one.features for one in each]), extras=extras)

    def compress(self, videos: VideoFeatures, method: Method, budget: Budget) -> list[Compressed]:
        """Compress all videos for their questions; a GPU replays what it has done before."""
        questions = [prompt.question if method.uses_question else None for prompt in self.prompts]
        if not isinstance(method, FrameMethod):
            return [method(videos.only(place), question=one, budget=budget) for place, one in enumerate(questions)]
        asked = torch.stack([one for one in questions if one is not None]) if method.uses_question else None
        if not method.replayable:
            made = method.mix(videos, question=asked, budget=budget)
            return [Compressed.of_frames(made.video(place), videos.only(place)) for place in range(self.batch)]

        def work(features: Tensor, asked: Tensor | None = None, **extras: Tensor) -> Tensor:
            return method.mix(replace(videos, features=features, extras=extras), question=asked, budget=budget).features

        inputs = {"features": videos.features, **videos.extras} | ({} if asked is None else {"asked": asked})
        mixed = self.replays.run(work, inputs, key=(method.name, budget), modules=tuple(self.backbone.parts.values()))
        return [_without_record(one, videos) for one in mixed]

    def project(self, made: list[Compressed], method: Method) -> list[VideoInPrompt]:
        """Turn each video's compressed features into decoder tokens."""
        return [self.backbone.project(one, method) for one in made]

    def to_tokens(self, method: Method, budget: Budget) -> list[VideoInPrompt]:
        """Turn encoder features into each prompt's decoder tokens, everything in one go, as the model runs it."""
        return self.backbone.compress(self.encoded, self.prompts, CompressionRequest(budget, method, record=False))

    def decoder_input(self, method: Method, budget: Budget) -> DecoderInput:
        """Do the same, and put the tokens in their place in the prompts."""
        return self.backbone.place(self.prompts, self.to_tokens(method, budget))

    def prefill(self, inputs: DecoderInput) -> Any:
        """Run the decoder over the whole prompt."""
        return self.engine.prefill(inputs)

    def next_token(self, inputs: DecoderInput) -> Work:
        """Return the decoding of one token after the prompt; each call adds one to the cache, as in an answer."""
        return self.engine.next_token(self.prefill(inputs).past_key_values)


def _without_record(features: Tensor, videos: VideoFeatures) -> Compressed:
    def unknown() -> Any:
        raise RuntimeError("a replayed compression keeps no record")

    return Compressed(features.flatten(0, 1), videos.grid, unknown, unknown)


def measure_model(lm: VideoLM, setup: Setup, options: Options, tell: Tell) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Measure every method at every frame count, batch size and ratio; return remarks on what could not be, too."""

    def measure_one(count: int, batch: int) -> list[Row]:
        tell(f"{count} frames, batch {batch}: encode")
        found = _measure_setting(Pipeline(lm, batch, count, setup.seed), setup, options, tell)
        if setup.backward:
            found = [_with_backward(row, lm, setup, tell) for row in found]
        return _compared(found)

    return over_settings(options.frames, options.batches, measure_one)


@torch.inference_mode()
def _measure_setting(pipeline: Pipeline, setup: Setup, options: Options, tell: Tell) -> list[Row]:
    encode = setup.time(pipeline.encode)
    chosen = [name for name in options.methods or COMPRESSING if name != UNCOMPRESSED]
    settings: list[tuple[str, float | None]] = [(UNCOMPRESSED, None)]
    settings += [(name, ratio) for ratio in options.ratios for name in chosen]
    rows = []
    for name, ratio in settings:
        tell(f"{pipeline.frames} frames, batch {pipeline.batch}: {name}" + ("" if ratio is None else f" at {ratio:g}"))
        method = pipeline.backbone.method(name)
        parts = {"encode": encode} | _method_parts(pipeline, setup, method, ratio)
        rows.append(_row(pipeline, setup, method, ratio, parts))
    return rows


def _method_parts(pipeline: Pipeline, setup: Setup, method: Method, ratio: float | None) -> dict[str, Part]:
    """Measure one method after the encoder; where memory runs out, what would have come next is missing."""
    budget = WHOLE if ratio is None else Budget(ratio=ratio)
    parts: dict[str, Part] = {}

    def features_alone() -> None:
        features = pipeline.features(method)
        made = pipeline.compress(features, method, budget)
        if method.compresses:
            parts["compress"] = setup.time(lambda: pipeline.compress(features, method, budget))
        parts["project"] = setup.time(lambda: pipeline.project(made, method))

    def decoder() -> None:
        parts["to_tokens"] = setup.time(lambda: pipeline.to_tokens(method, budget))
        parts["decoder_input"] = setup.time(lambda: pipeline.decoder_input(method, budget))
        inputs = pipeline.decoder_input(method, budget)
        parts["prefill"] = setup.time(lambda: pipeline.prefill(inputs))
        parts["next_token"] = setup.time(pipeline.next_token(inputs))

    compress = ("compress",) if method.compresses else ()
    names = (*compress, "project", "to_tokens", "decoder_input", "prefill", "next_token")
    for steps in (features_alone, decoder):
        failure = attempt(steps)
        if failure is not None:
            parts |= {name: failure for name in names if name not in parts}
    return parts


def _row(pipeline: Pipeline, setup: Setup, method: Method, ratio: float | None, parts: dict[str, Part]) -> Row:
    backbone, frames = pipeline.backbone, pipeline.frames
    path, tokens = _outcome(pipeline, method, ratio)
    share = None
    if method.trained and (shape := pipeline.encoded[0].features.shape):
        moved = pipeline.batch * fewest_bytes(path, shape[1], shape[2], setup.dtype.itemsize)
        share = bandwidth_share(moved, parts["compress"], setup.bandwidth)
    first = total_ms(parts, FIRST_TOKEN)
    return Row(
        method=method.name,
        frames=frames,
        batch=pipeline.batch,
        ratio=ratio,
        supports=-(-tokens // backbone.tokens_per_frame),
        tokens=tokens,
        path=path,
        parts=parts,
        bandwidth_share=share,
        first_token_ms=first,
        videos_per_second=None if first is None else 1000 * pipeline.batch / first,
    )


def _outcome(pipeline: Pipeline, method: Method, ratio: float | None) -> tuple[tuple[int, ...], int]:
    """Return the stages that a method goes through, and the visual tokens of a video after it."""
    backbone, frames = pipeline.backbone, pipeline.frames
    if ratio is None:
        return (frames,), frames * backbone.tokens_per_frame
    request = CompressionRequest(Budget(ratio=ratio), method)
    (video,) = backbone.compress(pipeline.encoded[:1], pipeline.prompts[:1], request)
    record = None if video.made is None else video.made.compression
    return (frames,) if record is None else record.path, len(video.tokens)


def _compared(rows: list[Row]) -> list[Row]:
    """Return rows of one setting with their factors against the first, which is uncompressed."""
    whole = rows[0].first_token_ms
    return [
        replace(row, factor=None if whole is None or row.first_token_ms is None else whole / row.first_token_ms)
        for row in rows
    ]


def _with_backward(row: Row, lm: VideoLM, setup: Setup, tell: Tell) -> Row:
    """Return the row with a trained compressor's own forward and backward, on random features of the same shape."""
    compressor = lm.backbone.parts.get("compressor")
    if not methods.get(row.method).trained or not isinstance(compressor, Compressor):
        return row
    tell(f"{row.frames} frames, batch {row.batch}: forward and backward at {row.ratio:g}")

    def work() -> Part:
        given = random_features(compressor.config, setup, row.batch, row.frames)
        return backward_part(compressor, given.u, given, row.supports, setup)

    return replace(row, parts=row.parts | {"backward": attempt(work)})

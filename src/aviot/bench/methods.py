"""Methods by themselves, all on the same synthetic tokens; needs no transformers."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from aviot import methods
from aviot.bench.compressor import Setup, fresh_compressor
from aviot.bench.inside_steps import inside_steps
from aviot.bench.replayed import replayed_mix
from aviot.bench.result import MethodResult
from aviot.bench.sizes import Size
from aviot.bench.synthetic import Shape, synthetic_question, synthetic_video
from aviot.bench.timing import NotMeasured, Part, attempt
from aviot.budget import Budget
from aviot.config import CompressorConfig
from aviot.engine.base import Report
from aviot.methods.aviot.replay import Replays
from aviot.methods.base import Compressed, FrameMethod, Method
from aviot.methods.features import VideoFeatures
from aviot.ot.device import on_gpu

T = TypeVar("T")
INPUTS = 3  # videos that are compressed in turn, so that none is in a cache from the run before


@dataclass
class MethodBench:
    """The sizes and settings of one table, and the inputs, drawn when the first method needs them."""

    shape: Shape
    setup: Setup
    parts: Mapping[str, nn.Module]
    budget: Budget
    drawn: dict[bool, list[VideoFeatures]] = field(default_factory=dict)

    def videos(self, method: Method) -> list[VideoFeatures]:
        """Return the inputs of a method; those of one kind are kept until the other kind is asked for."""
        before = method.before_pooling
        if before not in self.drawn:
            self.drawn.clear()
            setup, seeds = self.setup, range(self.setup.seed, self.setup.seed + INPUTS)
            self.drawn[before] = [
                synthetic_video(self.shape, setup.device, setup.dtype, seed, before_pooling=before) for seed in seeds
            ]
        needed = {*method.needs, "pooling"} if before else method.needs
        return [
            replace(video, extras={name: values for name, values in video.extras.items() if name in needed})
            for video in self.drawn[before]
        ]

    def question(self, method: Method) -> Tensor | None:
        """Return the question of a method that uses one."""
        given = self.shape, self.setup.device, self.setup.dtype, self.setup.seed
        return synthetic_question(*given) if method.uses_question else None

    @torch.inference_mode()
    def parts_of(self, name: str) -> tuple[dict[str, Part], int]:
        """Return a method's timed parts and the number of tokens that it leaves; raise ValueError if it refuses."""
        method = methods.get(name).bind(self.parts)
        videos, question = self.videos(method), self.question(method)
        parts: dict[str, Part] = {}

        def compressed(video: VideoFeatures) -> Compressed:
            return method(video, question=question, budget=self.budget)

        made = compressed(videos[0])
        tokens = len(made)
        if method.inside is not method:
            parts["compress"] = self.setup.time_on(videos, compressed)
        if isinstance(method, FrameMethod) and method.replayable and on_gpu(videos[0].features):
            run = partial(replayed_mix, Replays(), method)
            rest = partial(run, asked=question, budget=self.budget, modules=tuple(self.parts.values()))
            parts["replay"] = self.setup.time_on(videos, rest)
        if method.inside is not None:
            limit = videos[0].limit(self.budget) if method.inside is method else None
            steps = inside_steps(method.inside, made, limit, self.setup.seed)
            parts["inside"], tokens = self.setup.time(steps), steps()
        return parts, tokens


def measure_methods(
    names: tuple[str, ...],
    size: Size,
    setup: Setup,
    frames: tuple[int, ...],
    ratios: tuple[float, ...],
    report: Report,
) -> tuple[MethodResult, ...]:
    """Time methods at every frame count and ratio.

    Frames have as many tokens as the decoder reads of an uncompressed one.
    """
    rows: list[MethodResult] = []
    config = CompressorConfig(dim=size.text.width, cost_dim=size.cost_dim)
    compressor = fresh_compressor(config, setup.device, setup.dtype, setup.seed)
    parts = {"compressor": compressor, "question_projection": nn.Identity()}
    for count in frames:
        shape = Shape(frames=count, grid=size.token_grid, unpooled=(size.side, size.side), dim=size.text.width)
        for ratio in ratios:
            bench = MethodBench(shape, setup, parts, Budget(ratio=ratio))
            rows += _rows(bench, names, ratio, report)
    return tuple(rows)


def _rows(bench: MethodBench, names: tuple[str, ...], ratio: float, report: Report) -> Iterator[MethodResult]:
    """Yield each method's row."""
    frames, (rows, columns) = bench.shape.frames, bench.shape.grid
    for name in names:
        report(f"{frames} frames, {name} at {ratio:g}")
        found, refusal = attempt_method(partial(bench.parts_of, name))
        missing: dict[str, Part] = {"compress": found} if isinstance(found, NotMeasured) else {}
        parts, tokens = (missing, None) if isinstance(found, NotMeasured) else found
        yield MethodResult(
            method=name,
            frames=frames,
            batch=1,
            ratio=ratio,
            supports=math.ceil((tokens or 0) / (rows * columns)),
            tokens=tokens,
            path=(),
            parts=parts,
            refusal=refusal,
        )


def attempt_method(work: Callable[[], T]) -> tuple[T | NotMeasured, str]:
    """Return the result of the work and no refusal, or NotMeasured and the sentence with which a method refuses."""
    try:
        return attempt(work), ""
    except ValueError as error:
        return NotMeasured("refused"), str(error)

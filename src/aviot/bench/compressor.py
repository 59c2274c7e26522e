"""The compressor and the baselines by themselves, and how the compressor's cost scales; needs no transformers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from aviot.bench.result import MethodResult, ScalingPoint
from aviot.bench.timing import (
    Measurement,
    NotMeasured,
    Part,
    Work,
    attempt,
    bandwidth_share,
    fewest_bytes,
    measure,
    measure_on,
)
from aviot.config import CompressorConfig
from aviot.engine.base import Report
from aviot.methods.aviot import Compressor, PositionEncoder, RandomDrop, UniformKeep
from aviot.methods.aviot.replay import Replays
from aviot.methods.aviot.schedule import path_for, support_count
from aviot.methods.registry import DEFAULT
from aviot.ot.device import on_gpu

T = TypeVar("T")
DEFAULT_METHODS = ("uniform", "random", DEFAULT)
QUARTERS = (1, 2, 3, 4)  # of the base's frames and channels
RATIOS = (16, 8, 4, 2)  # supports at the base's frames
SIDES = (9, 15, 21, 27)  # of a square grid: from one patch to nine in each of the paper's finest regions


@dataclass(frozen=True)
class Setup:
    """The device, the settings of the timed runs, and the device's memory bandwidth in bytes per second."""

    device: torch.device
    dtype: torch.dtype
    warmup: int
    repeats: int
    bandwidth: float
    backward: bool
    seed: int

    def time(self, work: Work) -> Part:
        """Time a piece of work."""
        return attempt(partial(measure, work, self.device, warmup=self.warmup, repeats=self.repeats))

    def time_on(self, inputs: Sequence[T], work: Callable[[T], object]) -> Part:
        """Time a piece of work on several inputs in turn."""
        return attempt(partial(measure_on, inputs, work, self.device, warmup=self.warmup, repeats=self.repeats))

    def generator(self) -> torch.Generator:
        """Return a new random generator on the device, always with the same seed."""
        return torch.Generator(self.device).manual_seed(self.seed)


@dataclass(frozen=True)
class Features:
    """Random features of a batch of videos, and a question for each."""

    u: Tensor  # [B,T,S,D], as from an encoder
    question: Tensor  # [B,D]
    relevance: Tensor  # [B,T]


def random_features(config: CompressorConfig, setup: Setup, batch: int, frames: int) -> Features:
    """Return features on the device in the timed type."""
    device, dtype, generator = setup.device, setup.dtype, setup.generator()
    u = torch.randn(batch, frames, config.patches, config.dim, generator=generator, device=device, dtype=dtype)
    question = torch.randn(batch, config.dim, generator=generator, device=device, dtype=dtype)
    return Features(u, question, torch.rand(batch, frames, generator=generator, device=device))


def fresh_compressor(config: CompressorConfig, device: torch.device, dtype: torch.dtype, seed: int) -> Compressor:
    """Return a compressor with random weights on the device; the seed determines the weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Compressor(config).to(device, dtype).eval()


def time_forward(module: nn.Module, x: Tensor, given: Features, supports: int, setup: Setup) -> Part:
    """Time one compression without gradients."""

    def work() -> object:
        with torch.inference_mode():
            return module(x, question=given.question, relevance=given.relevance, motion=given.u, supports=supports)

    return setup.time(work)


def time_replay(compressor: Compressor, x: Tensor, given: Features, ratio: float, setup: Setup) -> Part:
    """Time one compression replayed as a CUDA graph, with copies in and out; the graph keeps its capture's memory."""
    replays = Replays()
    inputs = {"x": x, "question": given.question, "relevance": given.relevance}

    def compress(**inputs: Tensor) -> Tensor:
        return compressor(**inputs, ratio=ratio).features

    def work() -> object:
        with torch.inference_mode():
            return replays.run(compress, inputs, key=(ratio,), modules=(compressor,))

    return setup.time(work)


def fastest(parts: dict[str, Part]) -> Part:
    """Return the time of a compression as the model runs it: replayed, if there is a graph."""
    return parts.get("replay", parts["compress"])


def time_backward(compressor: Compressor, x: Tensor, given: Features, supports: int, setup: Setup) -> Part:
    """Time one compression, its loss, and the gradients of the features and the weights."""

    def work() -> None:
        leaf = x.detach().requires_grad_()  # the same memory, without a gradient
        out = compressor(leaf, question=given.question, relevance=given.relevance, motion=given.u, supports=supports)
        (out.features.float().square().mean() + out.loss.sum()).backward()
        compressor.zero_grad(set_to_none=True)  # so that the next run's gradients count as extra memory

    return setup.time(work)


def measure_alone(
    compressor: Compressor,
    setup: Setup,
    frames: tuple[int, ...],
    batches: tuple[int, ...],
    ratios: tuple[float, ...],
    report: Report,
) -> tuple[tuple[MethodResult, ...], tuple[str, ...]]:
    """Time every method at every setting on random features; return notes on missing measurements too."""
    measure_one = partial(_measure_setting, compressor, setup, ratios=ratios, report=report)
    return over_settings(frames, batches, measure_one)


def over_settings(
    frames: tuple[int, ...], batches: tuple[int, ...], measure_one: Callable[[int, int], list[MethodResult]]
) -> tuple[tuple[MethodResult, ...], tuple[str, ...]]:
    """Return the rows of every frame count and batch size, and a note on each that did not fit into memory."""
    rows: list[MethodResult] = []
    notes: list[str] = []
    for count in frames:
        for batch in batches:
            found = attempt(partial(measure_one, count, batch))
            if isinstance(found, NotMeasured):
                notes.append(f"not measured: {count} frames, batch {batch}, {found.not_measured} before the first part")
            else:
                rows += found
    return tuple(rows), tuple(notes)


def _measure_setting(
    compressor: Compressor, setup: Setup, frames: int, batch: int, ratios: tuple[float, ...], report: Report
) -> list[MethodResult]:
    config = compressor.config
    given = random_features(config, setup, batch, frames)
    position = PositionEncoder(config).to(setup.device, setup.dtype).eval()
    with torch.no_grad():
        placed = setup.time(lambda: position(given.u))
        x = position(given.u)
    modules = (UniformKeep(config), RandomDrop(config, setup.generator()), compressor)
    rows = []
    for ratio in ratios:
        supports = support_count(frames, ratio)
        path = path_for(config, frames, supports)
        moved = batch * fewest_bytes(path, config.patches, config.dim, x.element_size())
        for method, module in zip(DEFAULT_METHODS, modules, strict=True):
            report(f"{frames} frames, batch {batch}, {method} at {ratio:g}")
            parts = {"position": placed, "compress": time_forward(module, x, given, supports, setup)}
            ours = module is compressor
            if ours and on_gpu(x):
                parts["replay"] = time_replay(compressor, x, given, ratio, setup)
            if ours and setup.backward:
                parts["backward"] = time_backward(compressor, x, given, supports, setup)
            rows.append(
                MethodResult(
                    method=method,
                    frames=frames,
                    batch=batch,
                    ratio=ratio,
                    supports=supports,
                    tokens=None,
                    path=path if ours or len(path) < 2 else (frames, supports),
                    parts=parts,
                    bandwidth_share=bandwidth_share(moved, fastest(parts), setup.bandwidth) if ours else None,
                    videos_per_second=_rate(batch, fastest(parts)),
                )
            )
    return rows


def _rate(batch: int, part: Part) -> float | None:
    return 1000 * batch / part.median_ms if isinstance(part, Measurement) and part.median_ms else None


@dataclass(frozen=True)
class ScalingCase:
    """One compression to time, which varies one size."""

    axis: Literal["T", "K", "S", "D"]
    config: CompressorConfig
    frames: int
    supports: int


def scaling_cases(config: CompressorConfig, frames: int, ratio: float) -> tuple[ScalingCase, ...]:
    """Return cases that vary T at a fixed ratio, then K, S and D, each ascending and without duplicates."""
    supports = support_count(frames, ratio)
    counts = [max(1, frames * quarter // 4) for quarter in QUARTERS]
    dims = [max(1, config.dim * quarter // 4) for quarter in QUARTERS]
    return tuple(
        dict.fromkeys(
            [
                *(ScalingCase("T", config, count, support_count(count, ratio)) for count in counts),
                *(ScalingCase("K", config, frames, support_count(frames, share)) for share in RATIOS),
                *(ScalingCase("S", replace(config, grid=(side, side)), frames, supports) for side in SIDES),
                *(ScalingCase("D", replace(config, dim=dim), frames, supports) for dim in dims),
            ]
        )
    )


def measure_scaling(
    config: CompressorConfig, setup: Setup, frames: int, ratio: float, batch: int, report: Report
) -> tuple[tuple[ScalingPoint, ...], tuple[str, ...]]:
    """Time every case with random weights and features; return notes on those that did not fit into memory too."""
    cases = scaling_cases(config, frames, ratio)
    points: list[ScalingPoint] = []
    notes: list[str] = []
    for number, case in enumerate(cases, start=1):
        report(f"scaling, {number} of {len(cases)}")
        found = attempt(partial(_measure_case, case, setup, batch))
        if isinstance(found, NotMeasured):
            where = f"{case.axis} with {case.frames} frames, grid {case.config.grid}"
            notes.append(f"not measured: {where}, {found.not_measured}")
        else:
            points.append(found)
    return tuple(points), tuple(notes)


def _measure_case(case: ScalingCase, setup: Setup, batch: int) -> ScalingPoint:
    config = case.config
    compressor = fresh_compressor(config, setup.device, setup.dtype, setup.seed)
    given = random_features(config, setup, batch, case.frames)
    parts = {"compress": time_forward(compressor, given.u, given, case.supports, setup)}
    if on_gpu(given.u):
        parts["replay"] = time_replay(compressor, given.u, given, case.frames / case.supports, setup)
    if setup.backward:
        parts["backward"] = time_backward(compressor, given.u, given, case.supports, setup)
    path = path_for(config, case.frames, case.supports)
    moved = batch * fewest_bytes(path, config.patches, config.dim, given.u.element_size())
    return ScalingPoint(
        axis=case.axis,
        frames=case.frames,
        supports=case.supports,
        patches=config.patches,
        dim=config.dim,
        path=path,
        parts=parts,
        bandwidth_share=bandwidth_share(moved, fastest(parts), setup.bandwidth),
    )

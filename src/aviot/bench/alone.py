"""The compressor alone, with the baselines beside it: no encoder, no decoder, no transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from aviot.bench.bandwidth import bandwidth_share, fewest_bytes
from aviot.bench.result import Row
from aviot.bench.timing import Measurement, NotMeasured, Part, Work, attempt, measure
from aviot.config import CompressorConfig
from aviot.methods.aviot import Compressor, PositionEncoder, RandomDrop, UniformKeep
from aviot.methods.aviot.replay import Replays
from aviot.methods.aviot.schedule import path_for, support_count
from aviot.methods.registry import DEFAULT
from aviot.ot.device import on_gpu

Tell = Callable[[str], None]
COMPRESSING = ("uniform", "random", DEFAULT)
"""Methods that are timed unless others are asked for."""


@dataclass(frozen=True)
class Setup:
    """Where and how often things are timed, and the memory's speed there."""

    device: torch.device
    dtype: torch.dtype
    warmup: int
    repeats: int
    bandwidth: float
    backward: bool
    seed: int

    def time(self, work: Work) -> Part:
        """Time one piece of work."""
        return attempt(partial(measure, work, self.device, warmup=self.warmup, repeats=self.repeats))

    def generator(self) -> torch.Generator:
        """The same random numbers each time it is asked for."""
        return torch.Generator(self.device).manual_seed(self.seed)


@dataclass(frozen=True)
class Features:
    """Random features of a batch of videos, and a question for each."""

    u: Tensor  # [B,T,S,D], as an encoder would give them
    question: Tensor  # [B,D]
    relevance: Tensor  # [B,T]


def random_features(config: CompressorConfig, setup: Setup, batch: int, frames: int) -> Features:
    """Features on the device, in the type that is timed."""
    device, dtype, generator = setup.device, setup.dtype, setup.generator()
    u = torch.randn(batch, frames, config.patches, config.dim, generator=generator, device=device, dtype=dtype)
    question = torch.randn(batch, config.dim, generator=generator, device=device, dtype=dtype)
    return Features(u, question, torch.rand(batch, frames, generator=generator, device=device))


def fresh_compressor(config: CompressorConfig, device: torch.device, dtype: torch.dtype, seed: int) -> Compressor:
    """An untrained compressor on the device, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Compressor(config).to(device, dtype).eval()


def forward_part(module: nn.Module, x: Tensor, given: Features, supports: int, setup: Setup) -> Part:
    """One compression without gradients."""

    def work() -> object:
        with torch.inference_mode():
            return module(x, question=given.question, relevance=given.relevance, motion=given.u, supports=supports)

    return setup.time(work)


def replay_part(compressor: Compressor, x: Tensor, given: Features, ratio: float, setup: Setup) -> Part:
    """The same as a CUDA graph, inputs copied in and the features out; it holds the memory it was captured with."""
    replays = Replays()
    inputs = {"x": x, "question": given.question, "relevance": given.relevance}

    def compress(**inputs: Tensor) -> Tensor:
        return compressor(**inputs, ratio=ratio).features

    def work() -> object:
        with torch.inference_mode():
            return replays.run(compress, inputs, key=(ratio,), modules=(compressor,))

    return setup.time(work)


def quickest(parts: dict[str, Part]) -> Part:
    """A compression as the model runs it: replayed, where there is a graph."""
    return parts.get("replay", parts["compress"])


def backward_part(compressor: Compressor, x: Tensor, given: Features, supports: int, setup: Setup) -> Part:
    """One compression, its objective, and their gradients for the features and the weights."""

    def work() -> None:
        leaf = x.detach().requires_grad_()  # the same memory, and no gradient yet
        out = compressor(leaf, question=given.question, relevance=given.relevance, motion=given.u, supports=supports)
        (out.features.float().square().mean() + out.loss.sum()).backward()
        compressor.zero_grad(set_to_none=True)  # so that the next run's gradients count as extra memory again

    return setup.time(work)


def measure_alone(
    compressor: Compressor,
    setup: Setup,
    frames: tuple[int, ...],
    batches: tuple[int, ...],
    ratios: tuple[float, ...],
    tell: Tell,
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Every method at every setting, on random features; and remarks on what could not be measured."""
    measure_one = partial(_measure_setting, compressor, setup, ratios=ratios, tell=tell)
    return over_settings(frames, batches, measure_one)


def over_settings(
    frames: tuple[int, ...], batches: tuple[int, ...], measure_one: Callable[[int, int], list[Row]]
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of every frame count and batch size, and a remark on each that memory did not allow."""
    rows: list[Row] = []
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
    compressor: Compressor, setup: Setup, frames: int, batch: int, ratios: tuple[float, ...], tell: Tell
) -> list[Row]:
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
        for method, module in zip(COMPRESSING, modules, strict=True):
            tell(f"{frames} frames, batch {batch}, {method} at {ratio:g}")
            parts = {"position": placed, "compress": forward_part(module, x, given, supports, setup)}
            ours = module is compressor
            if ours and on_gpu(x):
                parts["replay"] = replay_part(compressor, x, given, ratio, setup)
            if ours and setup.backward:
                parts["backward"] = backward_part(compressor, x, given, supports, setup)
            rows.append(
                Row(
                    method=method,
                    frames=frames,
                    batch=batch,
                    ratio=ratio,
                    supports=supports,
                    tokens=None,
                    path=path if ours or len(path) < 2 else (frames, supports),
                    parts=parts,
                    bandwidth_share=bandwidth_share(moved, quickest(parts), setup.bandwidth) if ours else None,
                    videos_per_second=_rate(batch, quickest(parts)),
                )
            )
    return rows


def _rate(batch: int, part: Part) -> float | None:
    return 1000 * batch / part.median_ms if isinstance(part, Measurement) and part.median_ms else None

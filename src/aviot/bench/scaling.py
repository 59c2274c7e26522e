"""How the compressor's cost grows with frames, supports, patches and channels, one at a time."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from aviot.bench.alone import (
    Setup,
    Tell,
    backward_part,
    forward_part,
    fresh_compressor,
    quickest,
    random_features,
    replay_part,
)
from aviot.bench.bandwidth import bandwidth_share, fewest_bytes
from aviot.bench.result import Point
from aviot.bench.timing import NotMeasured, attempt
from aviot.config import CompressorConfig
from aviot.methods.aviot.schedule import path_for, support_count
from aviot.ot.device import on_gpu

QUARTERS = (1, 2, 3, 4)  # of the base's frames and channels
RATIOS = (16, 8, 4, 2)  # supports at the base's frames
SIDES = (9, 15, 21, 27)  # of a square grid: from one patch to nine in each of the paper's finest regions


@dataclass(frozen=True)
class Spot:
    """One compression to time."""

    axis: Literal["T", "K", "S", "D"]
    config: CompressorConfig
    frames: int
    supports: int


def spots(config: CompressorConfig, frames: int, ratio: float) -> tuple[Spot, ...]:
    """T at a fixed ratio, then K, S and D around the base, each ascending; doubles are left out."""
    supports = support_count(frames, ratio)
    counts = [max(1, frames * quarter // 4) for quarter in QUARTERS]
    dims = [max(1, config.dim * quarter // 4) for quarter in QUARTERS]
    return tuple(
        dict.fromkeys(
            [
                *(Spot("T", config, count, support_count(count, ratio)) for count in counts),
                *(Spot("K", config, frames, support_count(frames, share)) for share in RATIOS),
                *(Spot("S", replace(config, grid=(side, side)), frames, supports) for side in SIDES),
                *(Spot("D", replace(config, dim=dim), frames, supports) for dim in dims),
            ]
        )
    )


def measure_scaling(
    config: CompressorConfig, setup: Setup, frames: int, ratio: float, batch: int, tell: Tell
) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """Time every spot with random weights and features of its own shape; and remarks on what did not fit."""
    chosen = spots(config, frames, ratio)
    points: list[Point] = []
    notes: list[str] = []
    for number, spot in enumerate(chosen, start=1):
        tell(f"scaling, {number} of {len(chosen)}")
        found = attempt(partial(_measure_spot, spot, setup, batch))
        if isinstance(found, NotMeasured):
            where = f"{spot.axis} with {spot.frames} frames, grid {spot.config.grid}"
            notes.append(f"not measured: {where}, {found.not_measured}")
        else:
            points.append(found)
    return tuple(points), tuple(notes)


def _measure_spot(spot: Spot, setup: Setup, batch: int) -> Point:
    config = spot.config
    compressor = fresh_compressor(config, setup.device, setup.dtype, setup.seed)
    given = random_features(config, setup, batch, spot.frames)
    parts = {"compress": forward_part(compressor, given.u, given, spot.supports, setup)}
    if on_gpu(given.u):
        parts["replay"] = replay_part(compressor, given.u, given, spot.frames / spot.supports, setup)
    if setup.backward:
        parts["backward"] = backward_part(compressor, given.u, given, spot.supports, setup)
    path = path_for(config, spot.frames, spot.supports)
    moved = batch * fewest_bytes(path, config.patches, config.dim, given.u.element_size())
    return Point(
        axis=spot.axis,
        frames=spot.frames,
        supports=spot.supports,
        patches=config.patches,
        dim=config.dim,
        path=path,
        parts=parts,
        bandwidth_share=bandwidth_share(moved, quickest(parts), setup.bandwidth),
    )

"""Rendering of scenes, many at once, on any device.

Positions are computed on the host in float64; the device looks up tables, blends and rounds. A CPU and a GPU therefore
differ by at most one level of 255, where a blend falls on the boundary between two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from aviot.scenes.draws import Draws
from aviot.scenes.layers import Stack, draw_stack, stacks_of
from aviot.scenes.scene import Scene, Shot, sway, tracks
from aviot.scenes.textures import PATTERN_SIDE, noise_table, pattern_tables
from aviot.utils.splitmix64 import STRIDE, splitmix64
from aviot.utils.to_device import to_device

CHUNK = {"cpu": 2**20, "cuda": 2**24}
"""Pixels drawn at a time: what fits a CPU's cache, and what keeps a GPU busy in about a gigabyte."""

PARALLAX = 0.5  # share of the camera's sway that moves the background, which is further away


@dataclass(frozen=True, eq=False)
class Clips:
    """Rendered scenes: uint8 RGB frames and their timestamps in seconds."""

    frames: UInt8[Tensor, "B T H W 3"]
    times: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class RenderPlan:
    """The drawing instructions for frames of several scenes: arrays that one process can make for another."""

    size: int
    stacks: tuple[Stack, ...]
    offsets: NDArray[np.int64]  # [N,2]: offset of the background in its pattern
    patterns: NDArray[np.int64]  # [N]
    colours: NDArray[np.float32]  # [N,2,3]: the pattern's two colours
    grain: NDArray[np.int64]  # [N,2]: offset in the noise table
    noise: NDArray[np.float32]  # [N]: standard deviation of the noise, in levels


def render(scenes: Sequence[Scene], device: torch.device | str = "cpu", indices: Sequence[int] | None = None) -> Clips:
    """Draw scenes of the same length: all frames, or those with these indices."""
    device = torch.device(device)
    plans, at = plan(scenes, indices, CHUNK.get(device.type, CHUNK["cuda"]))
    frames = draw(plans, device).unflatten(0, (len(scenes), -1))
    return Clips(frames, tuple(float(frame) / scenes[0].fps for frame in at))


def plan(
    scenes: Sequence[Scene], indices: Sequence[int] | None = None, pixels: int = CHUNK["cuda"]
) -> tuple[list[RenderPlan], NDArray[np.int64]]:
    """Return plans for scenes of the same length, each of at most `pixels` pixels if possible, and the frames drawn."""
    if not scenes:
        raise ValueError("scenes is empty; give at least one")
    shapes = sorted({(scene.frames, scene.size, scene.fps) for scene in scenes})
    if len(shapes) > 1:
        raise ValueError(
            f"scenes must agree in frames, size and fps, got {shapes}; render those of one length at a time"
        )
    scene = scenes[0]
    at = np.arange(scene.frames) if indices is None else np.asarray(indices, np.int64)
    if len(at) == 0 or at.min() < 0 or at.max() >= scene.frames:
        raise ValueError(f"indices must name frames 0 to {scene.frames - 1}, got {indices}")
    together = max(1, pixels // (len(at) * scene.size**2))
    return [_plan(scenes[first : first + together], at) for first in range(0, len(scenes), together)], at


def draw(plans: Sequence[RenderPlan], device: torch.device | str) -> UInt8[Tensor, "N H W 3"]:
    """Draw the frames of all plans, one after the other."""
    device = torch.device(device)
    size = plans[0].size
    out = torch.empty(sum(len(plan.noise) for plan in plans), size, size, 3, dtype=torch.uint8, device=device)
    first = 0
    for one in plans:
        out[first : first + len(one.noise)] = _draw(one, device)
        first += len(one.noise)
    return out


def _plan(scenes: Sequence[Scene], at: NDArray[np.int64]) -> RenderPlan:
    shots = [shot for scene in scenes for shot in _shots(scene, at)]
    swayed = np.concatenate([sway(scene, at) for scene in scenes]) * scenes[0].size * PARALLAX
    frames = np.tile(at, len(scenes))[:, None]
    moved = np.array([shot.offset for shot in shots]) - frames * np.array([shot.velocity for shot in shots]) - swayed
    keys = np.array([Draws("noise", scene.seed, scene.split, scene.index).word() for scene in scenes], np.uint64)
    bits = splitmix64((keys[:, None] + at.astype(np.uint64)).ravel() * STRIDE)
    grain = np.stack([bits & np.uint64(PATTERN_SIDE - 1), (bits >> np.uint64(8)) & np.uint64(PATTERN_SIDE - 1)], axis=1)
    return RenderPlan(
        size=scenes[0].size,
        stacks=tuple(stacks_of([tracks(scene, at) for scene in scenes], scenes)),
        offsets=np.rint(moved).astype(np.int64),
        patterns=np.array([shot.pattern for shot in shots], np.int64),
        colours=np.array([shot.colours for shot in shots], np.float32),
        grain=grain.astype(np.int64),
        noise=np.repeat([scene.camera.noise for scene in scenes], len(at)).astype(np.float32),
    )


def _draw(one: RenderPlan, device: torch.device) -> Tensor:
    """Draw a plan's frames [N,H,W,3]: background, objects from back to front, sensor noise."""

    def there(array: np.ndarray) -> Tensor:
        return to_device(array, device)

    positions = _windows(there(one.offsets), one.size)
    share = _patterns(device)[positions + (there(one.patterns) * PATTERN_SIDE * PATTERN_SIDE)[:, None, None]]
    low, high = there(one.colours)[:, :, None, None].unbind(1)
    canvas = low + (high - low) * share[..., None]
    for stack in one.stacks:
        draw_stack(canvas, stack)
    noise = _grain(device)[_windows(there(one.grain), one.size)] * there(one.noise)[:, None, None]
    return canvas.add_(noise[..., None]).add_(0.5).clamp_(0, 255).to(torch.uint8)  # adding a half and truncating rounds


def _shots(scene: Scene, at: np.ndarray) -> list[Shot]:
    """Return the shot of every frame."""
    which = np.searchsorted([shot.start for shot in scene.shots], at, side="right") - 1
    return [scene.shots[i] for i in which]


@cache
def _patterns(device: torch.device) -> Tensor:
    return torch.from_numpy(pattern_tables()).to(device).flatten()


@cache
def _grain(device: torch.device) -> Tensor:
    return torch.from_numpy(noise_table()).to(device).flatten()


def _windows(offsets: Tensor, size: int) -> Tensor:
    """Return indices [N,H,W] into a flat periodic table, of frame-sized windows at these offsets (x, y)."""
    ticks = torch.arange(size, device=offsets.device)
    columns = (ticks + offsets[:, :1]) & (PATTERN_SIDE - 1)
    rows = (ticks + offsets[:, 1:]) & (PATTERN_SIDE - 1)
    return rows[:, :, None] * PATTERN_SIDE + columns[:, None, :]

"""Scenes become pixels, many at once, on any device.

What is drawn where is worked out on the host in float64; the device looks up tables, blends and rounds. A CPU and a GPU
therefore differ by at most one level of 255, where a blend falls on the edge between two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from aviot.synthetic.chance import Draws
from aviot.synthetic.layers import Layer, draw_layer, layers_of
from aviot.synthetic.patterns import SIDE, noise_table, pattern_tables, scattered
from aviot.synthetic.scene import Scene, Shot
from aviot.synthetic.tracks import sway, tracks

CHUNK = {"cpu": 2**22, "cuda": 2**25}
"""Pixels drawn at a time: what a cache likes, and what keeps a GPU busy in half a gigabyte."""

PARALLAX = 0.5  # of the camera's sway that the background takes part in: it is further away


@dataclass(frozen=True, eq=False)
class Clips:
    """Rendered scenes: uint8 RGB frames [B,T,H,W,3] and the seconds at which they are shown."""

    frames: UInt8[Tensor, "B T H W 3"]
    times: tuple[float, ...]


def render(scenes: Sequence[Scene], device: torch.device | str = "cpu", indices: Sequence[int] | None = None) -> Clips:
    """Draw scenes of the same length: all frames, or those with these indices."""
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
    device = torch.device(device)
    out = torch.empty(len(scenes), len(at), scene.size, scene.size, 3, dtype=torch.uint8, device=device)
    together = max(1, CHUNK.get(device.type, CHUNK["cuda"]) // (len(at) * scene.size**2))
    for first in range(0, len(scenes), together):
        chosen = scenes[first : first + together]
        out[first : first + together] = _draw(chosen, at, device).view(len(chosen), *out.shape[1:])
    return Clips(out, tuple(float(frame) / scene.fps for frame in at))


def _draw(scenes: Sequence[Scene], at: np.ndarray, device: torch.device) -> Tensor:
    """Frames of some scenes, one after the other [B*T,H,W,3]."""
    layers = layers_of([tracks(scene, at) for scene in scenes], scenes)
    canvas = _background(scenes, at, device)
    for layer in layers:
        draw_layer(canvas, Layer(*(part.to(device, non_blocking=True) for part in layer)))
    noise = _noise(scenes, at, device)
    return canvas.add_(noise[..., None]).add_(0.5).clamp_(0, 255).to(torch.uint8)  # a half and truncation round


def _background(scenes: Sequence[Scene], at: np.ndarray, device: torch.device) -> Tensor:
    """Float levels [B*T,H,W,3] of what is behind the objects."""
    shots = [shot for scene in scenes for shot in _shots(scene, at)]
    swayed = np.concatenate([sway(scene, at) for scene in scenes]) * scenes[0].size * PARALLAX
    frames = np.tile(at, len(scenes))[:, None]
    moved = np.array([shot.offset for shot in shots]) - frames * np.array([shot.velocity for shot in shots]) - swayed
    places = _windows(np.rint(moved).astype(np.int64), scenes[0].size, device)
    pattern = torch.tensor([shot.pattern for shot in shots], device=device)
    share = _patterns(device)[places + (pattern * SIDE * SIDE)[:, None, None]]
    colours = torch.tensor([shot.colours for shot in shots], dtype=torch.float32, device=device)[:, :, None, None]
    low, high = colours.unbind(1)
    return low + (high - low) * share[..., None]


def _shots(scene: Scene, at: np.ndarray) -> list[Shot]:
    """The shot of every frame."""
    which = np.searchsorted([shot.start for shot in scene.shots], at, side="right") - 1
    return [scene.shots[i] for i in which]


def _noise(scenes: Sequence[Scene], at: np.ndarray, device: torch.device) -> Tensor:
    """The sensor's noise in levels [B*T,H,W]: every frame takes the table from a place of its own."""
    keys = np.array([Draws("noise", scene.seed, scene.split, scene.index).word() for scene in scenes], np.uint64)
    bits = scattered((keys[:, None] + at.astype(np.uint64)).ravel())
    offsets = np.stack([bits & np.uint64(SIDE - 1), (bits >> np.uint64(8)) & np.uint64(SIDE - 1)], axis=1)
    places = _windows(offsets.astype(np.int64), scenes[0].size, device)
    deviation = np.repeat([scene.camera.noise for scene in scenes], len(at))
    return _grain(device)[places] * torch.tensor(deviation, dtype=torch.float32, device=device)[:, None, None]


@cache
def _patterns(device: torch.device) -> Tensor:
    return torch.from_numpy(pattern_tables()).to(device).flatten()


@cache
def _grain(device: torch.device) -> Tensor:
    return torch.from_numpy(noise_table()).to(device).flatten()


def _windows(offsets: np.ndarray, size: int, device: torch.device) -> Tensor:
    """Places in a flat table [N,H,W] of the frame-sized windows at these offsets (x, y), wrapped round."""
    moved = torch.from_numpy(offsets).to(device)
    ticks = torch.arange(size, device=device)
    columns = (ticks + moved[:, :1]) & (SIDE - 1)
    rows = (ticks + moved[:, 1:]) & (SIDE - 1)
    return rows[:, :, None] * SIDE + columns[:, None, :]

"""Auxiliary task of the encoder: look and position of the object at every patch of a frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.scenes.scene import COLOURS, SHAPES, TEXTURES
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.masks import mean_where
from aviot_lab.world import Scene, own_looks, tracks
from aviot_lab.world.world import GRID

KINDS = (len(SHAPES), len(COLOURS), len(TEXTURES))  # classes of a look; one more stands for the background
UNLABELLED = -1  # label of looks that belong to another split
SCALE = 3  # patches per unit of a position


class PatchHead(nn.Module):
    """Auxiliary head, used in training only: predicts look and position of the object at a patch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.looks = nn.ModuleList(nn.Linear(dim, kinds + 1) for kinds in KINDS)
        self.place = nn.Linear(dim, 3)

    def loss(
        self,
        features: Float[Tensor, "N S D"],
        looks: Int[Tensor, "3 N S"],
        place: Float[Tensor, "N S 3"],
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, with equal weight for objects and background, and the share of object patches all right.

        `place` is the offset of the object's centre, and its radius; it alone counts where looks are `UNLABELLED`.
        """
        features = self.norm(features)
        there, known = looks[0] < KINDS[0], looks[0] != UNLABELLED
        logits = [read(features).float() for read in self.looks]
        each = [
            F.cross_entropy(guess.flatten(0, 1), look.flatten(), ignore_index=UNLABELLED, reduction="none").view_as(
                look
            )
            for guess, look in zip(logits, looks, strict=True)
        ]
        look_loss = torch.stack(each).sum(0)
        place_loss = (self.place(features).float() - place).abs().mean(-1)
        right = torch.stack([guess.argmax(-1) == look for guess, look in zip(logits, looks, strict=True)]).all(0)
        loss = mean_where(look_loss, there & known) + mean_where(place_loss, there) + mean_where(look_loss, ~there)
        return loss, mean_where(right.float(), there & known)


@dataclass(frozen=True, eq=False)
class Objects:
    """The objects of frames from back to front [N,O]: positions and radii as fractions of the frame, looks by index.

    Field names are part of the fingerprint.
    """

    visible: NDArray[np.bool_]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    size: NDArray[np.float32]
    looks: NDArray[np.int64]  # [3,N,O]: shape, colour, texture; UNLABELLED if they belong to another split


def objects_of(scenes: Sequence[Scene], frames: Sequence[int]) -> Objects:
    """Return the objects in these frames of each scene."""
    most = max(len(scene.actors) for scene in scenes)
    parts = np.zeros((7, len(scenes), len(frames), most))
    for number, scene in enumerate(scenes):
        truth = tracks(scene, frames)
        order = back_to_front(scene)
        own = own_looks(scene, truth)
        looks = (np.where(own, look, UNLABELLED) for look in (truth.shape, truth.colour, truth.texture))
        named = (truth.visible, truth.x, truth.y, truth.size, *looks)
        for part, values in enumerate(named):
            parts[part, number, :, : len(order)] = values[order].T
    whole = parts.reshape(7, -1, most)
    x, y, size = whole[1:4].astype(np.float32)
    return Objects(whole[0] > 0, x, y, size, whole[4:].astype(np.int64))


def back_to_front(scene: Scene) -> list[int]:
    """Return the indices of a scene's actors in drawing order."""
    return sorted(range(len(scene.actors)), key=lambda actor: scene.actors[actor].front)


def in_front(objects: Objects, rows: Float[Tensor, "R"], columns: Float[Tensor, "C"]) -> Int[Tensor, "N S"]:
    """Return the index of the front object at each row and column (fractions of the frame); -1 without an object."""
    device = rows.device
    visible, x, y, size = (
        to_device(part, device)[:, None] for part in (objects.visible, objects.x, objects.y, objects.size)
    )  # [N,1,O]
    down, across = (part.flatten()[:, None] for part in torch.meshgrid(rows, columns, indexing="ij"))  # [S,1]
    covers = visible & ((x - across).square() + (y - down).square() < size.square())
    return (torch.arange(1, x.shape[-1] + 1, device=device) * covers).amax(-1) - 1


def cell_middles(grid: tuple[int, int], stride: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows and columns, in patches, of the middles of pooled cells."""
    rows, columns = (torch.arange(stride // 2, side, stride, device=device) + 0.5 for side in grid)
    return rows, columns


def patch_targets(
    objects: Objects, device: torch.device, side: int = GRID, scale: int = SCALE
) -> tuple[Int[Tensor, "3 N S"], Float[Tensor, "N S 3"]]:
    """Return look and position of the front object at each patch; the background's class is the number of kinds.

    `side` is the number of patches along a side, `scale` that of patches per unit of a position.
    """
    ticks = (torch.arange(side, device=device) + 0.5) / side
    front = in_front(objects, ticks, ticks)
    which = front.clamp_min(0)
    words = to_device(objects.looks, device)
    looks = [torch.where(front >= 0, word.gather(-1, which), kinds) for word, kinds in zip(words, KINDS, strict=True)]
    x, y, size = (to_device(part, device).gather(-1, which) for part in (objects.x, objects.y, objects.size))
    place = torch.stack((x - ticks.repeat(side), y - ticks.repeat_interleave(side), size), -1)
    return torch.stack(looks), place * side / scale

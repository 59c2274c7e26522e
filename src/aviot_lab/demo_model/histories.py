"""Auxiliary task of tracking: what every object has done so far, predicted from the decoder's states of its tokens.

An answer is one word about a whole video: too weak a signal to learn that a token of a star has to attend to the star's
tokens in earlier frames. These labels supervise every token of every object.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.scenes.scene import COLOURS, SHAPES, TEXTURES, Actor, Jumps
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.patches import Objects, back_to_front, cell_middles, in_front, objects_of
from aviot_lab.world import Scene, Tracks, own_looks, tracks
from aviot_lab.world.description import SIZE_WORDS, size_word, way_word
from aviot_lab.world.layout import CELLS
from aviot_lab.world.words import CHANGES, DIRECTIONS, QUARTERS, TURNS

WAYS = ("", *DIRECTIONS, *TURNS, "fro")  # last word of how an object moves; "" if it stands
MOST = 4  # changes counted
HISTORY = {
    "shape": len(SHAPES),  # its present appearance
    "colour": len(COLOURS),
    "texture": len(TEXTURES),
    "place": CELLS**2,
    "size": len(SIZE_WORDS),
    **{f"{change} changes": MOST + 1 for change in CHANGES},  # so far
    "last": len(CHANGES) + 1,  # kinds of the last change, of the one before, and of the first; 0 for none
    "before": len(CHANGES) + 1,
    "first": len(CHANGES) + 1,
    "quarter": len(QUARTERS) + 1,  # of the last change
    "first colour": len(COLOURS),
    "first place": CELLS**2,
    "way": len(WAYS),
    "touches": len(SHAPES) + 1,  # shape of the object that it touches; 0 for none
    "in front": 3,  # 1 in front of the object that it touches, 2 behind; 0 if it touches none
}
"""Labels of an object in a frame, with their numbers of classes."""

UNKNOWN = -1  # label that does not follow from the frames so far, or belongs to another split


@dataclass(frozen=True, eq=False)
class Histories:
    """The objects of videos, frame by frame, and their labels [N,O,labels]. Field names are part of the fingerprint."""

    objects: Objects
    labels: NDArray[np.int8]


class HistoryHead(nn.Module):
    """Auxiliary head, used in training only: predicts the histories of some objects from the decoder's states."""

    no_class: Tensor

    def __init__(self, dim: int, objects: int = 1) -> None:
        super().__init__()
        self.shape = (objects, len(HISTORY), max(HISTORY.values()))
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, math.prod(self.shape))
        classes = torch.arange(self.shape[-1]) < torch.tensor(list(HISTORY.values()))[:, None]
        self.register_buffer("no_class", ~classes, persistent=False)

    def loss(
        self, states: Float[Tensor, "N d"], histories: Int[Tensor, "N objects labels"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the mean loss over labels, each averaged where it is known, and the share of right predictions."""
        logits = self.read(self.norm(states)).float().unflatten(-1, self.shape).masked_fill(self.no_class, -torch.inf)
        each = F.cross_entropy(logits.flatten(0, 2), histories.flatten(), ignore_index=UNKNOWN, reduction="none")
        known = histories != UNKNOWN
        count = known.sum((0, 1)).clamp_min(1)
        right = (logits.argmax(-1) == histories).sum((0, 1))
        return (each.view_as(histories).sum((0, 1)) / count).mean(), (right / count).mean()


def histories_of(scenes: Sequence[Scene], frames: Sequence[int] | None = None) -> Histories:
    """Return the histories in all frames of scenes of one length, or in some as a short video of their own."""
    at = list(range(scenes[0].frames) if frames is None else frames)
    objects = objects_of(scenes, at)
    labels = np.full((len(scenes), len(at), objects.x.shape[1], len(HISTORY)), UNKNOWN, np.int8)
    for number, scene in enumerate(scenes):
        labels[number, :, : len(scene.actors)] = actor_histories(scene, at)[back_to_front(scene)].swapaxes(0, 1)
    return Histories(objects, labels.reshape(-1, *labels.shape[2:]))


def actor_histories(scene: Scene, at: Sequence[int]) -> NDArray[np.int8]:
    """Return every actor's labels in these frames [O,T,labels]."""
    truth = tracks(scene, at)
    labels = np.full((*truth.visible.shape, len(HISTORY)), UNKNOWN, np.int8)
    own = own_looks(scene, truth)
    order = np.argsort(back_to_front(scene))
    for number, actor in enumerate(scene.actors):
        visible = np.nonzero(truth.visible[number])[0]
        if len(visible):
            labels[number, visible] = _history(actor, truth, own, number, order, visible, at)
    return labels


def histories_at(
    histories: Histories, grid: tuple[int, int], stride: int, device: torch.device
) -> Int[Tensor, "N cells labels"]:
    """Return the labels of the object at the middle of each pooled cell; `UNKNOWN` without an object."""
    rows, columns = cell_middles(grid, stride, device)
    which = in_front(histories.objects, rows / grid[0], columns / grid[1])
    labels = to_device(histories.labels, device).long()
    there = labels.take_along_dim(which.clamp_min(0)[..., None], 1)
    return there.where(which[..., None] >= 0, UNKNOWN)


def _history(
    actor: Actor,
    truth: Tracks,
    own: NDArray[np.bool_],
    number: int,
    order: NDArray[np.int64],
    visible: NDArray[np.int64],
    at: Sequence[int],
) -> NDArray[np.int64]:
    """Return an actor's labels [V,labels] in the frames that show it, from these frames alone."""
    shown = np.array(at)[visible]
    places = actor.path.at(shown)
    cells = (places * CELLS).astype(int) @ (1, CELLS)
    stands = isinstance(actor.path, Jumps)
    spot = places @ (1, 1j) if stands else np.zeros(len(shown))  # moving objects do not jump
    looks = (truth.colour[number, visible], truth.size[number, visible], spot)  # as in CHANGES
    changed = np.stack([np.append(False, look[1:] != look[:-1]) for look in looks], axis=1)  # [V,kinds]
    counts = changed.cumsum(0)
    last, before, first, moment = _latest(changed)
    quarter = np.where(moment < 0, 0, 4 * visible[moment] // len(at) + 1) if len(at) >= 4 else UNKNOWN
    way = WAYS.index(way_word(actor).rpartition(" ")[2])
    follows = np.append(False, np.diff(shown) == 1).cumsum() > 0  # two consecutive frames were seen
    touches, in_front_of = _touching(truth, own, number, order)
    mine = own[number, visible]
    return np.stack(
        [
            *(np.where(mine, look[number, visible], UNKNOWN) for look in (truth.shape, truth.colour, truth.texture)),
            cells,
            [SIZE_WORDS.index(size_word(size)) for size in truth.size[number, visible]],
            *np.minimum(counts, MOST).T,
            last,
            before,
            first,
            np.broadcast_to(quarter, len(shown)),
            np.full(len(shown), truth.colour[number, visible[0]] if mine[0] else UNKNOWN),
            np.full(len(shown), cells[0]),
            np.where(stands | follows, way, UNKNOWN),
            touches[visible],
            in_front_of[visible],
        ],
        axis=1,
    )


def _latest(changed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
    """Return per frame the last change, the one before and the first, 0 for none; and the last one's frame, or -1.

    Simultaneous changes have no order.
    """
    states, latest = [], (0, 0, 0, -1)
    for frame, kinds in enumerate(changed):
        last, _, first, _ = latest
        if kinds.sum() == 1:
            kind = int(kinds.argmax()) + 1
            latest = (kind, last, first or kind, frame)
        elif kinds.any():
            latest = (UNKNOWN, UNKNOWN, first or UNKNOWN, frame)
        states.append(latest)
    return tuple(np.array(states).T)


def _touching(
    truth: Tracks, own: NDArray[np.bool_], actor: int, order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return per frame the shape that an actor touches, 0 for none, and whether it is in front (1) or behind (2).

    `order` is every actor's rank from back to front.
    """
    apart = np.hypot(truth.x - truth.x[actor], truth.y - truth.y[actor])
    touch = (apart < truth.size + truth.size[actor]) & truth.visible & truth.visible[actor]
    touch[actor] = False
    other = touch.argmax(0)
    touches = touch.any(0)
    at = np.arange(len(other))
    shape = np.where(touches, np.where(own[other, at], truth.shape[other, at] + 1, UNKNOWN), 0)
    return shape, np.where(touches, np.where(order[actor] > order[other], 1, 2), 0)

"""What every object has done so far, read off the decoder's tokens of it: the lesson of following things through time.

A question's answer is one word about a whole video, too little to learn from that a token of a star has to find the
star's tokens in the frames before. These labels say so of every token of every object.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from aviot.small.patches import Objects, in_front, objects_of
from aviot.synthetic import Scene, Tracks, tracks
from aviot.synthetic.description import way_word
from aviot.synthetic.paths import Jumps
from aviot.synthetic.scene import Actor
from aviot.synthetic.stage import CELLS
from aviot.synthetic.words import CHANGES, COLOURS, DIRECTIONS, QUARTERS, SHAPES, TURNS

WAYS = ("", *DIRECTIONS, *TURNS, "fro")  # the last word of how it moves; none if it stands
MOST = 4  # changes that are counted
HISTORY = {
    **dict.fromkeys(CHANGES, MOST + 1),  # how often each changed
    "last": len(CHANGES) + 1,  # what changed last, and before that; 0 for nothing
    "before": len(CHANGES) + 1,
    "quarter": len(QUARTERS) + 1,  # in which the last change was
    "first colour": len(COLOURS),
    "first place": CELLS**2,
    "way": len(WAYS),
    "touches": len(SHAPES) + 1,  # whom, if anyone
    "in front": 3,  # of whom it touches, or behind; 0 if it touches nobody
}
"""What is told of an object at a frame, and of how many kinds each is."""

UNKNOWN = -1  # where it cannot be told yet


@dataclass(frozen=True, eq=False)
class Histories:
    """The objects of videos, frame after frame, and what each has done by then [N,O,labels]."""

    objects: Objects
    labels: NDArray[np.int8]


class HistoryReader(nn.Module):
    """Reads histories off the decoder's states at tokens. It is thrown away after the lesson."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, sum(HISTORY.values()))

    def loss(
        self, states: Float[Tensor, "N cells d"], histories: Int[Tensor, "N cells labels"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The mean over labels, and the share that would be told right."""
        told = self.read(self.norm(states)).float().split(tuple(HISTORY.values()), -1)
        losses, right = [], []
        for guess, goal in zip(told, histories.unbind(-1), strict=True):
            known = goal != UNKNOWN
            losses.append(F.cross_entropy(guess.flatten(0, 1), goal.flatten(), ignore_index=UNKNOWN))
            right.append(((guess.argmax(-1) == goal) & known).sum() / known.sum())
        return torch.stack(losses).nan_to_num().mean(), torch.stack(right).nan_to_num().mean()


def histories_of(scenes: Sequence[Scene]) -> Histories:
    """Of all frames of scenes of one length, in the order of `objects_of`."""
    frames = range(scenes[0].frames)
    objects = objects_of(scenes, frames)
    labels = np.full((len(scenes), len(frames), objects.x.shape[1], len(HISTORY)), UNKNOWN, np.int8)
    for number, scene in enumerate(scenes):
        truth = tracks(scene)
        order = sorted(range(len(scene.actors)), key=lambda i: scene.actors[i].front)
        for place, i in enumerate(order):
            labels[number, :, place] = _history(scene, truth, i)
    return Histories(objects, labels.reshape(-1, *labels.shape[2:]))


def histories_at(
    histories: Histories, grid: tuple[int, int], stride: int, device: torch.device
) -> Int[Tensor, "N cells labels"]:
    """The history of the object at the middle of each pooled cell; unknown where there is none."""
    rows, columns = (torch.arange(stride // 2, side, stride, device=device) for side in grid)
    which = in_front(histories.objects, (rows + 0.5) / grid[0], (columns + 0.5) / grid[1])
    labels = torch.from_numpy(histories.labels).to(device).long()
    there = labels.take_along_dim(which.clamp_min(0)[..., None], 1)
    return there.where(which[..., None] >= 0, UNKNOWN)


def _history(scene: Scene, truth: Tracks, actor: int) -> NDArray[np.int64]:
    """An actor's labels at every frame [T,labels]."""
    told = np.full((scene.frames, len(HISTORY)), UNKNOWN)
    visible = truth.visible[actor]
    if not visible.any():
        return told
    first = int(visible.argmax())
    moments, kinds = _changes(scene.actors[actor], first)
    done = moments <= np.arange(scene.frames)[:, None]  # [T,events]
    count = done.sum(1)
    last = np.concatenate(([0], kinds + 1))
    quarter = np.concatenate(([0], 4 * moments // scene.frames + 1))
    x, y = scene.actors[actor].path.at(np.array([first]))[0]
    way = WAYS.index(way_word(scene.actors[actor]).rpartition(" ")[2])
    touches, in_front_of = _touching(truth, actor)
    told[:] = np.stack(
        [
            *(np.minimum((done & (kinds == kind)).sum(1), MOST) for kind in range(len(CHANGES))),
            last[count],
            last[np.maximum(count - 1, 0)],
            quarter[count],
            np.full(scene.frames, truth.colour[actor, first]),
            np.full(scene.frames, int(y * CELLS) * CELLS + int(x * CELLS)),
            np.where((np.arange(scene.frames) > first) | (way == 0), way, UNKNOWN),
            touches,
            in_front_of,
        ],
        axis=1,
    )
    told[~visible] = UNKNOWN
    return told


def _changes(actor: Actor, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When an actor changed after it was first seen, in order, and what of it."""
    stops = actor.path.stops if isinstance(actor.path, Jumps) else ()
    steps = {"colour": actor.colour, "size": actor.size, "place": stops, "pattern": actor.texture}
    events = sorted((at, CHANGES.index(kind)) for kind, values in steps.items() for at, _ in values[1:] if at > first)
    return np.array([at for at, _ in events], np.int64), np.array([kind for _, kind in events], np.int64)


def _touching(truth: Tracks, actor: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which shape an actor touches at each frame, 0 for none, and whether it is in front of it (1) or behind (2)."""
    apart = np.hypot(truth.x - truth.x[actor], truth.y - truth.y[actor])
    touch = (apart < truth.size + truth.size[actor]) & truth.visible & truth.visible[actor]
    touch[actor] = False
    whom = touch.argmax(0)
    any_one = touch.any(0)
    shape = np.where(any_one, truth.shape[whom, np.arange(len(whom))] + 1, 0)
    return shape, np.where(any_one, np.where(actor > whom, 1, 2), 0)

"""Answers worked out from a question's words and what every frame shows, independently of how the stories were made."""

import numpy as np
from reading import read

from aviot.scenes.scene import COLOUR_NAMES, SHAPES
from aviot_lab.world import Question, Scene, tracks
from aviot_lab.world.words import CHANGES, NUMBERS, QUADRANTS, QUARTERS

JUMP = 0.1  # between frames: more is no glide and no sway


class Seen:
    """One scene's tracks, asked by words."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.truth = scene, tracks(scene)

    def of_shape(self, shape: str) -> list[int]:
        return [i for i, actor in enumerate(self.scene.actors) if actor.shape == shape and self.truth.visible[i].any()]

    def one(self, shape: str) -> int:
        found = self.of_shape(shape)
        assert len(found) == 1, f"{len(found)} actors are a {shape}"
        return found[0]

    def at(self, i: int) -> np.ndarray:
        return np.flatnonzero(self.truth.visible[i])

    def place(self, i: int) -> np.ndarray:
        return np.stack([self.truth.x[i], self.truth.y[i]], axis=1)

    def changes(self, i: int) -> dict[str, list[int]]:
        frames, place = self.at(i), self.place(i)
        return {
            "colour": [t for t in frames[1:] if self.truth.colour[i, t] != self.truth.colour[i, t - 1]],
            "size": [t for t in frames[1:] if self.truth.size[i, t] != self.truth.size[i, t - 1]],
            "place": [t for t in frames[1:] if np.abs(place[t] - place[t - 1]).max() > JUMP],
        }

    def moved(self, i: int) -> np.ndarray:
        place = self.place(i)[self.at(i)]
        steps = np.diff(place, axis=0)
        return steps[np.abs(steps).max(1) < JUMP]


def solve(scene: Scene, question: Question) -> str:
    return globals()[f"_{question.family}"](Seen(scene), read(question.family, question.text))


def _existence(seen: Seen, slots: dict) -> str:
    colour = COLOUR_NAMES.index(slots["colour"])
    return (
        "yes"
        if any((seen.truth.colour[i, seen.at(i)] == colour).any() for i in seen.of_shape(slots["shape"]))
        else "no"
    )


def _only(values: np.ndarray) -> int:
    assert len(set(values.tolist())) == 1
    return int(values[0])


def _colour(seen: Seen, slots: dict) -> str:
    i = seen.one(slots["shape"])
    return COLOUR_NAMES[_only(seen.truth.colour[i, seen.at(i)])]


def _shape(seen: Seen, slots: dict) -> str:
    shown = seen.truth.visible & (seen.truth.colour == COLOUR_NAMES.index(slots["colour"]))
    return SHAPES[_only(seen.truth.shape[shown])]


def _where(seen: Seen, slots: dict) -> str:
    i = seen.one(slots["shape"])
    place = seen.place(i)[seen.at(i)] >= 0.5
    return QUADRANTS[_only(2 * place[:, 1] + place[:, 0])]


def _brief(seen: Seen, slots: dict) -> str:
    big = np.flatnonzero((seen.truth.size > 0.2).any(1))
    assert len(big) == 1
    assert 1 <= seen.truth.visible[big[0]].sum() <= 2
    return seen.scene.actors[big[0]].shape


def _touched(seen: Seen, slots: dict) -> str:
    mover = seen.one(slots["shape"])
    gaps = {}
    for i, actor in enumerate(seen.scene.actors):
        both = seen.truth.visible[i] & seen.truth.visible[mover]
        if i != mover and both.any() and not actor.front:
            apart = np.hypot(*(seen.place(i) - seen.place(mover))[both].T)
            gaps[actor.shape] = (apart - seen.truth.size[i, both] - seen.truth.size[mover, both]).min()
    assert sum(gap < 0 for gap in gaps.values()) == 1
    return min(gaps, key=gaps.get)


def _passing(seen: Seen, slots: dict) -> str:
    pair = [seen.one(slots["first"]), seen.one(slots["second"])]
    assert np.hypot(*(seen.place(pair[0]) - seen.place(pair[1])).T)[seen.at(pair[0])].min() < 0.1
    return seen.scene.actors[max(pair)].shape


def _count(seen: Seen, slots: dict) -> str:
    return NUMBERS[len(seen.changes(seen.one(slots["shape"]))["colour"]) - 1]


def _repetition(seen: Seen, slots: dict) -> str:
    return NUMBERS[len(seen.changes(seen.one(slots["shape"]))["place"]) - 1]


def _changed(seen: Seen, slots: dict) -> str:
    found = [kind for kind, at in seen.changes(seen.one(slots["shape"])).items() if at]
    assert len(found) <= 1
    return found[0] if found else "nothing"


def _became(seen: Seen, slots: dict) -> str:
    start = COLOUR_NAMES.index(slots["colour"])
    stars = [i for i in seen.of_shape(slots["shape"]) if seen.truth.colour[i, seen.at(i)[0]] == start]
    assert len(stars) == 1
    return COLOUR_NAMES[seen.truth.colour[stars[0], seen.at(stars[0])[-1]]]


def _moment(seen: Seen, shape: str, kind: str) -> int:
    moments = seen.changes(seen.one(shape))[kind]
    assert len(moments) == 1
    return moments[0]


def _when(seen: Seen, slots: dict) -> str:
    return QUARTERS[4 * _moment(seen, slots["shape"], slots["change"]) // seen.scene.frames]


def _order(seen: Seen, slots: dict) -> str:
    first = _moment(seen, slots["first"], slots["first_change"])
    return "before" if first < _moment(seen, slots["second"], slots["second_change"]) else "after"


def _neighbour(seen: Seen, slots: dict) -> str:
    moments = seen.changes(seen.one(slots["shape"]))
    sequence = sorted(CHANGES, key=lambda kind: moments[kind][0])
    near = sequence.index(slots["asked"]) + (1 if slots["side"] == "after" else -1)
    return sequence[near] if 0 <= near < len(sequence) else "nothing"


def _distant(seen: Seen, slots: dict) -> str:
    i = seen.one(slots["shape"])
    shown = seen.truth.colour[i, seen.at(i)]
    return "yes" if shown[0] == shown[-1] else "no"


def _direction(seen: Seen, slots: dict) -> str:
    dx, dy = seen.moved(seen.one(slots["shape"])).mean(0)
    return ("right" if dx > 0 else "left") if abs(dx) > abs(dy) else ("down" if dy > 0 else "up")


def _turning(seen: Seen, slots: dict) -> str:
    steps = seen.moved(seen.one(slots["shape"]))
    turned = steps[:-1, 0] * steps[1:, 1] - steps[:-1, 1] * steps[1:, 0]  # positive to the right, with y down
    return "clockwise" if turned.sum() > 0 else "anticlockwise"


def _following(seen: Seen, slots: dict) -> str:
    first, second = (seen.one(slots[name]) for name in ("first", "second"))
    step = seen.moved(first).mean(0)
    axis = int(np.argmax(np.abs(step)))
    apart = (seen.place(first) - seen.place(second))[seen.at(first), axis] * np.sign(step[axis])
    ahead = apart[np.abs(apart) < 0.4].mean() > 0  # further apart, one of them has started over
    return slots["second"] if ahead else slots["first"]


def _swap(seen: Seen, slots: dict) -> str:
    first, second = (seen.one(slots[name]) for name in ("first", "second"))
    start, end = seen.at(first)[[0, -1]]
    near = np.abs(seen.place(first)[end] - seen.place(second)[start]).max() < JUMP
    return "yes" if near else "no"

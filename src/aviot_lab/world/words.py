"""The words of questions and answers, and the rule that gives combinations of them to training, validation or test.

A combination is what a question is about: its family and a few words (shape, colour, texture, event, ...). The words of
every list are numbered, and the sum of a combination's numbers modulo five decides its split. So every split has every
word, and every pair of words that goes with a third, but a whole combination is in one split only. Answers of temporal
families are no part of their combinations; where an answer is one (colour, shape), a texture that no question mentions
balances the sum.
"""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from aviot.scenes import Scene, Split, Tracks
from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES

CHANGES = ("colour", "size", "place")
"""Properties of an object that can change."""

PHRASES = {  # infinitive and past tense of each change
    "colour": ("change its colour", "changed its colour"),
    "size": ("change its size", "changed its size"),
    "place": ("jump to another place", "jumped to another place"),
}

NOTHING = "nothing"
YES_NO = ("yes", "no")
NUMBERS = ("one", "two", "three", "four")
DIRECTIONS = ("left", "right", "up", "down")
TURNS = ("clockwise", "anticlockwise")
ORDERS = ("before", "after")
QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
QUADRANTS = ("top left", "top right", "bottom left", "bottom right")

SPLITS: tuple[Split, ...] = get_args(Split)

RESIDUES: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
MODULUS = 5

_MEMBERS = {split: np.isin(np.arange(MODULUS), residues) for split, residues in RESIDUES.items()}
_NUMBERS = {
    word: number for words in (SHAPES, COLOUR_NAMES, TEXTURES, CHANGES, ORDERS) for number, word in enumerate(words)
}  # no two lists share a word


def belongs(split: Split, total: Any) -> Any:
    """Return whether a sum of word numbers belongs to a split; elementwise for an array of sums."""
    return _MEMBERS[split][total % MODULUS]


def number_of(parts: Sequence[str]) -> int:
    """Return the sum of the words' numbers."""
    return sum(_NUMBERS[part] for part in parts)


def completing(split: Split, parts: Sequence[str], choices: Sequence[str]) -> list[str]:
    """Return the choices that complete these words to a combination of the split."""
    total = number_of(parts)
    return [choice for choice in choices if belongs(split, total + _NUMBERS[choice])]


def check_split(split: object) -> None:
    """Raise ValueError unless it names a split."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {split!r}")


def own_looks(scene: Scene, truth: Tracks) -> NDArray[np.bool_]:
    """Return whether an actor's shape, colour and texture are a combination of the scene's split, per frame [O,T]."""
    return belongs(scene.split, truth.shape + truth.colour + truth.texture)

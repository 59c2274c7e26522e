"""Which combinations belong to training, to validation and to the test: a Latin rule over their parts.

A combination is what a question is about: its family and a few words (shape, colour, texture, event …). Number the
words of every list; the sum of a combination's numbers modulo five says whose it is. So a split misses no word, and no
pair of words that a third goes with, but every whole combination belongs to one split alone. Answers of a temporal
family are no part of its combinations, hence follow from nothing that a split fixes; where an answer is a part (colour,
shape), a texture that no question mentions makes up the sum.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from aviot_lab.world.words import CHANGES, COLOUR_NAMES, ORDERS, SHAPES, TEXTURES

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

RESIDUES: dict[Split, tuple[int, ...]] = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
MODULUS = 5

_MEMBERS = {split: np.isin(np.arange(MODULUS), residues) for split, residues in RESIDUES.items()}
_NUMBERS = {
    word: number for words in (SHAPES, COLOUR_NAMES, TEXTURES, CHANGES, ORDERS) for number, word in enumerate(words)
}  # no two lists share a word


def belongs(split: Split, total: Any) -> Any:
    """Whether a sum of part numbers belongs to a split; of an array of sums, each."""
    return _MEMBERS[split][total % MODULUS]


def number_of(parts: Sequence[str]) -> int:
    """The sum of the words' numbers."""
    return sum(_NUMBERS[part] for part in parts)


def completing(split: Split, parts: Sequence[str], choices: Sequence[str]) -> list[str]:
    """The choices that complete these parts to a combination of the split."""
    total = number_of(parts)
    return [choice for choice in choices if belongs(split, total + _NUMBERS[choice])]


def check_split(split: object) -> None:
    """Refuse what is no split."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {split!r}")

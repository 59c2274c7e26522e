"""Fingerprint of the training data: changes with scenes, words, tokens, labels or phases."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from aviot_lab.demo_model.batches import SHORT_SCENE
from aviot_lab.demo_model.curriculum import Curriculum
from aviot_lab.demo_model.families import Family, batches_of

BATCHES = 3  # hashed per phase: some leave videos uncompressed, some compress them
HASHED_NAMES = {
    "prefix": "before",
    "question_mask": "asks",
    "visible_names": "seen",
    "recall": "recalls",
    "question_frames": "sought",
}
"""Fields that had another name when the bundled weights were trained; the earlier name is hashed."""

ADDED_NAMES = ("kept",)
"""Fields that were added since the bundled weights were trained; they are hashed where they are set."""


def data_fingerprint(curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast, family: Family | None = None) -> str:
    """Return the SHA-256 of the curriculum, each phase's first scene, and every whole number of its first batches.

    Those are tokens, labels and ratios. Scenes come from whole numbers too (`aviot.scenes.draws`), so the fingerprint
    is the same on any machine. Pixels are no part of it. The default family is the demo model's.
    """
    batches = batches_of(curriculum, tokenizer, family)
    digest = hashlib.sha256(repr(curriculum).encode())
    ends = accumulate(phase.steps for phase in curriculum.phases)
    for phase, end in zip(curriculum.phases, ends, strict=True):
        step = end - phase.steps
        scene = batches.world.scene("train", curriculum.first_video(step), max(SHORT_SCENE, phase.batches[0][1]))
        digest.update(repr(scene).encode())
        for number in range(step, min(step + BATCHES, end)):
            for part in _whole_numbers(batches[number]):
                digest.update(part)
    return digest.hexdigest()


def _whole_numbers(value: Any) -> Iterator[bytes]:
    """Yield names and whole numbers of a batch, in the order of its fields."""
    if is_dataclass(value):
        for field in fields(value):
            if field.name in ADDED_NAMES and getattr(value, field.name) is None:
                continue
            yield HASHED_NAMES.get(field.name, field.name).encode()
            yield from _whole_numbers(getattr(value, field.name))
    elif isinstance(value, Tensor | np.ndarray):
        numbers = np.asarray(value)
        if numbers.dtype.kind in "biu":
            yield repr(numbers.shape).encode() + numbers.astype("<i8").tobytes()
    elif isinstance(value, int | float | None):
        yield repr(value).encode()

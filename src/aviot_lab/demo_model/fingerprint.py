"""What a run is taught, as one number: other scenes, words, tokens, labels or phases give another."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from aviot_lab.demo_model.curriculum import Curriculum
from aviot_lab.demo_model.lessons import LENGTH, Lessons

LESSONS = 3  # of a phase: some leave videos as they are, some compress them


def data_fingerprint(curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 of the curriculum, and of each phase's first video and every whole number of its first lessons.

    Those are tokens, labels and ratio; scenes come from whole numbers too (`synthetic/chance.py`), so any machine works
    out the same. How a scene becomes pixels is no part of it.
    """
    lessons = Lessons(curriculum, tokenizer)
    digest = hashlib.sha256(repr(curriculum).encode())
    ends = accumulate(phase.steps for phase in curriculum.phases)
    for phase, end in zip(curriculum.phases, ends, strict=True):
        step = end - phase.steps
        scene = lessons.world.scene("train", curriculum.first_video(step), max(LENGTH, phase.batches[0][1]))
        digest.update(repr(scene).encode())
        for number in range(step, min(step + LESSONS, end)):
            for part in _whole_numbers(lessons[number]):
                digest.update(part)
    return digest.hexdigest()


def _whole_numbers(value: Any) -> Iterator[bytes]:
    """All there are in a lesson, in the order of its fields."""
    if is_dataclass(value):
        for field in fields(value):
            yield field.name.encode()
            yield from _whole_numbers(getattr(value, field.name))
    elif isinstance(value, Tensor | np.ndarray):
        numbers = np.asarray(value)
        if numbers.dtype.kind in "biu":
            yield repr(numbers.shape).encode() + numbers.astype("<i8").tobytes()
    elif isinstance(value, int | float | None):
        yield repr(value).encode()

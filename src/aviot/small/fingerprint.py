"""What a run is taught, as one number: another world, wording, tokenizer or curriculum gives another."""

import hashlib
import json
from itertools import accumulate

from transformers import PreTrainedTokenizerFast

from aviot.small.curriculum import Curriculum
from aviot.small.lessons import LENGTH, Lesson, Lessons


def data_fingerprint(curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 of the curriculum, and of each phase's first video and the tokens of its first lesson.

    Scenes come from whole numbers alone (`synthetic/chance.py`), so any machine works out the same.
    """
    lessons = Lessons(curriculum, tokenizer)
    digest = hashlib.sha256(repr(curriculum).encode())
    ends = accumulate(phase.steps for phase in curriculum.phases)
    for phase, end in zip(curriculum.phases, ends, strict=True):
        step = end - phase.steps
        scene = lessons.world.scene("train", curriculum.first_video(step), max(LENGTH, *phase.frames))
        digest.update(repr(scene).encode())
        lesson = lessons[step]
        if isinstance(lesson, Lesson):
            digest.update(json.dumps([lesson.ids.tolist(), lesson.labels.tolist()]).encode())
    return digest.hexdigest()

"""How many held-out questions a model answers right, family by family."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot.models.path import CompressorName
from aviot.small.learning import answer, encode
from aviot.small.lessons import LessonWriter, put
from aviot.synthetic import Split, World

Setting = tuple[CompressorName, float | None]  # how videos are compressed, and how far


@torch.no_grad()
def accuracy(
    model: AviotForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    world: World,
    *,
    split: Split,
    scenes: Sequence[int],
    frames: int,
    settings: Sequence[Setting],
    videos: int = 16,
) -> dict[Setting, dict[str, list[bool]]]:
    """For each way to compress, whether each question was answered right; one encoding serves all.

    Every question of the scenes is put once, open or with options in turn.
    """
    writer = LessonWriter(tokenizer)
    found: dict[Setting, dict[str, list[bool]]] = {setting: defaultdict(list) for setting in settings}
    for start in range(0, len(scenes), videos):
        drawn = [world.scene(split, number, frames) for number in scenes[start : start + videos]]
        asked = [(scene, question) for scene in drawn for question in world.questions(scene)]
        rows = [(scene, [put(q, bool((scene.index + place) % 2))]) for place, (scene, q) in enumerate(asked)]
        lesson = writer.conversations(rows)
        u = encode(model, lesson.plans, lesson.videos)
        for setting in settings:
            right = answer(model, u, lesson, compressor=setting[0], ratio=setting[1]).right.tolist()
            for (_, question), good in zip(asked, right, strict=True):
                found[setting][question.family].append(good)
    return found

"""How many held-out questions a model answers right, family by family."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from aviot.models import AviotForConditionalGeneration
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.demo_model.lessons import Lesson, LessonWriter, put
from aviot_lab.methods import CompressorName
from aviot_lab.world import Question, Scene, Split, World

Setting = tuple[CompressorName, float | None]  # how videos are compressed, and how far


@dataclass(frozen=True, eq=False)
class Sheet:
    """Every question about some scenes, put once: openly or with options in turn."""

    scenes: tuple[Scene, ...]
    questions: tuple[Question, ...]
    rows: list[tuple[Scene, list[tuple[str, str]]]]  # each question's scene, its words and its answer
    lesson: Lesson


def write_sheet(writer: LessonWriter, world: World, split: Split, numbers: Sequence[int], frames: int) -> Sheet:
    """The sheet of the scenes with these numbers."""
    scenes = tuple(world.scene(split, number, frames) for number in numbers)
    asked = [(scene, number, q) for scene in scenes for number, q in enumerate(world.questions(scene))]
    rows = [(scene, [put(question, bool((scene.index + number) % 2))]) for scene, number, question in asked]
    return Sheet(scenes, tuple(question for *_, question in asked), rows, writer.conversations(rows))


def write_sheets(
    writer: LessonWriter, world: World, split: Split, numbers: Sequence[int], frames: int, videos: int
) -> Iterator[Sheet]:
    """Sheets of so many videos each."""
    for start in range(0, len(numbers), videos):
        yield write_sheet(writer, world, split, numbers[start : start + videos], frames)


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
    """For each way to compress, whether each question was answered right; one encoding serves all."""
    found: dict[Setting, dict[str, list[bool]]] = {setting: defaultdict(list) for setting in settings}
    for sheet in write_sheets(LessonWriter(tokenizer), world, split, scenes, frames, videos):
        u = encode(model, sheet.lesson.plans, sheet.lesson.videos)
        for setting in settings:
            right = answer(model, u, sheet.lesson, compressor=setting[0], ratio=setting[1]).right.tolist()
            for question, good in zip(sheet.questions, right, strict=True):
                found[setting][question.family].append(good)
    return found

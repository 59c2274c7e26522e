"""Accuracy on held-out questions, by family."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from aviot_lab.demo_model.batches import BatchWriter, ConversationBatch, as_prompt
from aviot_lab.demo_model.families import family_of
from aviot_lab.methods import CompressorName
from aviot_lab.world import Question, Scene, Split, World

Setting = tuple[CompressorName, float | None]  # compressor and ratio


@dataclass(frozen=True, eq=False)
class QuestionBatch:
    """Every question about some scenes, asked once: open-ended and with options in turn."""

    scenes: tuple[Scene, ...]
    questions: tuple[Question, ...]
    asked: list[tuple[Scene, list[tuple[str, str]]]]  # scene, prompt and answer of each question
    conversations: ConversationBatch


def question_batch(
    writer: BatchWriter, world: World, split: Split, numbers: Sequence[int], frames: int
) -> QuestionBatch:
    """Return the questions about the scenes with these numbers."""
    scenes = tuple(world.scene(split, number, frames) for number in numbers)
    every = [(scene, number, q) for scene in scenes for number, q in enumerate(world.questions(scene))]
    asked = [
        (scene, [as_prompt(question, open_ended=bool((scene.index + number) % 2))]) for scene, number, question in every
    ]
    return QuestionBatch(scenes, tuple(question for *_, question in every), asked, writer.conversations(asked))


def question_batches(
    writer: BatchWriter, world: World, split: Split, numbers: Sequence[int], frames: int, videos: int
) -> Iterator[QuestionBatch]:
    """Yield batches of at most `videos` scenes each."""
    for start in range(0, len(numbers), videos):
        yield question_batch(writer, world, split, numbers[start : start + videos], frames)


@torch.no_grad()
def accuracy(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    world: World,
    *,
    split: Split,
    scenes: Sequence[int],
    frames: int,
    settings: Sequence[Setting],
    videos: int = 16,
) -> dict[Setting, dict[str, list[bool]]]:
    """Return for each setting and family which questions were answered right; videos are encoded once."""
    correct: dict[Setting, dict[str, list[bool]]] = {setting: defaultdict(list) for setting in settings}
    family = family_of(model, tokenizer)
    for batch in question_batches(BatchWriter(tokenizer, family.texts), world, split, scenes, frames, videos):
        u = family.encode(batch.conversations.plans, batch.conversations.videos)
        for setting in settings:
            found = family.answer(u, batch.conversations, compressor=setting[0], ratio=setting[1])
            right = found.right.tolist()
            for question, good in zip(batch.questions, right, strict=True):
                correct[setting][question.family].append(good)
    return correct

"""Training batches: scenes with conversations about them, as tokens. Workers make them; the trainer renders."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from aviot.backbones.llava_video.configuration import VIDEO_PLACEHOLDER
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.methods.aviot.schedule import sample_ratio
from aviot.scenes.draws import Draws
from aviot_lab.demo_model.answer_tasks import OptionFinder, Options, RecallTargets, recall_targets
from aviot_lab.demo_model.architecture import TOKEN_GRID, small_processor
from aviot_lab.demo_model.curriculum import Curriculum, Task
from aviot_lab.demo_model.dropping import draw_kept
from aviot_lab.demo_model.histories import Histories, histories_of
from aviot_lab.demo_model.masks import answer_spans
from aviot_lab.demo_model.naming import visible_names
from aviot_lab.demo_model.patches import Objects, objects_of
from aviot_lab.demo_model.relevance import QuestionFrames, question_frames
from aviot_lab.world import Question, RenderPlan, Scene, World, WorldConfig, descriptions, frame_descriptions, plan

if TYPE_CHECKING:
    from aviot_lab.demo_model.families import ConversationTexts

SHORT_SCENE = 16  # frames of the scenes that single frames are taken from: most objects are visible most of the time
DESCRIBED_OBJECTS = 2  # per video
MOST_DESCRIPTIONS = 3  # of a few frames
DESCRIPTION_WEIGHT = 0.2  # of a description's token in the loss: there are many more of them than of answers
UNCOMPRESSED_SHARE = 0.25  # of the steps of the last phase, as far as their videos have at most
MOST_UNCOMPRESSED_FRAMES = 64


@dataclass(frozen=True, eq=False)
class ConversationBatch:
    """Videos of one length and conversations about them: each is `prefix`, the video, and its row of `ids`.

    Rows are padded at their ends. The names of the fields are part of the data fingerprint.
    """

    plans: list[RenderPlan]  # of the videos
    videos: int
    prefix: Int[Tensor, "l"]
    ids: Int[Tensor, "B L"]
    labels: Int[Tensor, "B L"]
    weights: Float[Tensor, "B L"]  # of the tokens in the loss; 0 where they are not supervised
    question_mask: Bool[Tensor, "B L"]  # tokens of questions
    video: Int[Tensor, "B"]  # index of each row's video
    ratio: float | None  # None: uncompressed
    visible_names: Int8[Tensor, "V T names"]  # names of what each frame shows
    histories: Histories | None = None  # of every object by each frame
    recall: RecallTargets | None = None  # histories of the objects that questions are about
    options: Options | None = None  # of the questions, and which are right
    question_frames: QuestionFrames | None = None  # frames that questions are about, of uncompressed videos
    kept: Int[Tensor, "n"] | None = None  # flat indices of the tokens that stay, the same in all videos; None: all

    @property
    def whole(self) -> bool:
        """True if the decoder reads every token."""
        return self.ratio is None and self.kept is None


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """Single frames and the objects in them."""

    plans: list[RenderPlan]
    objects: Objects


@dataclass(frozen=True)
class Turn:
    """A prompt and its answer, and the question that it asks; None for a description.

    The answer of a `given` turn is context, not a label.
    """

    text: tuple[str, str]
    question: Question | None = None
    given: bool = False


class TrainingBatches(Dataset[ConversationBatch | FrameBatch]):
    """The batches of a curriculum, one per step.

    `texts` are the prompts of the model's family (default: the demo model's), and `merged_frames` is the number of
    frames that its encoder merges.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        tokenizer: PreTrainedTokenizerFast,
        texts: "ConversationTexts | None" = None,
        merged_frames: int = 1,
    ) -> None:
        self.curriculum, self.merged_frames = curriculum, merged_frames
        self.writer = BatchWriter(tokenizer, texts)
        self.finder = OptionFinder(tokenizer)
        self.world = World(WorldConfig(seed=curriculum.seed))
        self.practice = {
            phase.practised: World(WorldConfig(seed=curriculum.seed, families=phase.practised))
            for phase in curriculum.phases
            if phase.practice
        }

    def __len__(self) -> int:
        return self.curriculum.steps

    def __getitem__(self, step: int) -> ConversationBatch | FrameBatch:
        phase, _ = self.curriculum.at(step)
        draws = Draws("lesson", self.curriculum.seed, step)
        first = self.curriculum.first_video(step)
        videos, length = draws.pick(phase.batches)
        numbers = range(first, first + videos)
        if phase.task in ("patches", "pictures"):
            scenes = tuple(self.world.scene("train", number, SHORT_SCENE) for number in numbers)
            return self._patches(scenes, length, draws) if phase.task == "patches" else self._few(scenes, length, draws)
        practises = Draws("practice", self.curriculum.seed, step).uniform(0, 1) < phase.practice
        world = self.practice[phase.practised] if practises else self.world
        scenes = tuple(world.scene("train", number, length) for number in numbers)
        return self._videos(scenes, draws, phase.task)

    def _patches(self, scenes: Sequence[Scene], length: int, draws: Draws) -> FrameBatch:
        """Return random frames of every scene."""
        frames = [draws.below(SHORT_SCENE) for _ in range(length)]
        return FrameBatch(plan(scenes, frames)[0], objects_of(scenes, frames))

    def _few(self, scenes: Sequence[Scene], length: int, draws: Draws) -> ConversationBatch:
        """Return conversations about a few frames of every scene."""
        frames = sorted(draws.sample(range(SHORT_SCENE), length))
        rows = [(scene, self._frame_turns(scene, frames, draws)) for scene in scenes]
        return replace(self._batch(rows, frames=frames), histories=histories_of(scenes, frames))

    def _videos(self, scenes: Sequence[Scene], draws: Draws, task: Task) -> ConversationBatch:
        """Return conversations about all frames of every scene: uncompressed, at a random ratio, or with few tokens.

        Which tokens stay does not depend on the question, so all questions about a video are one conversation.
        """
        whole = task == "whole" or (
            draws.uniform(0, 1) < UNCOMPRESSED_SHARE and scenes[0].frames <= MOST_UNCOMPRESSED_FRAMES
        )
        ratio, kept = None, None
        if not whole and task == "compressed":
            ratio = sample_ratio(torch.Generator().manual_seed(draws.below(2**31)))
        elif not whole:
            kept = draw_kept(draws, -(-scenes[0].frames // self.merged_frames), TOKEN_GRID)
        rows = [(scene, turns) for scene in scenes for turns in self._conversations(scene, draws, task, whole)]
        batch = self._batch(rows, ratio)
        asked = [(scene, [turn.question for turn in turns]) for scene, turns in rows]
        return replace(
            batch,
            histories=histories_of(scenes) if whole else None,
            recall=recall_targets(batch.labels, asked, batch.options),
            question_frames=question_frames(batch.question_mask, batch.video, asked) if whole else None,
            kept=kept,
        )

    def _batch(
        self,
        rows: Sequence[tuple[Scene, Sequence[Turn]]],
        ratio: float | None = None,
        frames: Sequence[int] | None = None,
    ) -> ConversationBatch:
        """Return rows of turns as tokens; given answers get no labels, and descriptions weigh less than answers."""
        batch = self.writer.conversations([(s, [turn.text for turn in turns]) for s, turns in rows], ratio, frames)
        for labels, weights, (_, turns) in zip(batch.labels, batch.weights, rows, strict=True):
            for (first, end), turn in zip(list(answer_spans(labels.tolist())), turns, strict=True):
                if turn.given:
                    labels[first:end] = IGNORED
                    weights[first:end] = 0
                elif turn.question is None:
                    weights[first:end] = DESCRIPTION_WEIGHT
        return replace(batch, options=self.finder.find(batch.ids, batch.labels))

    def _frame_turns(self, scene: Scene, frames: Sequence[int], draws: Draws) -> list[Turn]:
        """Return descriptions of some frames, and a question whose answer is given and then to be chosen by letter."""
        open_ended, with_options = _forms(draws.pick(self.world.questions(scene)), draws)
        described = [Turn(text) for text in draws.shuffled(frame_descriptions(scene, frames))[:MOST_DESCRIPTIONS]]
        return [*described, replace(open_ended, given=True), with_options]

    def _conversations(self, scene: Scene, draws: Draws, task: Task, whole: bool) -> list[list[Turn]]:
        """Return one conversation per question, for which the video is compressed; otherwise a single one.

        That of a whole video also describes two objects, in random order. A question is asked with options (more
        often: there is more to learn), without, or without and then with: then the decoder learns to find the answer
        among the options apart from finding it in the video.
        """
        forms = [_forms(question, draws) for question in self.world.questions(scene)]
        if not whole:
            single = [draws.pick(form) for form in forms]
            return [[turn] for turn in single] if task == "compressed" else [single]
        described = descriptions(scene)
        groups = [[Turn(text)] for text in draws.sample(described, min(DESCRIBED_OBJECTS, len(described)))]
        groups += [draws.pick((form, form[:1], form[1:], form[1:])) for form in forms]
        return [[turn for group in draws.shuffled(groups) for turn in group]]


def as_prompt(question: Question, *, open_ended: bool) -> tuple[str, str]:
    """Return a question's prompt and its answer: in words, or the letter of one of the options."""
    return (question.open, question.answer) if open_ended else (question.multiple_choice, question.letter)


def _forms(question: Question, draws: Draws) -> list[Turn]:
    """Return a question open-ended, with or without the instruction on how to answer, and with options."""
    text = draws.pick((question.open, question.text)), question.answer
    return [Turn(text, question), Turn(as_prompt(question, open_ended=False), question)]


class BatchWriter:
    """Turns conversations about scenes into rows of tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, texts: "ConversationTexts | None" = None) -> None:
        self.processor = texts or small_processor(tokenizer)
        self.padding = tokenizer.pad_token_id

    def conversations(
        self,
        asked: Sequence[tuple[Scene, Sequence[tuple[str, str]]]],
        ratio: float | None = None,
        frames: Sequence[int] | None = None,
        *,
        sampled: bool = False,
    ) -> ConversationBatch:
        """Return a row per scene with its turns, about all or some frames; consecutive rows may share a scene.

        Some frames are a short video of their own, or with `sampled` the long video at their timestamps.
        """
        scenes = tuple({id(scene): scene for scene, _ in asked}.values())
        indices = {id(scene): index for index, scene in enumerate(scenes)}
        shown = range(scenes[0].frames) if frames is None else frames if sampled else range(len(frames))
        times = tuple(scenes[0].times[frame] for frame in shown)
        duration = (scenes[0].frames if sampled else len(times)) / scenes[0].fps
        encoded = [self.processor.encode_conversation(turns, duration, times) for _, turns in asked]
        start = encoded[0].ids.index(VIDEO_PLACEHOLDER) + 1  # after the video; the prefix is the same in all rows
        length = max(len(one.ids) for one in encoded) - start
        ids = torch.full((len(encoded), length), self.padding)
        labels = torch.full((len(encoded), length), IGNORED)
        question_mask = torch.zeros(len(encoded), length, dtype=torch.bool)
        for row, one in enumerate(encoded):
            tail = torch.tensor(one.ids[start:])
            ids[row, : len(tail)] = tail
            labels[row, : len(tail)] = torch.tensor(one.labels[start:])
            for first, end in one.questions:
                question_mask[row, first - start : end - start] = True
        return ConversationBatch(
            plans=plan(scenes, frames)[0],
            videos=len(scenes),
            prefix=torch.tensor(encoded[0].ids[: start - 1]),
            ids=ids,
            labels=labels,
            weights=(labels != IGNORED).float(),
            question_mask=question_mask,
            video=torch.tensor([indices[id(scene)] for scene, _ in asked]),
            ratio=ratio,
            visible_names=visible_names(scenes, frames),
        )

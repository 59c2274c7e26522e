"""Batches of scenes with what is asked about them, as tokens: made by worker processes, rendered by whoever learns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from aviot.backbones.llava_video.configuration import VIDEO_PLACEHOLDER
from aviot.backbones.llava_video.sequence import IGNORED
from aviot.methods.aviot.schedule import sample_ratio
from aviot_lab.demo_model.architecture import small_processor
from aviot_lab.demo_model.curriculum import Curriculum
from aviot_lab.demo_model.histories import Histories, histories_of
from aviot_lab.demo_model.naming import names_seen
from aviot_lab.demo_model.options import OptionFinder, Options
from aviot_lab.demo_model.patches import Objects, objects_of
from aviot_lab.demo_model.recall import Recalls, recalls_of
from aviot_lab.demo_model.relevance import Sought, sought_of
from aviot_lab.demo_model.spans import answer_spans
from aviot_lab.world import Plan, Question, Scene, World, WorldConfig, descriptions, plan, sights
from aviot_lab.world.chance import Draws

LENGTH = 16  # frames of the scenes that single frames are taken from: in short ones most is there most of the time
DESCRIBED = 2  # objects of a video
TOLD = 3  # things at most that are said of a few frames
TELLING = 0.2  # weight of a token of what is told unasked: there are many more of them than of answers
WHOLE = 0.25  # of the steps of the last phase that leave the video as it is,
MOST_WHOLE = 64  # unless it has more frames


@dataclass(frozen=True, eq=False)
class Lesson:
    """Videos of one length and conversations about them: each is `before`, the video, and its row of `ids`.

    A row ends in padding, which nothing before it sees and nothing supervises.
    """

    plans: list[Plan]  # how the videos are drawn
    videos: int
    before: Int[Tensor, "l"]
    ids: Int[Tensor, "B L"]
    labels: Int[Tensor, "B L"]
    weights: Float[Tensor, "B L"]  # of the tokens in the loss; 0 where nothing is supervised
    asks: Bool[Tensor, "B L"]  # tokens of questions
    video: Int[Tensor, "B"]  # which each row is about
    ratio: float | None  # None leaves the videos as they are
    seen: Int8[Tensor, "V T names"]  # what each frame shows
    histories: Histories | None = None  # what every object has done by each frame, where that is taught
    recalls: Recalls | None = None  # whom its questions are about
    options: Options | None = None  # which of their options are right
    sought: Sought | None = None  # and which frames they are about, of videos left as they are


@dataclass(frozen=True, eq=False)
class Pictures:
    """Single frames and what is in them."""

    plans: list[Plan]
    objects: Objects


@dataclass(frozen=True)
class Turn:
    """What is asked and answered, and the question that it puts; none if it is a description.

    What is `given` is there to be read, and is no answer to learn.
    """

    said: tuple[str, str]
    question: Question | None = None
    given: bool = False


class Lessons(Dataset[Lesson | Pictures]):
    """The lesson of each step of a curriculum."""

    def __init__(self, curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast) -> None:
        self.curriculum = curriculum
        self.writer = LessonWriter(tokenizer)
        self.finder = OptionFinder(tokenizer)
        self.world = World(WorldConfig(seed=curriculum.seed))
        self.practice = {
            phase.practised: World(WorldConfig(seed=curriculum.seed, families=phase.practised))
            for phase in curriculum.phases
            if phase.practice
        }

    def __len__(self) -> int:
        return self.curriculum.steps

    def __getitem__(self, step: int) -> Lesson | Pictures:
        phase, _ = self.curriculum.at(step)
        draws = Draws("lesson", self.curriculum.seed, step)
        first = self.curriculum.first_video(step)
        videos, length = draws.pick(phase.batches)
        numbers = range(first, first + videos)
        if phase.task == "patches":
            scenes = tuple(self.world.scene("train", number, LENGTH) for number in numbers)
            frames = [draws.below(LENGTH) for _ in range(length)]
            return Pictures(plan(scenes, frames)[0], objects_of(scenes, frames))
        if phase.task == "pictures":
            frames = sorted(draws.sample(range(LENGTH), length))
            scenes = tuple(self.world.scene("train", number, LENGTH) for number in numbers)
            rows = [(scene, self._looks(scene, frames, draws)) for scene in scenes]
            return replace(self._lesson(rows, frames=frames), histories=histories_of(scenes, frames))
        practises = Draws("practice", self.curriculum.seed, step).uniform(0, 1) < phase.practice
        world = self.practice[phase.practised] if practises else self.world
        scenes = tuple(world.scene("train", number, length) for number in numbers)
        whole = phase.task == "whole" or (draws.uniform(0, 1) < WHOLE and length <= MOST_WHOLE)
        ratio = None if whole else sample_ratio(torch.Generator().manual_seed(draws.below(2**31)))
        rows = [(scene, turns) for scene in scenes for turns in self._conversations(scene, draws, whole)]
        lesson = self._lesson(rows, ratio)
        asked = [(scene, [turn.question for turn in turns]) for scene, turns in rows]
        return replace(
            lesson,
            histories=histories_of(scenes) if whole else None,
            recalls=recalls_of(lesson.labels, asked, lesson.options),
            sought=sought_of(lesson.asks, lesson.video, asked) if whole else None,
        )

    def _lesson(
        self,
        rows: Sequence[tuple[Scene, Sequence[Turn]]],
        ratio: float | None = None,
        frames: Sequence[int] | None = None,
    ) -> Lesson:
        """Rows of turns as tokens; what is given is not learnt, and what is told weighs less than answers."""
        lesson = self.writer.conversations([(s, [turn.said for turn in turns]) for s, turns in rows], ratio, frames)
        for labels, weights, (_, turns) in zip(lesson.labels, lesson.weights, rows, strict=True):
            for (first, end), turn in zip(list(answer_spans(labels.tolist())), turns, strict=True):
                if turn.given:
                    labels[first:end] = IGNORED
                    weights[first:end] = 0
                elif turn.question is None:
                    weights[first:end] = TELLING
        return replace(lesson, options=self.finder.find(lesson.ids, lesson.labels))

    def _looks(self, scene: Scene, frames: Sequence[int], draws: Draws) -> list[Turn]:
        """What some frames show; and a question whose answer is given, which they may not show, to choose it."""
        openly, chosen = _forms(draws.pick(self.world.questions(scene)), draws)
        seen = [Turn(said) for said in draws.shuffled(sights(scene, frames))[:TOLD]]
        return [*seen, replace(openly, given=True), chosen]

    def _conversations(self, scene: Scene, draws: Draws, whole: bool) -> list[list[Turn]]:
        """Every question in a conversation of its own, since a video is compressed for it; of a whole video, in one.

        In that one are descriptions of two objects too, and all comes in any order. A question is put with options
        (more often: there is more to learn), without, or without and then with: the second time its answer is to be
        found among the options, which is to be learnt apart from finding it in the video.
        """
        forms = [_forms(question, draws) for question in self.world.questions(scene)]
        if not whole:
            return [[draws.pick(form)] for form in forms]
        told = descriptions(scene)
        groups = [[Turn(said)] for said in draws.sample(told, min(DESCRIBED, len(told)))]
        groups += [draws.pick((form, form[:1], form[1:], form[1:])) for form in forms]
        return [[turn for group in draws.shuffled(groups) for turn in group]]


def put(question: Question, openly: bool) -> tuple[str, str]:
    """A question as it is put, and its answer: in words, or the letter of one of the options."""
    return (question.open, question.answer) if openly else (question.multiple_choice, question.letter)


def _forms(question: Question, draws: Draws) -> list[Turn]:
    """A question put openly, with or without a word on how to answer, and put with options."""
    said = draws.pick((question.open, question.text)), question.answer
    return [Turn(said, question), Turn(put(question, openly=False), question)]


class LessonWriter:
    """Conversations as rows of tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.processor = small_processor(tokenizer)
        self.padding = tokenizer.pad_token_id

    def conversations(
        self,
        asked: Sequence[tuple[Scene, Sequence[tuple[str, str]]]],
        ratio: float | None = None,
        frames: Sequence[int] | None = None,
        *,
        sampled: bool = False,
    ) -> Lesson:
        """A row for each scene with its turns, about all of it or some frames; neighbours may share a scene.

        Some frames are a short video of their own, or with `sampled` the long one at their times.
        """
        scenes = tuple({id(scene): scene for scene, _ in asked}.values())
        places = {id(scene): place for place, scene in enumerate(scenes)}
        at = range(scenes[0].frames) if frames is None else frames if sampled else range(len(frames))
        times = tuple(scenes[0].times[place] for place in at)
        duration = (scenes[0].frames if sampled else len(times)) / scenes[0].fps
        said = [self.processor.encode_conversation(turns, duration, times) for _, turns in asked]
        place = said[0].ids.index(VIDEO_PLACEHOLDER)  # the same in all, since what stands before it is
        length = max(len(one.ids) for one in said) - place - 1
        ids = torch.full((len(said), length), self.padding)
        labels = torch.full((len(said), length), IGNORED)
        asks = torch.zeros(len(said), length, dtype=torch.bool)
        for row, one in enumerate(said):
            tail = torch.tensor(one.ids[place + 1 :])
            ids[row, : len(tail)] = tail
            labels[row, : len(tail)] = torch.tensor(one.labels[place + 1 :])
            for first, end in one.questions:
                asks[row, first - place - 1 : end - place - 1] = True
        return Lesson(
            plans=plan(scenes, frames)[0],
            videos=len(scenes),
            before=torch.tensor(said[0].ids[:place]),
            ids=ids,
            labels=labels,
            weights=(labels != IGNORED).float(),
            asks=asks,
            video=torch.tensor([places[id(scene)] for scene, _ in asked]),
            ratio=ratio,
            seen=names_seen(scenes, frames),
        )

"""The world: scenes, questions and batches, each from seed, split and number alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from aviot_lab.world.chance import Draws
from aviot_lab.world.config import WorldConfig, check_frames
from aviot_lab.world.families import FAMILIES
from aviot_lab.world.question import Question, ask
from aviot_lab.world.render import Clips, render
from aviot_lab.world.scene import Actor, Plot, Scene
from aviot_lab.world.split import Split, check_split
from aviot_lab.world.stage import NoRoom, Stage
from aviot_lab.world.surroundings import draw_camera, draw_distractor, draw_shots


@dataclass(frozen=True, eq=False)
class Batch:
    """Scenes, their pixels, and every question that they were made for: at least one a scene, its main one first."""

    scenes: tuple[Scene, ...]
    clips: Clips
    questions: tuple[tuple[Question, ...], ...]


class World:
    """Draws scenes. Neither the batch a scene is drawn in, nor the device, nor what was drawn before, changes it."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config

    def scene(self, split: Split, index: int, frames: int | None = None) -> Scene:
        """The scene of that number, of a length of the config's choice or of `frames` frames.

        Its main plot is of each family in turn; the others are of any other families, as far as they find room.
        """
        check_split(split)
        if index < 0:
            raise ValueError(f"index must be at least 0, got {index}")
        config = self.config
        key = (config.seed, split, index)
        length = Draws("length", *key).pick(config.frames) if frames is None else check_frames(frames)
        families = self._families(Draws("families", *key), index)
        stage = Stage(Draws("stage", *key, length), split, length)
        if "shape" in families:
            stage.set_colour_aside()
        actors: list[Actor] = []
        plots: list[Plot] = []
        for family in families:
            trial = stage.trial(Draws(family, *key, length))
            try:
                story = FAMILIES[family].build(trial)
            except NoRoom:
                continue
            stage = trial
            plots.append(story.plot(family, len(actors)))
            actors += story.actors
        actors += self._distractors(stage.trial(Draws("distractors", *key, length)))
        return Scene(
            seed=config.seed,
            split=split,
            index=index,
            frames=length,
            fps=config.fps,
            size=config.size,
            actors=tuple(actors),
            shots=draw_shots(Draws("shots", *key, length), length),
            camera=draw_camera(Draws("camera", *key, length), length, config.noise),
            plots=tuple(plots),
        )

    def question(self, scene: Scene, number: int = 0) -> Question:
        """The scene's question of that number: 0 is of its main plot; past the last plot, other words."""
        return ask(scene, number)

    def questions(self, scene: Scene) -> tuple[Question, ...]:
        """One question a plot."""
        return tuple(ask(scene, number) for number in range(len(scene.plots)))

    def batch(
        self, split: Split, position: int, size: int, device: torch.device | str = "cpu", frames: int | None = None
    ) -> Batch:
        """Scenes `position` to `position + size - 1`, rendered, with their questions.

        All are of one length: `frames`, or the one that the config gives the first of them.
        """
        length = self.scene(split, position).frames if frames is None else frames
        scenes = tuple(self.scene(split, index, length) for index in range(position, position + size))
        return Batch(scenes, render(scenes, device), tuple(self.questions(scene) for scene in scenes))

    def stream(
        self, split: Split, size: int, device: torch.device | str = "cpu", position: int = 0, frames: int | None = None
    ) -> Iterator[Batch]:
        """Batches without end from a position on; a run that is resumed goes on where it stopped."""
        while True:
            yield self.batch(split, position, size, device, frames)
            position += size

    def _families(self, draws: Draws, index: int) -> list[str]:
        families = self.config.families
        main = families[index % len(families)]
        others = [family for family in families if family != main]
        return [main, *draws.sample(others, min(self.config.plots - 1, len(others)))]

    def _distractors(self, stage: Stage) -> list[Actor]:
        actors: list[Actor] = []
        for _ in range(stage.draws.below(self.config.distractors + 1)):
            try:
                actors.append(draw_distractor(stage))
            except NoRoom:
                break
        return actors

"""The world: its configuration, and scenes, questions and batches that follow from seed, split and number alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from aviot.scenes import Actor, Clips, Draws, Plot, Scene, SceneWithQuestions, Split, render
from aviot.utils.values import as_tuple, as_whole, counts, require_positive, require_whole
from aviot_lab.world.layout import Layout, NoRoom
from aviot_lab.world.questions import FAMILIES, Question, ask
from aviot_lab.world.surroundings import draw_camera, draw_distractor, draw_shots
from aviot_lab.world.words import check_split

MIN_FRAMES = 16  # room for four events of two frames each
GRID = 27  # patches along a side of the encoder's grid
DEMO_FRAMES = 64


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """Configuration of a world, checked when it is made.

    `size` is the side of a frame in pixels; 108 is four per patch of a 27 by 27 grid, the fewest at which stripes and
    dots of a small object can still be distinguished. A scene's length is one of `frames`, at `fps` frames per second;
    two, so that sampling a written file at 2 fps gives every frame back. A scene has up to `plots` events of different
    `families`, and up to `distractors` objects that no question is about. `noise` is the largest standard deviation of
    the sensor noise, in levels of 255.
    """

    seed: int = 0
    size: int = 4 * GRID
    frames: Sequence[int] = (64,)
    fps: float = 2.0
    families: Sequence[str] = tuple(FAMILIES)
    plots: int = 3
    distractors: int = 2
    noise: float = 8.0

    def __post_init__(self) -> None:
        require_whole(self, "size", "plots")
        require_positive(self, "fps")
        for name, value in {"seed": self.seed, "distractors": self.distractors}.items():
            whole = as_whole(value)
            if whole is None or not 0 <= whole < 2**63:
                raise ValueError(f"{name} must be a whole number from 0 to 2**63 - 1, got {value!r}")
            object.__setattr__(self, name, whole)
        if not 0 <= self.noise <= 64:
            raise ValueError(f"noise must lie in [0, 64] levels, got {self.noise!r}")
        if self.size < 2 * GRID or self.size % 2:
            raise ValueError(
                f"size must be even and at least {2 * GRID} pixels, got {self.size}; the default is {4 * GRID}"
            )
        object.__setattr__(self, "frames", tuple(check_frames(count) for count in counts("frames", self.frames)))
        object.__setattr__(self, "families", as_tuple("families", self.families))
        unknown = [family for family in self.families if family not in FAMILIES]
        if not self.frames:
            raise ValueError(f"frames must have at least one number of frames, got {self.frames!r}")
        if unknown or not self.families:
            raise ValueError(f"families must be some of {', '.join(FAMILIES)}, got {self.families!r}")


def check_frames(count: int) -> int:
    """Return the number of frames; raise ValueError if a scene's events would not fit."""
    if count < MIN_FRAMES:
        raise ValueError(f"a scene must have at least {MIN_FRAMES} frames, or events run into each other; got {count}")
    return count


@dataclass(frozen=True, eq=False)
class WorldBatch:
    """Scenes, their pixels, and the questions of each scene: at least one, that of its main plot first."""

    scenes: tuple[Scene, ...]
    clips: Clips
    questions: tuple[tuple[Question, ...], ...]


class World:
    """A generator of scenes. A scene depends neither on its batch nor on the device nor on earlier draws."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config

    def scene(self, split: Split, index: int, frames: int | None = None) -> Scene:
        """Return the scene of that number, of a length that the config chooses or of `frames` frames.

        Families take turns as the main plot; further plots are of other families, as far as there is room.
        """
        check_split(split)
        if index < 0:
            raise ValueError(f"index must be at least 0, got {index}")
        config = self.config
        key = (config.seed, split, index)
        length = Draws("length", *key).pick(config.frames) if frames is None else check_frames(frames)
        families = self._families(Draws("families", *key), index)
        layout = Layout(Draws("stage", *key, length), split, length)
        if "shape" in families:
            layout.set_colour_aside()
        actors: list[Actor] = []
        plots: list[Plot] = []
        for family in families:
            trial = layout.trial(Draws(family, *key, length))
            try:
                story = FAMILIES[family].build(trial)
            except NoRoom:
                continue
            layout = trial
            plots.append(story.plot(family, len(actors)))
            actors += story.actors
        actors += self._distractors(layout.trial(Draws("distractors", *key, length)))
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
        """Return the scene's question of that number: 0 is the main plot's; past the last plot, in other words."""
        return ask(scene, number)

    def questions(self, scene: Scene) -> tuple[Question, ...]:
        """Return one question per plot."""
        return tuple(ask(scene, number) for number in range(len(scene.plots)))

    def batch(
        self, split: Split, position: int, size: int, device: torch.device | str = "cpu", frames: int | None = None
    ) -> WorldBatch:
        """Return scenes `position` to `position + size - 1`, rendered, with their questions.

        All have the same length: `frames`, or the length of the first.
        """
        length = self.scene(split, position).frames if frames is None else frames
        scenes = tuple(self.scene(split, index, length) for index in range(position, position + size))
        return WorldBatch(scenes, render(scenes, device), tuple(self.questions(scene) for scene in scenes))

    def stream(
        self, split: Split, size: int, device: torch.device | str = "cpu", position: int = 0, frames: int | None = None
    ) -> Iterator[WorldBatch]:
        """Yield batches without end from a position on, so that a resumed run continues where it stopped."""
        while True:
            yield self.batch(split, position, size, device, frames)
            position += size

    def _families(self, draws: Draws, index: int) -> list[str]:
        families = self.config.families
        main = families[index % len(families)]
        others = [family for family in families if family != main]
        return [main, *draws.sample(others, min(self.config.plots - 1, len(others)))]

    def _distractors(self, layout: Layout) -> list[Actor]:
        actors: list[Actor] = []
        for _ in range(layout.draws.below(self.config.distractors + 1)):
            try:
                actors.append(draw_distractor(layout))
            except NoRoom:
                break
        return actors


def demo_scene(number: int) -> SceneWithQuestions:
    """Return a scene of the test split with its first two questions, as `aviot demo` shows it.

    Raises ValueError for a scene with one question.
    """
    world = World(WorldConfig(frames=(DEMO_FRAMES,)))
    scene = world.scene("test", number)
    questions = world.questions(scene)[:2]
    if len(questions) < 2:
        raise ValueError(f"scene {number} has one question, and two are asked; choose another number")
    return SceneWithQuestions(scene, tuple((question.text, question.answer) for question in questions))

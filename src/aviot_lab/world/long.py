"""Long videos of the world: scenes one after another, one event in each, and every event can be asked about later.

Scenes of one video share no shapes, so that a question that names one is about one event however long ago it was.
Families whose answers depend on the place of an event in the whole video, or that name an object by its colour or its
brevity alone, are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import UInt8
from torch import Tensor

from aviot.scenes import Scene, Split, render
from aviot_lab.world.questions import FAMILIES, Question, ask
from aviot_lab.world.world import World, WorldConfig

RELATIVE = ("shape", "brief", "when", "distant")
LASTING = tuple(family for family in FAMILIES if family not in RELATIVE)
"""Families whose questions have one answer in a long video."""

TRIES = 400  # scenes looked at for one video
MOST_SHAPES = 3  # that one scene may use up: there are ten


@dataclass(frozen=True)
class LongVideo:
    """Scenes one after another, each with the question of its event; frames are numbered through."""

    scenes: tuple[Scene, ...]
    questions: tuple[Question, ...]

    @property
    def frames(self) -> int:
        """The number of frames."""
        return sum(scene.frames for scene in self.scenes)

    def start(self, event: int) -> int:
        """Return the number of an event's first frame."""
        return sum(scene.frames for scene in self.scenes[:event])

    def evidence_end(self, event: int) -> int:
        """Return the number of the frame after the last that shows an event's answer; the whole scene may show it."""
        return self.start(event) + max(
            (each.stop for each in self.questions[event].evidence), default=self.scenes[event].frames
        )

    def render(self, event: int) -> UInt8[Tensor, "T H W 3"]:
        """Draw the frames of one scene."""
        return render([self.scenes[event]]).frames[0]


def long_video(
    split: Split, number: int, *, events: int = 6, frames: int = 333, families: Sequence[str] = LASTING, seed: int = 0
) -> LongVideo:
    """Return the long video of that number: scenes of the world that share no shapes, drawn in turn.

    It has fewer events than asked for if no more scenes fit among the first `TRIES`.
    """
    world = World(WorldConfig(seed=seed, frames=(frames,), families=tuple(families), plots=1, distractors=0))
    scenes: list[Scene] = []
    used: set[str] = set()
    for index in range(number * TRIES, (number + 1) * TRIES):
        scene = world.scene(split, index)
        shapes = {actor.shape for actor in scene.actors}
        taken = {plot.plots[0].family for plot in scenes}
        left = events - len(scenes) - 1
        fits = len(shapes) <= MOST_SHAPES and not shapes & used and len(used | shapes) + left <= 10
        if fits and scene.plots and scene.plots[0].family not in taken:
            scenes.append(scene)
            used |= shapes
        if len(scenes) == events:
            break
    return LongVideo(tuple(scenes), tuple(ask(scene, 0) for scene in scenes))

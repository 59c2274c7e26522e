"""Families of questions, and the questions about a scene in the forms in which they can be asked."""

from collections.abc import Callable
from dataclasses import dataclass

from aviot.scenes import Draws, Evidence, Plot, Scene
from aviot_lab.world import changes, looks, motion
from aviot_lab.world.grammar import LETTERS, SHORT, with_options, worded, wordings
from aviot_lab.world.layout import Layout
from aviot_lab.world.story import Story


@dataclass(frozen=True)
class Family:
    """The rule that makes a family's plots; `temporal` if no single frame helps to answer, which tests check."""

    build: Callable[[Layout], Story]
    temporal: bool


FAMILIES: dict[str, Family] = {
    "existence": Family(looks.existence, temporal=False),
    "colour": Family(looks.colour, temporal=False),
    "shape": Family(looks.shape, temporal=False),
    "where": Family(looks.where, temporal=False),
    "brief": Family(looks.brief, temporal=False),
    "touched": Family(looks.touched, temporal=False),
    "passing": Family(looks.passing, temporal=False),
    "count": Family(changes.count, temporal=True),
    "repetition": Family(changes.repetition, temporal=True),
    "changed": Family(changes.changed, temporal=True),
    "became": Family(changes.became, temporal=True),
    "when": Family(changes.when, temporal=True),
    "order": Family(changes.order, temporal=True),
    "neighbour": Family(changes.neighbour, temporal=True),
    "distant": Family(changes.distant, temporal=True),
    "direction": Family(motion.direction, temporal=True),
    "turning": Family(motion.turning, temporal=True),
    "following": Family(motion.following, temporal=True),
    "swap": Family(motion.swap, temporal=True),
}


@dataclass(frozen=True)
class Question:
    """A question, its answer, and the frames that show it.

    `candidates` are the possible answers, equally likely given the question alone; `options` are four of them in random
    order (all, if there are fewer). `combination` and `wording` occur in no other split. `subjects` and the actors of
    `evidence` are indices in `Scene.actors`.
    """

    family: str
    text: str
    answer: str
    candidates: tuple[str, ...]
    options: tuple[str, ...]
    combination: tuple[str, ...]
    wording: tuple[str, int, int]
    evidence: tuple[Evidence, ...]
    subjects: tuple[int, ...]

    @property
    def letter(self) -> str:
        """Letter of the right option."""
        return LETTERS[self.options.index(self.answer)]

    @property
    def multiple_choice(self) -> str:
        """Text of the question with its options; the answer is `letter`."""
        return with_options(self.text, self.options)

    @property
    def open(self) -> str:
        """Text of the question without options; the answer is `answer`."""
        return f"{self.text}\n{SHORT}"

    @property
    def temporal(self) -> bool:
        """True if no single frame helps to answer it."""
        return FAMILIES[self.family].temporal


def ask(scene: Scene, number: int) -> Question:
    """Return the scene's question of that number: one per plot, then the same plots again in other words."""
    if number < 0:
        raise ValueError(f"number must be at least 0, got {number}")
    plot = scene.plots[number % len(scene.plots)]
    draws = Draws("question", scene.seed, scene.split, scene.index, scene.frames, number)
    opening, core = draws.pick(wordings(scene.split))
    return Question(
        family=plot.family,
        text=worded(plot.family, (opening, core), dict(plot.slots)),
        answer=plot.answer,
        candidates=plot.candidates,
        options=_options(plot, draws),
        combination=plot.combination,
        wording=(plot.family, opening, core),
        evidence=plot.evidence,
        subjects=plot.subjects,
    )


def _options(plot: Plot, draws: Draws) -> tuple[str, ...]:
    others = draws.sample([word for word in plot.candidates if word != plot.answer], min(3, len(plot.candidates) - 1))
    return tuple(draws.shuffled([plot.answer, *others]))

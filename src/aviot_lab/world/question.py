"""A question about a scene, in the forms it can be put."""

from dataclasses import dataclass

from aviot_lab.world.chance import Draws
from aviot_lab.world.families import FAMILIES
from aviot_lab.world.grammar import LETTERS, SHORT, with_options, worded, wordings
from aviot_lab.world.scene import Evidence, Plot, Scene


@dataclass(frozen=True)
class Question:
    """A question, its answer, and what shows it.

    `candidates` are the answers it could have, equally likely for whoever knows the question alone; `options` four of
    them (all, where there are fewer), the answer at any letter. `combination` and `wording` are its split's own.
    `subjects` and the actors of `evidence` count in `Scene.actors`.
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
        """The right option's letter."""
        return LETTERS[self.options.index(self.answer)]

    @property
    def multiple_choice(self) -> str:
        """As it is put with options; the answer is `letter`."""
        return with_options(self.text, self.options)

    @property
    def open(self) -> str:
        """As it is put without; the answer is `answer`."""
        return f"{self.text}\n{SHORT}"

    @property
    def temporal(self) -> bool:
        """Whether no single frame helps to answer it."""
        return FAMILIES[self.family].temporal


def ask(scene: Scene, number: int) -> Question:
    """The scene's question of that number: one a plot, then the same plots again in other words."""
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

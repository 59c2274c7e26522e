"""What the small model is taught, phase after phase: everything follows from the number of the step."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Task = Literal["patches", "pictures", "whole", "compressed"]


@dataclass(frozen=True)
class Phase:
    """Some steps of one kind.

    * "patches": encoder and projector learn what every patch of single frames shows, and its name;
    * "pictures": from here on the encoder stays as it is; the decoder learns to speak of one frame and of a few, to
      tell what changed between them, and to choose an option;
    * "whole": it learns to follow things through all frames of a video, and to answer from them;
    * "compressed": everything but the encoder learns to answer from compressed frames, at one of the paper's ratios,
      or now and then from all of them.
    """

    task: Task
    steps: int
    batches: Sequence[tuple[int, int]]  # one of them a step: so many videos, so many frames of each
    rates: tuple[float, float]  # learning rate at the beginning and at the end
    practice: float = 0.0  # of the steps that ask of these families alone: those that are slow to be learnt
    practised: tuple[str, ...] = ()

    @property
    def videos(self) -> int:
        """The most that a step takes."""
        return max(videos for videos, _ in self.batches)


@dataclass(frozen=True)
class Curriculum:
    """Phases after each other."""

    phases: tuple[Phase, ...]
    seed: int = 0
    warmup: int = 100  # steps over which the learning rate comes up

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    def at(self, step: int) -> tuple[Phase, int]:
        """The phase of a step, and the step's number in it."""
        if not 0 <= step < self.steps:
            raise ValueError(f"step must lie in 0 to {self.steps - 1}, got {step}")
        ends = list(accumulate(phase.steps for phase in self.phases))
        number = next(i for i, end in enumerate(ends) if step < end)
        return self.phases[number], step - ends[number] + self.phases[number].steps

    def begin_of(self, task: Task) -> int:
        """The first step of a task; after the last step if it is in none."""
        return next((step for step in range(self.steps) if self.at(step)[0].task == task), self.steps)

    def first_video(self, step: int) -> int:
        """The number of a step's first video: no two steps share one."""
        phase, within = self.at(step)
        start, total = step - within, within * phase.videos
        for earlier in self.phases:
            if start <= 0:
                break
            total += earlier.steps * earlier.videos
            start -= earlier.steps
        return total

    def rate(self, step: int) -> float:
        """The learning rate of a step: along a line through its phase, less in the first steps of all."""
        phase, within = self.at(step)
        start, end = phase.rates
        return (start + (end - start) * within / phase.steps) * min(1.0, (step + 1) / self.warmup)


SLOW = ("neighbour", "count", "repetition", "turning")  # families that are learnt last

CURRICULUM = Curriculum(
    (
        Phase("patches", 900, batches=((32, 8),), rates=(2e-3, 1e-3)),
        Phase("pictures", 1500, batches=((64, 1), (64, 2), (64, 4), (64, 8)), rates=(1.5e-3, 1.5e-3)),
        Phase("whole", 2000, batches=((48, 16),), rates=(1.5e-3, 1.3e-3)),
        Phase(
            "whole",
            2000,
            batches=((96, 16), (48, 32), (24, 64), (24, 64)),
            rates=(1.3e-3, 8e-4),
            practice=0.5,
            practised=(*SLOW, "became"),
        ),
        Phase(
            "compressed",
            2400,
            batches=((16, 64), (16, 64), (32, 32), (64, 16), (5, 224)),
            rates=(8e-4, 0.0),
            practice=0.5,
            practised=(*SLOW, "when", "order"),
        ),
    )
)

"""The training curriculum: phases of steps; task, batch size and learning rate follow from the step's number.

The names of these classes and fields are part of the data fingerprint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

Task = Literal["patches", "pictures", "whole", "compressed", "dropped"]
FEWER_TOKENS: tuple[Task, ...] = ("compressed", "dropped")  # tasks that teach the decoder to read fewer tokens


@dataclass(frozen=True)
class Phase:
    """Consecutive steps with the same task.

    * "patches": encoder and projector learn to classify the patches of single frames, and to match them with names;
    * "pictures": the encoder is frozen from here on; the decoder learns to describe one frame and a few, what changed
      between them, and to choose an option;
    * "whole": the decoder learns to track objects through all frames of a video, and to answer from them;
    * "compressed": everything but the encoder learns to answer from compressed frames, at one of the paper's ratios,
      in some steps from uncompressed ones;
    * "dropped": the same from videos with tokens missing at random, over space and time, instead of compressed frames.
    """

    task: Task
    steps: int
    batches: Sequence[tuple[int, int]]  # (videos, frames per video), one of them per step
    rates: tuple[float, float]  # learning rate at the beginning and at the end
    practice: float = 0.0  # share of the steps with questions of the practised families only
    practised: tuple[str, ...] = ()  # families that are learned slowly

    @property
    def videos(self) -> int:
        """The largest number of videos in a step."""
        return max(videos for videos, _ in self.batches)


@dataclass(frozen=True)
class Curriculum:
    """A sequence of phases."""

    phases: tuple[Phase, ...]
    seed: int = 0
    warmup: int = 100  # steps of linear warm-up

    @property
    def steps(self) -> int:
        """Number of steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    def at(self, step: int) -> tuple[Phase, int]:
        """Return the phase of a step, and the step's number in it."""
        if not 0 <= step < self.steps:
            raise ValueError(f"step must lie in 0 to {self.steps - 1}, got {step}")
        ends = list(accumulate(phase.steps for phase in self.phases))
        number = next(i for i, end in enumerate(ends) if step < end)
        return self.phases[number], step - ends[number] + self.phases[number].steps

    def begin_of(self, task: Task) -> int:
        """Return the first step of a task; the number of all steps if no phase has it."""
        return next((step for step in range(self.steps) if self.at(step)[0].task == task), self.steps)

    def begin_of_fewer(self) -> int:
        """Return the first step of a task with fewer tokens; the number of all steps if no phase has one."""
        return min(self.begin_of(task) for task in FEWER_TOKENS)

    def first_video(self, step: int) -> int:
        """Return the number of a step's first video; no two steps share a video."""
        phase, within = self.at(step)
        start, total = step - within, within * phase.videos
        for earlier in self.phases:
            if start <= 0:
                break
            total += earlier.steps * earlier.videos
            start -= earlier.steps
        return total

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: linear in its phase, times the warm-up."""
        phase, within = self.at(step)
        start, end = phase.rates
        return (start + (end - start) * within / phase.steps) * min(1.0, (step + 1) / self.warmup)


SLOW = ("neighbour", "count", "repetition", "turning")  # families that are learned last

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

YARDSTICK = replace(CURRICULUM, phases=(*CURRICULUM.phases[:-1], replace(CURRICULUM.phases[-1], task="dropped")))
"""The twin of the demo model, which never sees mixtures: random dropping takes the place of compression."""

ADAPTED = Curriculum(
    (Phase("dropped", 140, batches=((4, 16), (4, 16), (2, 32), (1, 64)), rates=(3e-4, 0.0)),),
    warmup=20,
)
"""A short fine-tuning of finished weights, for one CPU core."""

CURRICULA = {"demo": CURRICULUM, "yardstick": YARDSTICK, "adapted": ADAPTED}

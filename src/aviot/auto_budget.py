"""The automatic budget: questions asked with few tokens first, and with more where the answer is not sure enough."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from aviot.budget import DEFAULT_QUALITY, AutoBudget, Budget
from aviot.utils.files import write_durably
from aviot.utils.values import as_number, as_whole

CALIBRATION_FILE = "auto_budget.json"
"""The file of a checkpoint that holds its calibration."""

MOST_BYTES = 2**16  # of that file


class Answered(Protocol):
    """An answer that may tell its probability."""

    @property
    def probability(self) -> float | None:
        """The answer's probability; None if the engine does not tell."""


P = TypeVar("P")
A = TypeVar("A", bound=Answered)


@dataclass(frozen=True)
class Calibration:
    """The quality that keeps a model's accuracy, found on held-out questions.

    With the budgets `min` and `max` and this `quality`, accuracy on `questions` questions was at most `loss` below that
    of `max`, as a share, at the one-sided `confidence`; `target` is the loss that was allowed.
    """

    quality: float
    min: str
    max: str
    target: float
    confidence: float
    loss: float
    questions: int

    def __post_init__(self) -> None:
        AutoBudget(Budget.parse(self.min), Budget.parse(self.max), quality=self.quality)
        for name in ("target", "confidence", "loss"):
            value = as_number(getattr(self, name))
            if value is None or not -1 <= value <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, got {getattr(self, name)!r}")
        if as_whole(self.questions) is None or self.questions < 1:
            raise ValueError(f"questions must be a whole number of at least 1, got {self.questions!r}")

    @property
    def budgets(self) -> tuple[Budget, Budget]:
        """The smallest and the largest budget that the quality holds for."""
        return Budget.parse(self.min), Budget.parse(self.max)

    def save(self, folder: Path) -> None:
        """Write the calibration into a checkpoint's folder."""
        write_durably(folder / CALIBRATION_FILE, json.dumps(asdict(self), indent=2).encode() + b"\n")

    @classmethod
    def of(cls, folder: Path) -> "Calibration | None":
        """Return the calibration of a checkpoint's folder, None if it has none; raise ValueError for a damaged one."""
        path = folder / CALIBRATION_FILE
        if not path.is_file():
            return None
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            return cls(**json.loads(path.read_bytes()))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a calibration ({error}); calibrate again, or delete it") from error


PROBABILITY_DIGITS = 4  # decimals of a probability in reports


@dataclass(frozen=True)
class Step:
    """One try of an automatic budget: the budget, the visual tokens that were read, and the answer's probability."""

    budget: str
    tokens: int
    probability: float

    @classmethod
    def of(cls, budget: Budget, tokens: int, probability: float | None) -> "Step":
        """Return the step of a try; a probability that is not known counts as none."""
        return cls(str(budget), tokens, round(probability or 0.0, PROBABILITY_DIGITS))


@dataclass(frozen=True)
class Chosen:
    """The quality of an automatic budget, and why it is that one."""

    quality: float
    reason: str

    def explained(self, tried: Sequence[Step], steps: Sequence[Budget]) -> str:
        """Return why an automatic budget stopped where it did."""
        last = tried[-1]
        if last.probability >= self.quality:
            enough = f"at least {self.quality:g} ({self.reason})"
            return f"the answer's probability at {last.budget} was {last.probability:.2f}, and {enough} is enough"
        if len(tried) < len(steps):
            return f"the total of tokens for all questions did not allow {steps[len(tried)]}"
        return f"{last.budget} is the largest budget; below {self.quality:g} an answer is asked again ({self.reason})"

    @classmethod
    def of(cls, auto: AutoBudget, calibration: Calibration | None) -> "Chosen":
        """Return the requested quality, else the calibrated one for the same budgets, else the default."""
        if auto.quality is not None:
            return cls(auto.quality, "as requested")
        if calibration is None:
            return cls(DEFAULT_QUALITY, "the default: this model has no calibration")
        if auto.budgets != calibration.budgets:
            measured = f"{calibration.min} and {calibration.max}"
            return cls(DEFAULT_QUALITY, f"the default: this model was calibrated for other budgets, {measured}")
        return cls(calibration.quality, f"calibrated on {calibration.questions:,} questions")


def check_total(total: int | None, least: int) -> None:
    """Raise ValueError for a total that does not allow every question its smallest budget."""
    if total is not None and total < least:
        raise ValueError(
            f"a total of {total:,} tokens is less than the {least:,} of all questions at the smallest budget; "
            "give more, a smaller budget to begin with, or fewer questions"
        )


def escalate(
    ask: Callable[[Sequence[P], Budget], Sequence[A]],
    prompts: Sequence[P],
    costs: Mapping[Budget, int],
    quality: float,
    total: int | None = None,
) -> list[list[A]]:
    """Return the answers to each prompt, from the smallest budget to the accepted one.

    `costs` has the tokens of each budget, smallest first. Prompts whose answers are not sure enough go on together to
    the next budget, the least sure ones first as long as the `total` lasts.
    """
    found: list[list[A]] = [[] for _ in prompts]
    going, left = list(range(len(prompts))), total
    for budget, cost in costs.items():
        if left is not None:
            going = sorted(going, key=lambda number: _sureness(found[number]))[: left // cost]
            left -= cost * len(going)
        if not going:
            break
        going.sort()
        for number, answer in zip(going, ask([prompts[number] for number in going], budget), strict=True):
            found[number].append(answer)
        going = [number for number in going if _sureness(found[number]) < quality]
    return found


def _sureness(tries: Sequence[Answered]) -> float:
    """Return the probability of the latest answer, 0 before the first one."""
    if not tries:
        return 0.0
    probability = tries[-1].probability
    if probability is None:
        raise ValueError(
            "this engine does not tell how probable its answers are, which an automatic budget needs; "
            "give a ratio, or use the transformers engine"
        )
    return probability

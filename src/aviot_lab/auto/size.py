"""Sizes of a run with automatic budgets, its ratios, and the automatic budgets that it calibrates."""

import math
from dataclasses import dataclass, replace

from aviot.budget import AutoBudget, Budget
from aviot_lab.reproduce.size import FEWEST_FULL, MOST

RATIOS = (20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.0)
"""The ratios at which every question is asked, from few tokens to all of them."""

REFERENCE = 2.0
"""The ratio whose accuracy an automatic budget has to keep."""

TARGET = 0.005
"""Largest allowed loss of accuracy against the largest budget, as a share."""

PAIRS = ((10.0, 2.0), (20.0, 2.0), (10.0, 1.0))
"""Smallest and largest ratio of the automatic budgets; the first is the package's default."""

CALIBRATED_ON = 1.5  # questions of the validation split per question of the test split


@dataclass(frozen=True, kw_only=True)
class AutoSize:
    """Questions, frames and ratios of a run."""

    calibration: int  # questions of the validation split, at least; scenes are taken whole
    questions: int  # of the test split, likewise
    frames: int
    videos: int  # per batch
    ratios: tuple[float, ...] = RATIOS


SIZES: dict[str, AutoSize] = {
    "full": AutoSize(calibration=6000, questions=4000, frames=64, videos=16),
    "small": AutoSize(calibration=30, questions=20, frames=64, videos=2),
}


def size_named(name: str, questions: int | None, frames: int | None = None) -> AutoSize:
    """Return the size of that name, with another number of test questions or frames if one is given.

    The number of validation questions is in proportion to that of test questions.
    """
    if name not in SIZES:
        raise ValueError(f"setting must be one of {', '.join(SIZES)}, got {name!r}")
    size = replace(SIZES[name], frames=frames or SIZES[name].frames)
    if questions is None:
        return size
    least = FEWEST_FULL if name == "full" else 1
    if not least <= questions <= MOST:
        raise ValueError(f"questions must be {least} to {MOST} in the {name} setting, got {questions}")
    return replace(size, questions=questions, calibration=math.ceil(CALIBRATED_ON * questions))


def key_of(ratio: float) -> str:
    """Return the name of a ratio in files; 1 is the uncompressed video."""
    return f"{ratio:g}"


def budget_of(ratio: float) -> Budget:
    """Return a ratio as a budget."""
    return Budget(keep=1.0) if ratio == 1 else Budget(ratio=ratio)


def auto_of(pair: tuple[float, float], quality: float | None = None) -> AutoBudget:
    """Return the automatic budget between two ratios."""
    small, large = map(budget_of, pair)
    return AutoBudget(small, large, quality=quality)

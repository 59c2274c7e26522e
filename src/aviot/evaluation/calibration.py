"""Calibration of automatic budgets: the least probability of an answer that keeps the accuracy of the larger budget.

It is read off a finished run that asked the same questions under a small and a large budget: what an automatic budget
would have answered follows from both answers and the first one's probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aviot.auto_budget import Calibration
from aviot.evaluation.config import Setting
from aviot.evaluation.intervals import difference_interval
from aviot.evaluation.results import has_failed
from aviot.utils.journal import Row

QUALITIES = tuple(round(float(quality), 3) for quality in np.arange(0.999, 0.499, -0.001))
"""Probabilities that are tried, from the largest down."""

CONFIDENCE = 0.975
"""One-sided confidence of the bound on the loss: the upper end of a two-sided interval of 95 %."""

LEAST_QUESTIONS = 200
"""Fewest questions: with fewer, no loss of half a point can be excluded."""


@dataclass(frozen=True)
class Point:
    """The outcome that an automatic budget of one quality would have had: share of right answers, mean tokens read."""

    quality: float
    accuracy: float
    loss: float  # of accuracy, against the larger budget
    most: float  # upper bound of the loss
    again: float  # share of the questions that were asked again
    tokens: float


@dataclass(frozen=True)
class Pairs:
    """The same questions under both budgets, in one order."""

    small: list[Row]
    large: list[Row]

    @classmethod
    def of(cls, rows: Sequence[Row], small: Setting, large: Setting) -> "Pairs":
        """Return the questions that have a score under both settings; raise ValueError if one is missing."""
        by_setting = {name: {row["item"]: row for row in rows if row["setting"] == name} for name in _names(rows)}
        for setting in (small, large):
            if setting.name not in by_setting:
                raise ValueError(
                    f"the run has the settings {', '.join(by_setting)} and not {setting.name}; evaluate that one too "
                    "(a finished run is resumed with further ratios)"
                )
        first, second = by_setting[small.name], by_setting[large.name]
        items = [item for item in first if item in second and None not in (_right(first[item]), _right(second[item]))]
        if any("probability" not in first[item] and not has_failed(first[item]) for item in items):
            raise ValueError("the run's rows have no probabilities of answers; evaluate again with this version")
        if len(items) < LEAST_QUESTIONS:
            raise ValueError(
                f"{len(items)} questions have a score under both budgets, and fewer than {LEAST_QUESTIONS} cannot show "
                "a loss of half a point; evaluate more, thousands if you can"
            )
        return cls([first[item] for item in items], [second[item] for item in items])

    @cached_property
    def probability(self) -> NDArray[np.float64]:
        """The probabilities of the answers under the small budget; 0 of those that failed."""
        return np.array([row.get("probability", 0.0) for row in self.small])

    @cached_property
    def right(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The right answers under both budgets, as 0 and 1."""
        small, large = ([float(bool(_right(row))) for row in rows] for rows in (self.small, self.large))
        return np.array(small), np.array(large)

    @cached_property
    def tokens(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The tokens that were read under both budgets."""
        small, large = ([float(row.get("tokens_after", 0)) for row in rows] for rows in (self.small, self.large))
        return np.array(small), np.array(large)

    @cached_property
    def videos(self) -> list[Any]:
        """The questions' videos."""
        return [row["video"] for row in self.small]


def calibrate(rows: Sequence[Row], small: Setting, large: Setting, target: float) -> tuple[Calibration, list[Point]]:
    """Return the calibration for a largest allowed loss, and the curve down to its quality and one step beyond.

    Qualities are tried from the largest down; the last one before the bound of the loss exceeds the target is taken.
    A fixed order that ends at the first failure keeps the confidence, however many are tried.
    """
    if not 0 < target < 1:
        raise ValueError(f"the target is the largest loss as a share, such as 0.005 for half a point, got {target!r}")
    pairs = Pairs.of(rows, small, large)
    curve: list[Point] = []
    for quality in QUALITIES:
        curve.append(_point(pairs, quality))
        if curve[-1].most > target:
            break
    held = [point for point in curve if point.most <= target]
    if not held:
        raise ValueError(
            f"even asking again below {QUALITIES[0]:g} could lose up to {100 * curve[0].most:.2f} points (of "
            f"{len(pairs.small)} questions); evaluate more questions, or allow a larger loss"
        )
    chosen = held[-1]
    found = Calibration(
        chosen.quality, small.text, large.text, target, CONFIDENCE, round(chosen.most, 5), len(pairs.small)
    )
    return found, curve


def _point(pairs: Pairs, quality: float) -> Point:
    sure = pairs.probability >= quality
    (before, after), (first, second) = pairs.right, pairs.tokens
    taken = np.where(sure, before, after)
    lost = after - taken
    interval = difference_interval(lost.tolist(), pairs.videos)
    most = 1.0 if interval is None else interval[1]  # one video says nothing of others
    tokens = np.where(sure, first, first + second).mean()
    return Point(quality, taken.mean(), lost.mean(), most, 1 - sure.mean(), float(tokens))


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["setting"] for row in rows))


def _right(row: Row) -> bool | None:
    return row.get("judge", row).get("correct")

"""Figures of a run with automatic budgets: calibrations, accuracy over what is read, and the oracle's curve."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from aviot.auto_budget import Calibration
from aviot.budget import DEFAULT_QUALITY
from aviot.evaluation.calibration import QUALITIES, Point, calibrate
from aviot.evaluation.config import Setting
from aviot.methods.registry import DEFAULT
from aviot_lab.auto.size import PAIRS, REFERENCE, TARGET, AutoSize, auto_of, budget_of, key_of
from aviot_lab.reproduce.journaling import Record
from aviot_lab.reproduce.statistics import Answered, Figures, mean_with_interval

DRAWN = QUALITIES[::10]
"""Qualities of the automatic budgets' curves."""

Pair = tuple[float, float]


class AutoSummary:
    """The answers of both splits, at every ratio."""

    def __init__(self, size: AutoSize, validation: Sequence[Record], test: Sequence[Record], seed: int) -> None:
        self.size, self.seed, self.validation = size, seed, validation
        self.answered = Answered.of(test, seed)
        self.probability = {
            key: np.array([value for record in test for value in record["probability"][key]])
            for key in map(key_of, size.ratios)
        }
        self.tokens = {key: test[0]["tokens"][key] for key in map(key_of, size.ratios)}
        self.supports = {key_of(ratio): budget_of(ratio).frames(size.frames, 1) for ratio in size.ratios}

    def figures(self) -> Figures:
        """Return the figures as plain data."""
        calibrations = [self._calibrated(pair) for pair in PAIRS]
        lines = [self._fixed(ratio) for ratio in self.size.ratios]
        return {
            "reference": key_of(REFERENCE),
            "calibrations": calibrations,
            "fixed": lines,
            "auto": [line for pair, found in zip(PAIRS, calibrations, strict=True) for line in self._auto(pair, found)],
            "curves": {_name(pair): [self._point(pair, quality) for quality in DRAWN] for pair in PAIRS},
            "oracle": self._oracle(),
            "families": self._families(),
        }

    def _calibrated(self, pair: Pair) -> Figures:
        """Calibrate an automatic budget on the validation split with the package's own code."""
        small, large = (Setting.of(DEFAULT, budget_of(ratio)) for ratio in pair)
        about: Figures = {"budget": _name(pair), "min": small.text, "max": large.text, "target": TARGET}
        try:
            found, curve = calibrate(self._rows(pair), small, large, TARGET)
        except ValueError as error:
            return about | {"refused": str(error)}
        return about | {"calibration": asdict(found), "curve": [_plain(point) for point in curve]}

    def _rows(self, pair: Pair) -> list[dict[str, Any]]:
        """Return the validation answers under both budgets as rows of an evaluation."""
        return [
            {
                "setting": Setting.of(DEFAULT, budget_of(ratio)).name,
                "item": f"{scene}-{batch}-{place}",
                "video": scene,
                "correct": bool(record["right"][key_of(ratio)][place]),
                "probability": record["probability"][key_of(ratio)][place],
                "tokens_after": record["tokens"][key_of(ratio)],
            }
            for ratio in pair
            for batch, record in enumerate(self.validation)
            for place, scene in enumerate(record["scenes"])
        ]

    def _fixed(self, ratio: float) -> Figures:
        key = key_of(ratio)
        share = self.answered.share(key)
        return {"ratio": ratio, "supports": self.supports[key], "tokens": self.tokens[key], **share}

    def _auto(self, pair: Pair, calibration: Figures) -> list[Figures]:
        """Return an automatic budget at the default quality and at the calibrated one, with its differences."""
        qualities = {"default": DEFAULT_QUALITY}
        if "calibration" in calibration:
            qualities["calibrated"] = calibration["calibration"]["quality"]
        lines = []
        for name, quality in qualities.items():
            key = f"{_name(pair)} {name}"
            taken, again = self._taken(pair, quality)
            self.answered.right[key] = taken.tolist()
            point = self._point(pair, quality)
            lines.append(
                {
                    "title": key,
                    **self.answered.share(key),
                    **{name: point[name] for name in ("quality", "again", "supports", "tokens")},
                    "against": [self.answered.difference(key, key_of(ratio)) for ratio in self.size.ratios],
                    "above_fixed": self._above_fixed(taken, point["supports"]),
                    "families_again": self._again_by_family(again),
                }
            )
        return lines

    def _taken(self, pair: Pair, quality: float) -> tuple[Any, Any]:
        """Return whether the accepted answer to each question is right, and which questions were asked again."""
        small, large = map(key_of, pair)
        again = self.probability[small] < quality
        right = {key: np.array(self.answered.right[key]) for key in (small, large)}
        return np.where(again, right[large], right[small]), again

    def _point(self, pair: Pair, quality: float) -> Figures:
        small, large = map(key_of, pair)
        taken, again = self._taken(pair, quality)
        share = float(again.mean())
        return {
            "quality": quality,
            "accuracy": float(taken.mean()),
            "again": share,
            "supports": self.supports[small] + share * self.supports[large],
            "tokens": self.tokens[small] + share * self.tokens[large],
        }

    def _above_fixed(self, taken: Any, supports: float) -> Figures:
        """Return accuracy minus that of fixed ratios which read as many supports in the mean.

        Between two ratios it is that of using the smaller one for a share of the questions, chosen blindly.
        """
        fixed = sorted((self.supports[key_of(ratio)], key_of(ratio)) for ratio in self.size.ratios)
        for (low, small), (high, large) in pairwise(fixed):
            if low <= supports <= high and low < high:
                part = (supports - low) / (high - low)
                right = (np.array(self.answered.right[key]) for key in (small, large))
                first, second = right
                apart = taken - (1 - part) * first - part * second
                mean = mean_with_interval(apart.tolist(), self.answered.scenes, self.seed)
                return {"between": [small, large], **mean}
        return {"between": [], **mean_with_interval([], [], self.seed)}

    def _oracle(self) -> Figures:
        """Return accuracy over supports if the fewest that give a right answer were known; they alone are read.

        Where none does, or only more than the curve's point allows, the fewest of all are read.
        """
        keys = [key_of(ratio) for ratio in sorted(self.size.ratios, reverse=True)]
        least, right = self.supports[keys[0]], np.zeros(len(self.answered.scenes), dtype=bool)
        costs, points = np.full(len(right), least), []
        for key in keys:
            mine = np.array(self.answered.right[key]) == 1
            costs = np.where(mine & ~right, self.supports[key], costs)
            right |= mine
            points.append({"largest": key, "accuracy": float(right.mean()), "supports": float(costs.mean())})
        wanted = self.answered.share(key_of(REFERENCE))["accuracy"]
        return {"points": points, "supports_at_reference": _crossing(points, wanted)}

    def _families(self) -> dict[str, dict[str, Figures]]:
        """Return accuracy by family of the fixed ratios and the automatic budgets."""
        return {key: self.answered.by_family(key) for key in self.answered.right}

    def _again_by_family(self, again: Any) -> dict[str, float]:
        families = np.array(self.answered.families)
        return {name: float(again[families == name].mean()) for name in sorted(set(self.answered.families))}


def best_calibration(figures: Figures) -> Calibration | None:
    """Return the calibration of the package's default budgets, None if the questions did not allow one."""
    found = figures["calibrations"][0].get("calibration")
    return None if found is None else Calibration(**found)


def _name(pair: Pair) -> str:
    """Return the name of an automatic budget in reports."""
    return auto_of(pair).label if pair != PAIRS[0] else "auto"


def _crossing(points: Sequence[Figures], accuracy: float) -> float | None:
    """Return the supports at which a rising curve reaches an accuracy, None if it does not."""
    if points[0]["accuracy"] >= accuracy:
        return points[0]["supports"]
    for before, after in pairwise(points):
        if after["accuracy"] >= accuracy:
            part = (accuracy - before["accuracy"]) / (after["accuracy"] - before["accuracy"])
            return before["supports"] + part * (after["supports"] - before["supports"])
    return None


def _plain(point: Point) -> Figures:
    return {name: float(value) for name, value in asdict(point).items()}

"""Accuracies, and differences between rows that answered the same questions, with 95 % intervals."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aviot.evaluation.intervals import Interval, bootstrap, paired, wilson
from aviot_lab.reproduce.evaluator import Record

Figures = dict[str, Any]


@dataclass
class Answered:
    """Every row's answers to the same questions, in one order; the seed is the bootstrap's."""

    seed: int
    scenes: list[int] = field(default_factory=list)
    families: list[str] = field(default_factory=list)
    right: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Record], seed: int) -> "Answered":
        """Return the answers of all batches."""
        whole = cls(seed)
        for record in records:
            whole.scenes += record["scenes"]
            whole.families += record["families"]
            for key, right in record["right"].items():
                whole.right.setdefault(key, []).extend(right)
        return whole

    def share(self, key: str, places: Sequence[int] | None = None) -> Figures:
        """Return a row's accuracy.

        The interval is Wilson's, which assumes independent questions, widened to the bootstrap's over scenes.
        """
        places = self._places(places)
        right = [self.right[key][place] for place in places]
        good = int(sum(right))
        return {
            "row": key,
            "right": good,
            "questions": len(right),
            "accuracy": good / len(right) if right else None,
            "interval": self._widest(wilson(good, len(right)), right, places),
        }

    def by_family(self, key: str) -> dict[str, Figures]:
        """Return a row's accuracy per family."""
        return {
            family: self.share(key, [place for place, each in enumerate(self.families) if each == family])
            for family in sorted(set(self.families))
        }

    def difference(self, key: str, other: str, places: Sequence[int] | None = None) -> Figures:
        """Return the first row's accuracy minus the second's.

        Questions are paired. The interval is Agresti and Min's, which assumes independent questions, widened to the
        bootstrap's over scenes with all their questions.
        """
        places = self._places(places)
        apart = [self.right[key][place] - self.right[other][place] for place in places]
        return {
            "row": key,
            "against": other,
            "questions": len(apart),
            "difference": sum(apart) / len(apart) if apart else None,
            "interval": self._widest(paired(apart.count(1), apart.count(-1), len(apart)), apart, places),
        }

    def in_company(self) -> list[int]:
        """Return the indices of questions whose video has another question."""
        questions = Counter(self.scenes)
        return [place for place, scene in enumerate(self.scenes) if questions[scene] > 1]

    def _widest(self, alone: Interval | None, values: Sequence[float], places: Sequence[int]) -> Interval | None:
        """Return the interval over questions, widened to the one over scenes."""
        grouped = bootstrap(values, [self.scenes[place] for place in places], self.seed)
        if alone is None or grouped is None:
            return alone
        return min(alone[0], grouped[0]), max(alone[1], grouped[1])

    def _places(self, places: Sequence[int] | None) -> Sequence[int]:
        return range(len(self.scenes)) if places is None else places


def mean_with_interval(values: Sequence[float], groups: Sequence[int], seed: int) -> Figures:
    """Return a mean over questions or pairs, and its interval over scenes."""
    return {
        "count": len(values),
        "mean": sum(values) / len(values) if values else None,
        "interval": bootstrap(values, groups, seed),
    }


def usages(records: Sequence[Record]) -> Iterator[tuple[str, str, list[float], list[int]]]:
    """Yield ratio, quantity, its value at every question, and the questions' scenes."""
    scenes = [scene for record in records for scene in record["scenes"]]
    for ratio in records[0]["usage"] if records else ():
        for name in records[0]["usage"][ratio]:
            yield ratio, name, [value for record in records for value in record["usage"][ratio][name]], scenes

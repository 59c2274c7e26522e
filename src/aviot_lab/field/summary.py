"""Figures of one model in a field experiment: accuracy, tokens and times of every method, and paired differences."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from aviot import methods
from aviot_lab.field.size import MEAN_OF, FieldSetting, FieldSize
from aviot_lab.reproduce.journaling import Record
from aviot_lab.reproduce.statistics import Answered, Figures, mean_with_interval


class FieldSummary:
    """The answers of one model, and the method that all others are compared with."""

    def __init__(self, records: Sequence[Record], size: FieldSize, reference: str, seed: int) -> None:
        self.records, self.size, self.reference, self.seed = records, size, reference, seed
        self.refused: dict[str, str] = {}
        for record in records:
            self.refused |= {key: reason for key, reason in record["refused"].items() if key not in self.refused}
        answered = [
            record | {"right": {key: good for key, good in record["right"].items() if key not in self.refused}}
            for record in records
        ]
        self.answered = Answered.of(answered, seed)

    def figures(self, names: Sequence[str]) -> Figures:
        """Return the figures as plain data."""
        whole = FieldSetting("none")
        lines = [self._line(FieldSetting(name, keep)) for name in names for keep in self.size.keeps]
        return {
            "uncompressed": self._line(whole),
            "lines": lines,
            "differences": [one for name in names for one in self._differences(name)],
            "means": self._means(names),
            "families": {
                line["row"]: self.answered.by_family(line["row"])
                for line in (self._line(whole), *lines)
                if "refused" not in line
            },
        }

    def _line(self, setting: FieldSetting) -> Figures:
        """Return a setting's accuracy, mean numbers of tokens and median times; or why it was refused."""
        method = methods.get(setting.method)
        about: Figures = {
            "row": setting.key,
            "method": setting.method,
            "title": method.title or method.name,
            "keep": setting.keep,
            "inside": method.inside is not None,
        }
        if setting.key in self.refused:
            return about | {"refused": self.refused[setting.key]}
        counts = {
            name: statistics.fmean(count for record in self.records for count in record[name][setting.key])
            for name in ("entered", "left")
        }
        return about | self.answered.share(setting.key) | counts | {"milliseconds": self._times(setting.key)}

    def _times(self, key: str) -> dict[str, float | None]:
        """Return medians over batches; None where a method acts inside the decoder alone."""
        every = [record["milliseconds"][key] for record in self.records]
        return {
            name: None if every[0][name] is None else statistics.median(one[name] for one in every)
            for name in ("method", "first token")
        }

    def _differences(self, name: str) -> Iterator[Figures]:
        """Yield the reference minus a method at each share that both took."""
        for keep in self.size.keeps if name != self.reference else ():
            ours, theirs = FieldSetting(self.reference, keep).key, FieldSetting(name, keep).key
            if ours in self.answered.right and theirs in self.answered.right:
                yield {"method": name, "keep": keep, **self.answered.difference(ours, theirs)}

    def _means(self, names: Sequence[str]) -> list[Figures]:
        """Return mean accuracies over some shares, and the reference minus each; best first."""
        keeps = [keep for keep in MEAN_OF if keep in self.size.keeps]
        means = {name: found for name in names if (found := self._mean(name, keeps)) is not None}
        ours = means.get(self.reference)
        lines = []
        for name, mean in means.items():
            line: Figures = {"method": name, "keeps": keeps} | self._interval(mean)
            if ours is not None and name != self.reference:
                line["difference"] = self._interval([a - b for a, b in zip(ours, mean, strict=True)])
            lines.append(line)
        return sorted(lines, key=lambda line: -line["mean"])

    def _mean(self, name: str, keeps: Sequence[float]) -> list[float] | None:
        """Return the mean over shares of right answers to every question; None if a share was refused."""
        rows: list[Any] = [self.answered.right.get(FieldSetting(name, keep).key) for keep in keeps]
        if not rows or any(row is None for row in rows):
            return None
        return [statistics.fmean(each) for each in zip(*rows, strict=True)]

    def _interval(self, values: Sequence[float]) -> Figures:
        return mean_with_interval(values, self.answered.scenes, self.seed)

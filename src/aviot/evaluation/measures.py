"""Scores of each setting, differences between settings, and groups of items to report by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aviot.evaluation.intervals import Interval, difference_interval, share_interval
from aviot.evaluation.item import Item
from aviot.evaluation.results import has_failed
from aviot.utils.journal import Row

MULTIPLE_CHOICE, EXACT_MATCH = "multiple choice", "exact match"
JUDGED_CORRECT, JUDGED_SCORE = "judge: correct", "judge: score, 0 to 5"
UNCOMPRESSED = "none"
"""The setting that others are compared with, where it was asked; else it is the first."""


MAX_GROUPS = 50
"""Groups that a report can show; a column of text with more values, such as an id, is refused."""

MAX_NUMBERS = 12
"""Different numbers that are a group each; where there are more, quartiles are the groups."""

PART = "part"
MISSING = "(none)"


@dataclass(frozen=True)
class Scored:
    """The values that one setting got in one measure, by item; values lie between 0 and `scale`."""

    setting: str
    name: str
    values: Mapping[int, float]
    videos: Mapping[int, str]  # of each item
    failed: int = 0
    unjudged: int = 0
    scale: float = 1.0

    @classmethod
    def of(cls, name: str, rows: Sequence[Row], values: Iterable[float], **counts: float) -> "Scored":
        """Return the values of one setting's rows; rows that failed are counted."""
        numbers = {row["item"]: float(value) for row, value in zip(rows, values, strict=True)}
        videos = {row["item"]: row["video"] for row in rows}
        failed = sum(map(has_failed, rows))
        return cls(rows[0]["setting"], name, numbers, videos, failed, **counts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Measure:
    """One figure of one setting over `counted` items of `videos` videos.

    `failed` of the items count as wrong, `unjudged` others are not counted. `interval` is None where it cannot be
    estimated: for no items, and for several items of one video.
    """

    setting: str
    name: str
    value: float | None
    interval: Interval | None
    counted: int
    failed: int
    unjudged: int = 0
    videos: int = 0


@dataclass(frozen=True)
class Difference:
    """A setting's mean minus that of the setting `against`, over the items that both have a value for."""

    setting: str
    against: str
    name: str
    value: float
    interval: Interval | None
    counted: int
    videos: int


def scored(rows: Sequence[Row]) -> list[Scored]:
    """Return the measures of one setting's rows; failed rows are in them, as wrong."""
    found = []
    for kind, name in (("choice", MULTIPLE_CHOICE), ("open", EXACT_MATCH)):
        mine = [row for row in rows if row["kind"] == kind and row["correct"] is not None]
        if mine:
            found.append(Scored.of(name, mine, [row["correct"] for row in mine]))
        if kind == "open" and any("judge" in row for row in mine):
            found += _judged(mine)
    return found


def _judged(rows: Sequence[Row]) -> list[Scored]:
    known = [row for row in rows if has_failed(row) or "correct" in row.get("judge", {})]
    unjudged = len(rows) - len(known)
    if not known:
        names = ((JUDGED_CORRECT, 1.0), (JUDGED_SCORE, 5.0))
        return [Scored(rows[0]["setting"], name, {}, {}, 0, unjudged, scale) for name, scale in names]
    verdicts = [row.get("judge", {"correct": False, "score": 0.0}) for row in known]
    return [
        Scored.of(JUDGED_CORRECT, known, [verdict["correct"] for verdict in verdicts], unjudged=unjudged),
        Scored.of(JUDGED_SCORE, known, [verdict["score"] for verdict in verdicts], unjudged=unjudged, scale=5.0),
    ]


def measure(of: Scored) -> Measure:
    """Return the mean of what was scored, and its interval."""
    values, videos = list(of.values.values()), list(of.videos.values())
    mean = sum(values) / len(values) if values else None
    interval = share_interval(values, videos, scale=of.scale)
    return Measure(of.setting, of.name, mean, interval, len(values), of.failed, of.unjudged, len(set(videos)))


def differences(found: Sequence[Scored]) -> list[Difference]:
    """Return what each setting gained over the uncompressed one, or over the first, in each measure."""
    made = []
    for name in dict.fromkeys(each.name for each in found):
        mine = [each for each in found if each.name == name]
        base = next((each for each in mine if each.setting == UNCOMPRESSED), mine[0])
        made += [each for other in mine if other is not base and (each := _difference(other, base)) is not None]
    return made


def _difference(of: Scored, base: Scored) -> Difference | None:
    """Return the paired difference; None where no item has a value for both."""
    both = [item for item in of.values if item in base.values]
    if not both:
        return None
    gains, videos = [of.values[item] - base.values[item] for item in both], [of.videos[item] for item in both]
    interval = difference_interval(gains, videos, scale=of.scale)
    mean = sum(gains) / len(gains)
    return Difference(of.setting, base.setting, of.name, mean, interval, len(both), len(set(videos)))


def columns_of(items: Sequence[Item]) -> list[str]:
    """Return the columns that items can be grouped by, in order of appearance; parts of a benchmark are one."""
    found = dict.fromkeys(name for item in items for name in item.columns)
    return [*found, *([PART] if PART not in found and any(item.part for item in items) else [])]


def check_columns(items: Sequence[Item], columns: Sequence[str]) -> None:
    """Refuse columns that no item has, or that have too many values to be groups."""
    there = columns_of(items)
    for column in columns:
        if column not in there:
            listed = f"they have {', '.join(map(repr, there))}" if there else "they have no further columns"
            raise ValueError(f"no item has the column {column!r}; {listed}")
        group_items(items, column)


def group_items(items: Sequence[Item], column: str) -> dict[str, list[int]]:
    """Return the places of the items in each group, by its label; items without a value come last.

    Numbers are sorted, and taken by quartile where there are more than MAX_NUMBERS of them. Other values are groups in
    order of appearance.
    """
    values = {place: value for place, item in enumerate(items) if (value := _value(item, column)) is not None}
    numbers = {place: float(value) for place, value in values.items() if _is_number(value)}
    if numbers and len(numbers) == len(values):
        groups = _by_number(numbers)
    else:
        groups = {}
        for place, value in values.items():
            groups.setdefault(_label(value), []).append(place)
    if len(groups) > MAX_GROUPS:
        raise ValueError(
            f"the column {column!r} has {len(groups):,} different values; at most {MAX_GROUPS} can be reported"
        )
    rest = [place for place in range(len(items)) if place not in values]
    if rest:
        groups.setdefault(MISSING, []).extend(rest)
    return groups


def _value(item: Item, column: str) -> str | int | float | bool | None:
    value = item.columns.get(column, item.part if column == PART else None)
    is_missing = isinstance(value, float) and not np.isfinite(value)
    return None if is_missing else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _label(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _by_number(numbers: Mapping[int, float]) -> dict[str, list[int]]:
    """Return a group per number, or per quartile, labelled by its least and its greatest number."""
    distinct = sorted(set(numbers.values()))
    if len(distinct) <= MAX_NUMBERS:
        bins = [[number] for number in distinct]
    else:
        edges = np.unique(np.quantile(list(numbers.values()), (0.25, 0.5, 0.75)))
        places = np.searchsorted(edges, distinct, side="left")
        bins = [[n for n, place in zip(distinct, places, strict=True) if place == each] for each in sorted(set(places))]
    found = {}
    for one in bins:
        label = f"{one[0]:.10g}" if len(one) == 1 else f"{one[0]:.10g} to {one[-1]:.10g}"
        found[label] = [place for place, number in numbers.items() if one[0] <= number <= one[-1]]
    return found

"""Scores of each setting, differences between settings, and groups of items to report by."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aviot.evaluation.grounding.overlap import THRESHOLDS
from aviot.evaluation.intervals import Interval, difference_interval, share_interval
from aviot.evaluation.item import Item
from aviot.evaluation.results import has_failed
from aviot.utils.journal import Row

MULTIPLE_CHOICE, EXACT_MATCH = "multiple choice", "exact match"
JUDGED_CORRECT, JUDGED_SCORE = "judge: correct", "judge: score, 0 to 5"
MEAN_IOU, MEAN_UNION_IOU = "mIoU", "mIoU of unions"
UNCOMPRESSED = "none"
"""The setting that others are compared with if the run has it, else the first setting is."""


MAX_GROUPS = 50
"""Most groups per column; a text column with more values, such as an id, is refused."""

MAX_NUMBERS = 12
"""Most distinct numbers that form one group each; with more, the groups are quartiles."""

PART = "part"
MISSING = "(none)"


@dataclass(frozen=True)
class ItemScores:
    """The values of one measure under one setting, by item; values lie between 0 and `scale`."""

    setting: str
    name: str
    values: Mapping[int, float]
    videos: Mapping[int, str]  # by item
    failed: int = 0
    unjudged: int = 0
    scale: float = 1.0

    @classmethod
    def of(cls, name: str, rows: Sequence[Row], values: Iterable[float], **counts: float) -> "ItemScores":
        """Return the given values of one setting's rows, and count the failed rows among them."""
        numbers = {row["item"]: float(value) for row, value in zip(rows, values, strict=True)}
        videos = {row["item"]: row["video"] for row in rows}
        failed = sum(map(has_failed, rows))
        return cls(rows[0]["setting"], name, numbers, videos, failed, **counts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Measure:
    """The mean of one measure under one setting, over `counted` items about `videos` videos.

    `failed` items count as wrong; `unjudged` items are not counted. `interval` is None if it cannot be estimated: for
    no items, and for several items about one video.
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
    """A setting's mean minus that of the setting `against`, over the items that have a value under both."""

    setting: str
    against: str
    name: str
    value: float
    interval: Interval | None
    counted: int
    videos: int


def item_scores(rows: Sequence[Row]) -> list[ItemScores]:
    """Return the item scores of every measure for one setting's rows; failed rows count as wrong."""
    found = _grounded([row for row in rows if row["kind"] == "grounding"])
    for kind, name in (("choice", MULTIPLE_CHOICE), ("open", EXACT_MATCH)):
        graded = [row for row in rows if row["kind"] == kind and row["correct"] is not None]
        if graded:
            found.append(ItemScores.of(name, graded, [row["correct"] for row in graded]))
        if kind == "open" and any("judge" in row for row in graded):
            found += _judged(graded)
    return found


def _grounded(rows: Sequence[Row]) -> list[ItemScores]:
    """Return R@1 and mean overlaps of the spans that replies name; failed rows overlap by nothing."""
    if not rows:
        return []
    first, unions = ([float(row.get(key, 0.0)) for row in rows] for key in ("iou", "union_iou"))
    recalls = [ItemScores.of(recall_name(least), rows, [iou >= least for iou in first]) for least in THRESHOLDS]
    return [*recalls, ItemScores.of(MEAN_IOU, rows, first), ItemScores.of(MEAN_UNION_IOU, rows, unions)]


def recall_name(threshold: float) -> str:
    """Return the name of recall at one overlap."""
    return f"R@1 at IoU {threshold:g}"


def _judged(rows: Sequence[Row]) -> list[ItemScores]:
    known = [row for row in rows if has_failed(row) or "correct" in row.get("judge", {})]
    unjudged = len(rows) - len(known)
    if not known:
        names = ((JUDGED_CORRECT, 1.0), (JUDGED_SCORE, 5.0))
        return [ItemScores(rows[0]["setting"], name, {}, {}, 0, unjudged, scale) for name, scale in names]
    verdicts = [row.get("judge", {"correct": False, "score": 0.0}) for row in known]
    return [
        ItemScores.of(JUDGED_CORRECT, known, [verdict["correct"] for verdict in verdicts], unjudged=unjudged),
        ItemScores.of(JUDGED_SCORE, known, [verdict["score"] for verdict in verdicts], unjudged=unjudged, scale=5.0),
    ]


def mean_score(scores: ItemScores) -> Measure:
    """Return the mean of item scores with its interval."""
    values, videos = list(scores.values.values()), list(scores.videos.values())
    return Measure(
        setting=scores.setting,
        name=scores.name,
        value=sum(values) / len(values) if values else None,
        interval=share_interval(values, videos, scale=scores.scale),
        counted=len(values),
        failed=scores.failed,
        unjudged=scores.unjudged,
        videos=len(set(videos)),
    )


def paired_differences(scores: Sequence[ItemScores]) -> list[Difference]:
    """Return each setting's paired difference from the uncompressed one, or from the first, per measure."""
    differences = []
    for name in dict.fromkeys(each.name for each in scores):
        same = [each for each in scores if each.name == name]
        base = next((each for each in same if each.setting == UNCOMPRESSED), same[0])
        differences += [each for other in same if other is not base and (each := _difference(other, base)) is not None]
    return differences


def _difference(scores: ItemScores, base: ItemScores) -> Difference | None:
    """Return the paired difference; None if no item has a value under both settings."""
    both = [item for item in scores.values if item in base.values]
    if not both:
        return None
    gains = [scores.values[item] - base.values[item] for item in both]
    videos = [scores.videos[item] for item in both]
    return Difference(
        setting=scores.setting,
        against=base.setting,
        name=scores.name,
        value=sum(gains) / len(gains),
        interval=difference_interval(gains, videos, scale=scores.scale),
        counted=len(both),
        videos=len(set(videos)),
    )


def column_names(items: Sequence[Item]) -> list[str]:
    """Return the columns by which items can be grouped, in order of appearance, with `part` if they have parts."""
    found = dict.fromkeys(name for item in items for name in item.columns)
    return [*found, *([PART] if PART not in found and any(item.part for item in items) else [])]


def check_columns(items: Sequence[Item], columns: Sequence[str]) -> None:
    """Raise ValueError for a column that no item has, or that has too many values to group by."""
    known = column_names(items)
    for column in columns:
        if column not in known:
            listed = f"they have {', '.join(map(repr, known))}" if known else "they have no further columns"
            raise ValueError(f"no item has the column {column!r}; {listed}")
        group_items(items, column)


def group_items(items: Sequence[Item], column: str) -> dict[str, list[int]]:
    """Return the indices of the items in each group, by the group's label; items without a value come last.

    Numbers are sorted, and grouped by quartile if there are more than MAX_NUMBERS. Other values form groups in order of
    appearance.
    """
    values = {index: value for index, item in enumerate(items) if (value := _value(item, column)) is not None}
    numbers = {index: float(value) for index, value in values.items() if _is_number(value)}
    if numbers and len(numbers) == len(values):
        groups = _by_number(numbers)
    else:
        groups = {}
        for index, value in values.items():
            groups.setdefault(_label(value), []).append(index)
    if len(groups) > MAX_GROUPS:
        raise ValueError(
            f"the column {column!r} has {len(groups):,} different values; at most {MAX_GROUPS} can be reported"
        )
    without_value = [index for index in range(len(items)) if index not in values]
    if without_value:
        groups.setdefault(MISSING, []).extend(without_value)
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
    """Return one group per number or per quartile, labelled by its smallest and largest number."""
    distinct = sorted(set(numbers.values()))
    if len(distinct) <= MAX_NUMBERS:
        bins = [[number] for number in distinct]
    else:
        edges = np.unique(np.quantile(list(numbers.values()), (0.25, 0.5, 0.75)))
        places = np.searchsorted(edges, distinct, side="left")
        bins = [[n for n, index in zip(distinct, places, strict=True) if index == each] for each in sorted(set(places))]
    found = {}
    for one in bins:
        label = f"{one[0]:.10g}" if len(one) == 1 else f"{one[0]:.10g} to {one[-1]:.10g}"
        found[label] = [index for index, number in numbers.items() if one[0] <= number <= one[-1]]
    return found

"""Items grouped by a column of their records, such as a category or a duration."""

from collections.abc import Mapping, Sequence

import numpy as np

from aviot.evaluation.item import Item

MAX_GROUPS = 50
"""Groups that a report can show; a column of text with more values, such as an id, is refused."""

MAX_NUMBERS = 12
"""Different numbers that are a group each; where there are more, quartiles are the groups."""

PART = "part"
MISSING = "(none)"


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

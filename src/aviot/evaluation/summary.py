"""Summary of a run: scores with intervals, and every problem."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aviot.evaluation.intervals import Interval
from aviot.evaluation.item import Item
from aviot.evaluation.measures import (
    Difference,
    ItemScores,
    Measure,
    group_items,
    item_scores,
    mean_score,
    paired_differences,
)
from aviot.evaluation.results import ANSWERED, has_failed
from aviot.utils.journal import Row
from aviot.video.frames import Damage

FEW_VIDEOS = 10
"""With fewer videos an interval gets a note that it is rough."""


@dataclass(frozen=True)
class Problem:
    """A problem of an item, and the settings that it concerns."""

    id: str
    video: str
    reason: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class DamagedVideo:
    """A damaged video, and what is missing or broken."""

    video: str
    damage: str


@dataclass(frozen=True)
class Group:
    """The measures over the items with one value in a column."""

    column: str
    value: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Tokens:
    """Mean number of visual tokens per answer of a setting, before and after compression.

    `read` counts those that the decoder read in all, with the steps of an automatic budget that were not accepted.
    """

    setting: str
    before: float
    after: float
    read: float


@dataclass(frozen=True)
class Summary:
    """All measures and problems of a run. `caveats` say how reliable the intervals are."""

    items: int
    rows: int
    measures: tuple[Measure, ...]
    differences: tuple[Difference, ...]
    groups: tuple[Group, ...]
    tokens: tuple[Tokens, ...]
    read_as: dict[str, dict[str, int]]  # by setting: counts of how multiple-choice replies were read
    failed: tuple[Problem, ...]
    without_answer: tuple[Problem, ...]
    unjudged: tuple[Problem, ...]
    damaged: tuple[DamagedVideo, ...]
    results_sha256: str
    videos: str  # the directory at which relative video paths start
    video_count: int
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def summarise(
    rows: Sequence[Row],
    items: Sequence[Item] = (),
    *,
    digest: str,
    videos: str,
    by: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> Summary:
    """Return the summary of a complete run's rows; `by` names columns of the items to report scores by."""
    by_setting = _by_setting(rows)
    scores = [each for of_setting in by_setting.values() for each in item_scores(of_setting)]
    measures = tuple(map(mean_score, scores))
    return Summary(
        items=len({row["item"] for row in rows}),
        rows=len(rows),
        measures=measures,
        differences=tuple(paired_differences(scores)),
        groups=tuple(group for column in by for group in _groups(rows, items, column)),
        tokens=tuple(_tokens(by_setting)),
        read_as={
            name: dict(Counter(row["how"] for row in of_setting if row["kind"] == "choice" and "how" in row))
            for name, of_setting in by_setting.items()
        },
        failed=_problems(rows, lambda row: row["reason"] if has_failed(row) else None),
        without_answer=_problems(rows, lambda row: row.get("unscored")),
        unjudged=_problems(rows, lambda row: row.get("judge", {}).get("unjudged")),
        damaged=_damaged(rows),
        results_sha256=digest,
        videos=videos,
        video_count=len({row["video"] for row in rows}),
        notes=tuple(notes),
        caveats=tuple(caveats(measures)),
    )


class HasInterval(Protocol):
    """A score over several items and videos."""

    @property
    def interval(self) -> Interval | None: ...  # noqa: D102
    @property
    def counted(self) -> int: ...  # noqa: D102
    @property
    def videos(self) -> int: ...  # noqa: D102


def caveats(measures: Iterable[HasInterval]) -> Iterator[str]:
    """Yield notes on intervals that are missing or rough because there are too few videos."""
    counted = [each for each in measures if each.counted]
    if any(each.interval is None for each in counted):
        yield "no interval where all questions are about one video: they say nothing of other videos"
    few = [each.videos for each in counted if each.interval is not None and each.videos < FEW_VIDEOS]
    if few:
        yield f"intervals from fewer than {FEW_VIDEOS} videos (here {min(few)}) are rough"


def _by_setting(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["setting"], []).append(row)
    return found


def _groups(rows: Sequence[Row], items: Sequence[Item], column: str) -> Iterator[Group]:
    for value, indices in group_items(items, column).items():
        members = set(indices)
        scores: list[ItemScores] = []
        for of_setting in _by_setting(row for row in rows if row["item"] in members).values():
            scores += item_scores(of_setting)
        yield Group(column, value, tuple(map(mean_score, scores)))


def _tokens(by_setting: dict[str, list[Row]]) -> Iterator[Tokens]:
    """Yield the mean token counts of the settings; rows of older versions have none and are left out."""
    for name, rows in by_setting.items():
        counted = [row for row in rows if row["status"] == ANSWERED and "tokens_after" in row]
        if counted:
            before, after = (
                sum(row[key] for row in counted) / len(counted) for key in ("tokens_before", "tokens_after")
            )
            in_all = [row["tokens_read"] if "tokens_read" in row else row["tokens_after"] for row in counted]
            yield Tokens(name, before, after, sum(in_all) / len(counted))


def _damaged(rows: Iterable[Row]) -> tuple[DamagedVideo, ...]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if "damage" in row:
            found.setdefault(row["video"], row["damage"])
    return tuple(DamagedVideo(video, str(Damage(**damage))) for video, damage in found.items())


def _problems(rows: Iterable[Row], reason: Callable[[Row], str | None]) -> tuple[Problem, ...]:
    """Return one problem per item and reason, with the settings that it concerns."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if (why := reason(row)) is not None:
            found.setdefault((row["id"], row["video"], why), []).append(row["setting"])
    return tuple(Problem(*key, tuple(settings)) for key, settings in found.items())

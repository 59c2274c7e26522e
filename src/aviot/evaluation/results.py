"""Result rows, one per item and setting: scoring a reply, building its row, and checking rows read from disk.

Rows hold nothing that changes between runs, so a resumed run writes the same file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aviot.evaluation.batching import Key
from aviot.evaluation.choices import choose
from aviot.evaluation.config import Setting
from aviot.evaluation.item import Item
from aviot.evaluation.schema import Check, is_amount, is_count, is_text, is_truth, or_none
from aviot.evaluation.text import is_exact
from aviot.utils.journal import JournalError, Row, read_rows
from aviot.video import Video

ANSWERED, FAILED = "answered", "failed"
PLACE: dict[str, Check] = {"item": is_count, "id": is_text, "setting": is_text}
ALWAYS: dict[str, Check] = PLACE | {
    "status": lambda value: value in (ANSWERED, FAILED),
    "correct": or_none(is_truth),
    "video": is_text,
    "compressor": is_text,
    "ratio": or_none(is_amount),
    "kind": lambda value: value in ("choice", "open"),
    "answer": or_none(is_text),
}
BY_STATUS: dict[str, dict[str, Check]] = {
    ANSWERED: {
        "prediction": is_text,
        "frames": is_count,
        "supports": is_count,
        "read_as": or_none(is_text),
        "how": is_text,
    },
    FAILED: {"reason": is_text},
}


@dataclass(frozen=True)
class Score:
    """Whether a reply is right (None where the item has no answer), what it was read as, and how."""

    correct: bool | None
    read_as: str | None
    how: str


def score_reply(item: Item, reply: str) -> Score:
    """Multiple choice by the option a reply chooses, open answers by exact match."""
    if item.is_choice:
        choice = choose(reply, item.options)
        letter = None if choice.index is None else chr(ord("A") + choice.index)
        return Score(None if item.right is None else choice.index == item.right, letter, choice.how)
    if not item.answers:
        return Score(None, None, "exact")
    return Score(is_exact(reply, item.answers), None, "exact")


def answer_text(item: Item) -> str | None:
    """What is right, in words for a person or a judge."""
    if item.right is not None:
        return f"{chr(ord('A') + item.right)}. {item.options[item.right]}"
    return " / ".join(item.answers) or None


def answered_row(number: int, item: Item, setting: Setting, reply: str, *, video: Video, tokens_per_frame: int) -> Row:
    """Return the row of a reply, scored, with the visual tokens that the decoder would and did read."""
    score, frames = score_reply(item, reply), len(video)
    return _common(number, item, setting, video) | {
        "status": ANSWERED,
        "frames": frames,
        "supports": setting.supports(frames),
        "tokens_before": frames * tokens_per_frame,
        "tokens_after": setting.supports(frames) * tokens_per_frame,
        "prediction": reply,
        "read_as": score.read_as,
        "how": score.how,
        "correct": score.correct,
    }


def failed_row(number: int, item: Item, setting: Setting, reason: str, video: Video | None = None) -> Row:
    """Return the row of a question that could not be asked; it counts as wrong."""
    return _common(number, item, setting, video) | {
        "status": FAILED,
        "reason": reason,
        "correct": False if item.has_answer else None,
    }


def key_of(row: Mapping[str, Any]) -> Key:
    """Which row it is."""
    return row["item"], row["setting"]


def settled(rows: Iterable[Row], is_open: Callable[[Row], bool]) -> dict[Key, Row]:
    """What holds for each key: the first row that is not open, or else the last there is."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = key_of(row)
        if key not in found or is_open(found[key]):
            found[key] = row
    return found


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether a row's question could not be asked."""
    return bool(row["status"] == FAILED)


def _common(number: int, item: Item, setting: Setting, video: Video | None) -> Row:
    """Return what every row holds; `damage` only where the video has some."""
    damage = None if video is None else video.damage
    return {
        "item": number,
        "id": item.id,
        "video": item.video,
        "setting": setting.name,
        "compressor": setting.compressor,
        "ratio": setting.ratio,
        **({"part": item.part} if item.part else {}),
        "kind": "choice" if item.is_choice else "open",
        "answer": answer_text(item),
        **({"unscored": item.problem} if item.problem else {}),
        **({"damage": asdict(damage)} if damage is not None else {}),
    }


def _is_damage(value: Any) -> bool:
    names = ("claimed_seconds", "missing_seconds", "decoder_errors")
    if not isinstance(value, Mapping) or sorted(value) != sorted(names):
        return False
    claimed, missing, errors = (value[name] for name in names)
    return is_amount(claimed) and is_amount(missing) and is_count(errors) and (claimed > 0 or not missing)


def _is_verdict(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if set(value) == {"unjudged"}:
        return isinstance(value["unjudged"], str)
    return set(value) == {"correct", "score"} and isinstance(value["correct"], bool) and _is_score(value["score"])


def _is_score(value: Any) -> bool:
    return is_amount(value) and value <= 5


SOMETIMES: dict[str, Check] = {
    "part": is_text,
    "unscored": is_text,
    "damage": _is_damage,
    "tokens_before": is_count,
    "tokens_after": is_count,
}


def malformed(row: Row, *, final: bool = False) -> str | None:
    """Return what is wrong with a row's form; a `final` row may hold a verdict."""
    status = row.get("status", ANSWERED)
    if not isinstance(status, str) or status not in BY_STATUS:
        return f"its status is {status!r:.80}"
    return _misshapen(row, ALWAYS | BY_STATUS[status], SOMETIMES | ({"judge": _is_verdict} if final else {}))


def malformed_verdict(row: Row) -> str | None:
    """Return what is wrong with the form of a verdict on disk."""
    said = {name: value for name, value in row.items() if name not in ("item", "setting")}
    place = {"item": is_count, "setting": is_text}
    wrong = _misshapen({name: row[name] for name in place if name in row}, place, {})
    return wrong or (None if _is_verdict(said) else "it must hold unjudged, or correct and a score from 0 to 5")


def _misshapen(row: Row, wanted: Mapping[str, Check], allowed: Mapping[str, Check]) -> str | None:
    if lacks := [name for name in wanted if name not in row]:
        return f"it lacks {', '.join(lacks)}"
    if more := [name for name in row if name not in wanted and name not in allowed]:
        return f"it holds {', '.join(map(repr, more[:3]))}, which no row has"
    checks = {**allowed, **wanted}
    wrong = next((name for name, value in row.items() if not checks[name](value)), None)
    return None if wrong is None else f"its {wrong} is {row[wrong]!r:.80}"


class Expected:
    """The rows that a run can have: one for each of its items and settings."""

    def __init__(self, items: Sequence[Item], settings: Iterable[Setting]) -> None:
        self._items, self._settings = items, {setting.name: setting for setting in settings}

    def misfit(self, row: Row) -> str | None:
        """Return why a well-formed row is none of the run's."""
        if wrong := self._misplaced(row):
            return wrong
        item, setting = self._items[row["item"]], self._settings[row["setting"]]
        told = {"id": item.id, "video": item.video, "compressor": setting.compressor, "ratio": setting.ratio}
        if item.part:
            told["part"] = item.part
        wrong = next((name for name, value in told.items() if row.get(name) != value), None)
        return None if wrong is None else f"its {wrong} is {row.get(wrong)!r:.80} and must be {told[wrong]!r:.80}"

    def misfit_verdict(self, row: Row) -> str | None:
        """Return why a well-formed verdict is on none of the run's answers."""
        if wrong := self._misplaced(row):
            return wrong
        item = self._items[row["item"]]
        return (
            None
            if item.has_answer and not item.is_choice
            else f"item {row['item']} is none that a judge is asked about"
        )

    def _misplaced(self, row: Row) -> str | None:
        if row["item"] >= len(self._items):
            return f"it is of item {row['item']}, the run has items 0 to {len(self._items) - 1}"
        if row["setting"] not in self._settings:
            return f"its setting is {row['setting']!r:.80}, the run has {', '.join(self._settings)}"
        return None

    def rows(self, path: Path, *, final: bool = False) -> list[Row]:
        """Read the rows of a file; JournalError for one that this run has not written."""
        return _read(path, lambda row: malformed(row, final=final) or self.misfit(row))

    def verdicts(self, path: Path) -> list[Row]:
        """Read the verdicts of a file; JournalError for one that this run has not written."""
        return _read(path, lambda row: malformed_verdict(row) or self.misfit_verdict(row))


def well_formed_rows(path: Path) -> list[Row]:
    """Read the rows of a finished run; JournalError for one that no run could have written."""
    return _read(path, lambda row: malformed(row, final=True))


def _read(path: Path, wrong: Callable[[Row], str | None]) -> list[Row]:
    rows = read_rows(path)
    for number, row in enumerate(rows, 1):
        if said := wrong(row):
            raise JournalError(
                f"{path}, line {number} is no row of this run: {said}; the file was changed, put it back or name "
                "another folder"
            )
    return rows


def contradicted(rows: Iterable[Row]) -> list[Key]:
    """Return what was answered more than once, and not alike: of each the first row counts."""
    first: dict[Key, Row] = {}
    found: dict[Key, None] = {}
    for row in rows:
        if not has_failed(row) and first.setdefault(key_of(row), row) != row:
            found[key_of(row)] = None
    return list(found)

"""Result rows, one per item and setting: scoring a reply, building its row, and checking rows read from disk.

Rows hold nothing that changes between runs, so a resumed run writes the same file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aviot.evaluation.batching import RowKey
from aviot.evaluation.choices import choose
from aviot.evaluation.config import Setting, under_current_names
from aviot.evaluation.grounding.overlap import Overlap, overlap
from aviot.evaluation.item import Item
from aviot.evaluation.schema import Check, is_bool, is_count, is_nonnegative, is_text, list_of, or_none
from aviot.evaluation.text import is_exact
from aviot.utils.journal import JournalError, Row, read_rows
from aviot.video import Video

if TYPE_CHECKING:
    from aviot.session import Answer

PROBABILITY_DIGITS = 3  # few, since the last digits of a GPU's sums depend on the batch
ANSWERED, FAILED = "answered", "failed"
REQUIRED: dict[str, Check] = {
    "item": is_count,
    "id": is_text,
    "setting": is_text,
    "status": lambda value: value in (ANSWERED, FAILED),
    "correct": or_none(is_bool),
    "video": is_text,
    "method": is_text,
    "ratio": or_none(is_nonnegative),
    "kind": lambda value: value in ("choice", "open", "grounding"),
    "answer": or_none(is_text),
}
REQUIRED_BY_STATUS: dict[str, dict[str, Check]] = {
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
    """The score of a reply: `correct` (None if the item has no answer), the option letter it was read as, and how.

    `overlap` is that of a grounding item's spans.
    """

    correct: bool | None
    read_as: str | None
    how: str
    overlap: Overlap | None = None


def score_reply(item: Item, reply: str, duration: float | None = None) -> Score:
    """Score multiple choice by the option that a reply chooses, grounding by its times, open answers by exact match.

    `duration` is that of the video, for grounding items whose benchmark does not say it.
    """
    if item.windows:
        found = overlap(reply, item.windows, duration if item.duration is None else item.duration)
        return Score(found.is_correct, None, "times", found)
    if item.is_choice:
        choice = choose(reply, item.options)
        letter = None if choice.index is None else chr(ord("A") + choice.index)
        return Score(None if item.right is None else choice.index == item.right, letter, choice.how)
    if not item.answers:
        return Score(None, None, "exact")
    return Score(is_exact(reply, item.answers), None, "exact")


def answer_text(item: Item) -> str | None:
    """Return the right answer as text for a person or a judge."""
    if item.right is not None:
        return f"{chr(ord('A') + item.right)}. {item.options[item.right]}"
    windows = "; ".join(f"{start:g} to {end:g} s" for start, end in item.windows)
    return windows or " / ".join(item.answers) or None


def answered_row(number: int, item: Item, setting: Setting, answer: "Answer", video: Video) -> Row:
    """Return the row of a scored answer, with its visual token counts, and the method that ran if it is another."""
    score = score_reply(item, answer.text, video.duration)
    return _common(number, item, setting, video) | {
        "status": ANSWERED,
        "frames": answer.frames,
        "supports": answer.supports,
        "tokens_before": answer.tokens_before,
        "tokens_after": answer.tokens_after,
        **({} if answer.probability is None else {"probability": round(answer.probability, PROBABILITY_DIGITS)}),
        **({"tokens_read": answer.tokens_read, "budget": answer.steps[-1].budget} if answer.steps else {}),
        "prediction": answer.text,
        "read_as": score.read_as,
        "how": score.how,
        "correct": score.correct,
        **({} if score.overlap is None else _spans(score.overlap, video.duration)),
        **({} if answer.method in ("", setting.method) else {"ran": answer.method}),
    }


def _spans(found: Overlap, duration: float) -> Row:
    """Return a row's keys of the spans that a reply names."""
    spans = [list(span) for span in found.spans]
    return {"spans": spans, "iou": found.iou, "union_iou": found.union_iou, "duration": duration}


def failed_row(number: int, item: Item, setting: Setting, reason: str, video: Video | None = None) -> Row:
    """Return the row of a question that could not be answered; it counts as wrong."""
    return _common(number, item, setting, video) | {
        "status": FAILED,
        "reason": reason,
        "correct": False if item.has_answer else None,
    }


def row_key(row: Mapping[str, Any]) -> RowKey:
    """Return a row's key."""
    return row["item"], row["setting"]


def resolve_rows(rows: Iterable[Row], is_pending: Callable[[Row], bool]) -> dict[RowKey, Row]:
    """Return one row per key: the first that is not pending (failed or unjudged), else the last."""
    found: dict[RowKey, Row] = {}
    for row in rows:
        key = row_key(row)
        if key not in found or is_pending(found[key]):
            found[key] = row
    return found


def has_failed(row: Mapping[str, Any]) -> bool:
    """Return whether a row's question could not be answered."""
    return bool(row["status"] == FAILED)


def _common(number: int, item: Item, setting: Setting, video: Video | None) -> Row:
    """Return the keys that answered and failed rows share; `damage` only if the video is damaged."""
    damage = None if video is None else video.damage
    return {
        "item": number,
        "id": item.id,
        "video": item.video,
        "setting": setting.name,
        "method": setting.method,
        "ratio": setting.ratio,
        **({} if setting.other is None else {"other": setting.other}),
        **({"part": item.part} if item.part else {}),
        "kind": item.kind,
        "answer": answer_text(item),
        **({"unscored": item.problem} if item.problem else {}),
        **({"damage": asdict(damage)} if damage is not None else {}),
    }


def _is_damage(value: Any) -> bool:
    names = ("claimed_seconds", "missing_seconds", "decoder_errors")
    if not isinstance(value, Mapping) or sorted(value) != sorted(names):
        return False
    claimed, missing, errors = (value[name] for name in names)
    return is_nonnegative(claimed) and is_nonnegative(missing) and is_count(errors) and (claimed > 0 or not missing)


def _is_verdict(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if set(value) == {"unjudged"}:
        return isinstance(value["unjudged"], str)
    return set(value) == {"correct", "score"} and isinstance(value["correct"], bool) and _is_score(value["score"])


def _is_score(value: Any) -> bool:
    return is_nonnegative(value) and value <= 5


def _is_share(value: Any) -> bool:
    return is_nonnegative(value) and value <= 1


OPTIONAL: dict[str, Check] = {
    "part": is_text,
    "unscored": is_text,
    "damage": _is_damage,
    "tokens_before": is_count,
    "tokens_after": is_count,
    "tokens_read": is_count,
    "probability": _is_share,
    "budget": is_text,
    "other": is_text,
    "ran": is_text,
    "spans": list_of(list_of(is_nonnegative, least=2, most=2), least=0),
    "iou": _is_share,
    "union_iou": _is_share,
    "duration": is_nonnegative,
}


def malformed(row: Row, *, final: bool = False) -> str | None:
    """Return which key of a row is missing, unknown or invalid, in words; a `final` row may hold a verdict."""
    status = row.get("status", ANSWERED)
    if not isinstance(status, str) or status not in REQUIRED_BY_STATUS:
        return f"its status is {status!r:.80}"
    return _wrong_key(row, REQUIRED | REQUIRED_BY_STATUS[status], OPTIONAL | ({"judge": _is_verdict} if final else {}))


def malformed_verdict(row: Row) -> str | None:
    """Return which key of a verdict row is missing or invalid, in words."""
    verdict = {name: value for name, value in row.items() if name not in ("item", "setting")}
    key = {"item": is_count, "setting": is_text}
    wrong = _wrong_key({name: row[name] for name in key if name in row}, key, {})
    return wrong or (None if _is_verdict(verdict) else "it must hold unjudged, or correct and a score from 0 to 5")


def _wrong_key(row: Row, required: Mapping[str, Check], optional: Mapping[str, Check]) -> str | None:
    if missing := [name for name in required if name not in row]:
        return f"it lacks {', '.join(missing)}"
    if unknown := [name for name in row if name not in required and name not in optional]:
        return f"it holds {', '.join(map(repr, unknown[:3]))}, which no row has"
    checks = {**optional, **required}
    wrong = next((name for name, value in row.items() if not checks[name](value)), None)
    return None if wrong is None else f"its {wrong} is {row[wrong]!r:.80}"


class ExpectedRows:
    """The rows that a run may contain, one per item and setting; reads and validates its files."""

    def __init__(self, items: Sequence[Item], settings: Iterable[Setting]) -> None:
        self._items, self._settings = items, {setting.name: setting for setting in settings}

    def mismatch(self, row: Row) -> str | None:
        """Return why a well-formed row does not belong to the run; None if it does."""
        if wrong := self._key_mismatch(row):
            return wrong
        item, setting = self._items[row["item"]], self._settings[row["setting"]]
        expected = {"id": item.id, "video": item.video, "method": setting.method, "ratio": setting.ratio}
        if item.part:
            expected["part"] = item.part
        if setting.other is not None:
            expected["other"] = setting.other
        wrong = next((name for name, value in expected.items() if row.get(name) != value), None)
        return None if wrong is None else f"its {wrong} is {row.get(wrong)!r:.80} and must be {expected[wrong]!r:.80}"

    def verdict_mismatch(self, row: Row) -> str | None:
        """Return why a well-formed verdict belongs to none of the run's answers; None if it belongs to one."""
        if wrong := self._key_mismatch(row):
            return wrong
        item = self._items[row["item"]]
        return (
            None
            if item.has_answer and item.kind == "open"
            else f"item {row['item']} is not one that a judge is asked about"
        )

    def _key_mismatch(self, row: Row) -> str | None:
        if row["item"] >= len(self._items):
            return f"its item is {row['item']}, the run has items 0 to {len(self._items) - 1}"
        if row["setting"] not in self._settings:
            return f"its setting is {row['setting']!r:.80}, the run has {', '.join(self._settings)}"
        return None

    def rows(self, path: Path, *, final: bool = False) -> list[Row]:
        """Read the rows of a file; raise JournalError for a row that does not belong to the run."""
        return _read(path, lambda row: malformed(row, final=final) or self.mismatch(row))

    def verdicts(self, path: Path) -> list[Row]:
        """Read the verdicts of a file; raise JournalError for a verdict that does not belong to the run."""
        return _read(path, lambda row: malformed_verdict(row) or self.verdict_mismatch(row))


def read_finished_rows(path: Path) -> list[Row]:
    """Read the rows of a finished run; raise JournalError for a malformed one."""
    return _read(path, lambda row: malformed(row, final=True))


def _read(path: Path, problem_of: Callable[[Row], str | None]) -> list[Row]:
    rows = [under_current_names(row) for row in read_rows(path)]
    for number, row in enumerate(rows, 1):
        if problem := problem_of(row):
            raise JournalError(
                f"{path}, line {number} is not a row of this run: {problem}; the file was edited, restore it or choose "
                "another output directory"
            )
    return rows


def conflicting_keys(rows: Iterable[Row]) -> list[RowKey]:
    """Return the keys that have several answered rows with different content; the first row of each counts."""
    first: dict[RowKey, Row] = {}
    found: dict[RowKey, None] = {}
    for row in rows:
        if not has_failed(row) and first.setdefault(row_key(row), row) != row:
            found[row_key(row)] = None
    return list(found)

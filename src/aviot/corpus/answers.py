"""The file of answers: a row per question, appended as it comes, each question at most once at any time.

`NAME.run.json` beside it says what the answers follow from, so that no other batch is continued in the same file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from aviot.evaluation.item import Item
from aviot.evaluation.manifest import differences
from aviot.utils.files import check_regular, write_durably
from aviot.utils.journal import Journal, JournalError, Row, as_line, read_rows
from aviot.utils.printing import json_text


class AnswersExistError(ValueError):
    """A new batch was to be started in the file of another."""


class NoAnswersError(ValueError):
    """A batch was to be resumed in a file that does not exist."""


class AnswersFile:
    """The answers of one batch; one process at a time has it open."""

    def __init__(self, path: Path, items: Sequence[Item], identity: Mapping[str, Any], *, resume: bool) -> None:
        self.path, self._items = path, items
        _check_start(path, identity, resume=resume)
        self._journal = Journal(path)
        try:
            self.rows = self._read()
            if not about_path(path).is_file():
                write_durably(about_path(path), json_text(identity, indent=2).encode() + b"\n")
        except BaseException:
            self.close()
            raise

    @property
    def failed(self) -> list[Row]:
        """The rows of questions that could not be answered, in order."""
        return [row for _, row in sorted(self.rows.items()) if "failed" in row]

    def add(self, row: Row) -> bool:
        """Append a row durably; return False for a question that has one already."""
        if row["item"] in self.rows:
            return False
        self._journal.add(row)
        self.rows[row["item"]] = row
        return True

    def drop_failed(self) -> None:
        """Remove the rows of questions that could not be answered, which can then be asked again."""
        self._rewrite({number: row for number, row in self.rows.items() if "failed" not in row})

    def finish(self) -> None:
        """Put the rows in the order of the questions."""
        self._rewrite(dict(sorted(self.rows.items())))

    def close(self) -> None:
        """Let other processes open the file."""
        self._journal.__exit__(None, None, None)

    def __enter__(self) -> "AnswersFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rewrite(self, rows: dict[int, Row]) -> None:
        if list(rows) == list(self.rows):
            return
        write_durably(self.path, b"".join(map(as_line, rows.values())))
        self.close()
        self._journal = Journal(self.path)
        self.rows = rows

    def _read(self) -> dict[int, Row]:
        """Return the rows by question; raise JournalError for a row that is not of this batch."""
        rows: dict[int, Row] = {}
        for line, row in enumerate(read_rows(self.path), 1):
            number = row["item"] if isinstance(row.get("item"), int) else -1
            known = 0 <= number < len(self._items) and number not in rows
            if not known or row.get("id") != self._items[number].id or ("answer" in row) == ("failed" in row):
                raise JournalError(
                    f"{self.path}, line {line} is not an answer of this batch, or its second one; the file was edited: "
                    "restore it, or name another file"
                )
            rows[number] = row
        return rows


def answered(number: int, item: Item, result: Mapping[str, Any]) -> Row:
    """Return the row of a question from its row of an evaluation."""
    row: Row = {"item": number, "id": item.id, "video": item.video, "question": item.question}
    if result["status"] == "failed":
        row["failed"] = result["reason"]
    else:
        row["answer"] = result["prediction"]
        names = ("frames", "supports", "tokens_before", "tokens_after", "tokens_read", "budget")
        row |= {name: result[name] for name in names if name in result}  # the last two of an automatic budget
    return row | ({"damage": result["damage"]} if "damage" in result else {})


def failed(number: int, item: Item, reason: str) -> Row:
    """Return the row of a question that no worker could answer."""
    return {"item": number, "id": item.id, "video": item.video, "question": item.question, "failed": reason}


def about_path(path: Path) -> Path:
    """Return the file that says what the answers follow from."""
    return path.with_name(f"{path.name}.run.json")


def _check_start(path: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
    about = about_path(path)
    check_regular(about)
    exists = path.is_file() and path.stat().st_size > 0
    if resume and not about.is_file():
        raise NoAnswersError(f"{path} holds no batch to resume; start a new one")
    if not resume:
        if exists or about.is_file():
            raise AnswersExistError(f"{path} already holds answers; resume that batch, or name another file")
        return
    try:
        stored = json.loads(about.read_text(encoding="utf-8"))
    except ValueError as error:
        raise JournalError(f"{about} is damaged ({error}); restore it, or start anew in another file") from error
    if changed := differences(stored, identity):
        raise ValueError(
            f"{path} holds another batch: {'; '.join(changed[:3])}; ask with the same choices, or name another file"
        )

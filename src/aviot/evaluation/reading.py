"""Items from a JSON array, JSONL, or a folder that holds a Hugging Face dataset."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.data.scan import Scanner
from aviot.evaluation.errors import ItemError
from aviot.evaluation.item import Item, parse_item
from aviot.evaluation.keys import sort_keys
from aviot.evaluation.tables import Columns, dataset_files, item_columns, read_table
from aviot.evaluation.text import normal

TABLES = (".parquet", ".arrow")
NAMED = 20
"""Mistakes, or keys, that one message lists."""


@dataclass(frozen=True)
class Items:
    """Every item of a source, in its order; `digest` is the SHA-256 of its file, or of the files' in a row.

    `notes` tell what a reader of the scores should know of the files: which of their keys are not used.
    """

    items: tuple[Item, ...]
    digest: str
    folder: Path  # that relative videos count from
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def video_path(self, item: Item) -> Path:
        """The file that an item means."""
        return self.folder / item.video


def read_items(source: Path, *, videos: Path | None = None, split: str | None = None) -> Items:
    """Read and check all items; raises one error that names file and line of everything that is none.

    Relative videos count from `videos`, or else from the folder of the items. `split` chooses among those of a dataset
    folder.
    """
    if videos is not None and not videos.is_dir():
        raise ItemError(f"{videos} is not a directory; name the one that relative paths of videos count from")
    if not source.exists():
        raise ItemError(f"{source}: no such file; give JSON, JSONL or a dataset folder")
    if split is not None and not source.is_dir():
        raise ItemError(f"a split is a part of a dataset folder, and {source} is a file; leave the split out")
    files = dataset_files(source, split) if source.is_dir() else [source]
    found: list[Item] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    repeated: list[str] = []
    keys = UnusedKeys()
    digests = []
    for file in files:
        place = str(file)
        for where, number, value, problem in values_of(file):
            try:
                if problem is not None:
                    raise ItemError(problem)
                item = parse_item(value, number if len(files) == 1 else f"{file.name}:{number}")
                if item.id in seen:
                    raise ItemError(f"the id {item.id!r} is taken by {seen[item.id]}; ids must differ, or be left out")
            except ItemError as error:
                problems.append(f"{place}, {where}: {error}")
                continue
            seen[item.id] = f"{place}, {where}"
            found.append(item)
            keys.add(value, item)
            if len(set(map(normal, item.options))) < len(item.options):
                repeated.append(item.id)
        with file.open("rb") as handle:
            digests.append(hashlib.file_digest(handle, "sha256").hexdigest())
    refuse(problems, source, found)
    whole = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return Items(
        tuple(found),
        whole,
        videos or (source if source.is_dir() else source.parent),
        (*keys.notes, *_equal_options(repeated)),
    )


class UnusedKeys:
    """The keys of records that neither ask nor score, collected over all of them."""

    def __init__(self) -> None:
        self._kept: dict[str, None] = {}
        self._dropped: dict[str, None] = {}

    def add(self, record: Mapping[str, Any], item: Item) -> None:
        """Add the keys of one record that was read as an item."""
        self._kept |= dict.fromkeys(item.columns)
        self._dropped |= dict.fromkeys(key for key in sort_keys(record).extra if key not in item.columns)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per kind of key."""
        dropped = [key for key in self._dropped if key not in self._kept]
        kinds = (
            (list(self._kept), "columns of the items that are kept and neither asked nor scored"),
            (dropped, "keys of the items that are not used, because they hold no simple value"),
        )
        return tuple(f"{what}: {_named(names)}" for names, what in kinds if names)


def _equal_options(ids: list[str]) -> tuple[str, ...]:
    """Return a note on items that have the same option twice; it is for the file to say which is right."""
    if not ids:
        return ()
    return (f"items that have the same option twice; a reply in its words chooses neither: {_named(ids)}",)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(repr(name[:80]) for name in names[:NAMED]) + more


def values_of(file: Path, columns: Columns = item_columns) -> Iterator[tuple[str, str, Any, str | None]]:
    """Place in words, number, value and problem of everything that should be an item."""
    if file.suffix in TABLES:
        for number, row in enumerate(read_table(file, columns), 1):
            yield f"row {number}", str(number), row, None
        return
    with file.open("rb") as handle:
        scanner = Scanner(handle, str(file))
        for found in scanner:
            where = f"element {found.number} (line {found.line})" if scanner.is_array else f"line {found.line}"
            yield where, str(found.number), found.value, found.problem


def refuse(problems: list[str], source: Path, found: list[Item]) -> None:
    """One error for everything that is wrong, or for nothing at all."""
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems[:NAMED])
        more = f"\n  and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise ItemError(f"{len(problems)} of {len(problems) + len(found)} items cannot be used:{listed}{more}")
    if not found:
        raise ItemError(f"{source} holds no items; expected objects with video, question, options, answer and id")

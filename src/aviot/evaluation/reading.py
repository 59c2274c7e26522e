"""Read items from a JSON array, JSONL, or a directory with a Hugging Face dataset."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.data.scan import Scanner
from aviot.evaluation.fields import FIELDS, ItemError, sort_keys
from aviot.evaluation.item import Item, parse_item
from aviot.evaluation.text import normal

TABLES = (".parquet", ".arrow")
MAX_LISTED = 20
"""Problems, keys or ids that one message lists."""


USUAL_SPLITS = frozenset({"train", "validation", "valid", "val", "dev", "test"})
MAX_JSON_BYTES = 2**24  # of a dataset's own JSON files
MAX_ROWS, MAX_CHARACTERS = 2**20, 2**28  # of an unpacked table; the largest benchmark has some ten thousand rows
ROWS_AT_ONCE = 64  # unpacked at a time
Columns = Callable[[Any], list[str]]
"""Selects the columns of a table's schema to read; videos and images stored as bytes are left out."""


class SplitError(ItemError):
    """A dataset whose split is not chosen, unknown or ambiguous."""


def item_columns(schema: Any) -> list[str]:
    """Return the columns of an item's fields, and all others that do not hold bytes."""
    others = all_but_bytes(schema)
    return [name for name in schema.names if name in FIELDS or name in others]


def all_but_bytes(schema: Any) -> list[str]:
    """Return the columns that do not hold bytes."""
    return [field.name for field in schema if "binary" not in str(field.type)]


@dataclass(frozen=True)
class Items:
    """The items of a source in file order. `digest` is the SHA-256 of its file, or of its files' digests if several.

    `folder` is where relative video paths start. `notes` list what the files hold but scores do not reflect, such as
    unused keys.
    """

    items: tuple[Item, ...]
    digest: str
    folder: Path
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def video_path(self, item: Item) -> Path:
        """Return the path of an item's video."""
        return self.folder / item.video


def read_items(source: Path, *, videos: Path | None = None, split: str | None = None) -> Items:
    """Read and validate all items; raise one ItemError that lists file and line of every invalid record.

    Relative video paths start at `videos`, by default at the directory of the items. `split` selects a split of a
    dataset directory.
    """
    if videos is not None and not videos.is_dir():
        raise ItemError(f"{videos} is not a directory; name the one at which relative video paths start")
    if not source.exists():
        raise ItemError(f"{source}: no such file; expected a JSON or JSONL file or a dataset directory")
    if split is not None and not source.is_dir():
        raise ItemError(f"{source} is a file, and only dataset directories have splits; leave the split out")
    files = dataset_files(source, split) if source.is_dir() else [source]
    found: list[Item] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    repeated: list[str] = []
    keys = UnusedKeys()
    digests = []
    for file in files:
        place = str(file)
        for where, number, value, problem in read_records(file):
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
    """Collects keys of records that are used neither for prompts nor for scores."""

    def __init__(self) -> None:
        self._kept: dict[str, None] = {}
        self._dropped: dict[str, None] = {}

    def add(self, record: Mapping[str, Any], item: Item) -> None:
        """Add the unused keys of a record that was parsed as `item`."""
        self._kept |= dict.fromkeys(item.columns)
        self._dropped |= dict.fromkeys(key for key in sort_keys(record).extra if key not in item.columns)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return one note per kind of key."""
        dropped = [key for key in self._dropped if key not in self._kept]
        kinds = (
            (list(self._kept), "columns of the items that are kept and neither asked nor scored"),
            (dropped, "keys of the items that are not used, because they hold no simple value"),
        )
        return tuple(f"{what}: {_named(names)}" for names, what in kinds if names)


def _equal_options(ids: list[str]) -> tuple[str, ...]:
    """Return a note on items that have the same option twice."""
    if not ids:
        return ()
    return (f"items that have the same option twice; a reply in its words chooses neither: {_named(ids)}",)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(repr(name[:80]) for name in names[:MAX_LISTED]) + more


def read_records(file: Path, columns: Columns = item_columns) -> Iterator[tuple[str, str, Any, str | None]]:
    """Yield position in words, number, value and problem of each record in a file."""
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
    """Raise one ItemError that lists all problems, or says that there are no items."""
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems[:MAX_LISTED])
        more = f"\n  and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
        raise ItemError(f"{len(problems)} of {len(problems) + len(found)} items cannot be used:{listed}{more}")
    if not found:
        raise ItemError(f"{source} holds no items; expected objects with video, question, options, answer and id")


def dataset_files(folder: Path, split: str | None) -> list[Path]:
    """Return a dataset's record files in order: those of `save_to_disk`, Parquet files, or JSON files."""
    if (folder / "dataset_dict.json").is_file():
        names = _listed(folder / "dataset_dict.json", "splits")
        return dataset_files(folder / _one_split(folder, names, split), None)
    if (folder / "state.json").is_file():
        files = [folder / name for name in _listed(folder / "state.json", "_data_files", "filename")]
        if wrong := [path for path in files if not os.path.isfile(path)]:  # names may be longer than Path takes
            raise ItemError(f"{wrong[0]} is missing or not a regular file; download or save the dataset again")
        if len(set(files)) < len(files):
            raise ItemError(f"{folder / 'state.json'} lists a file twice; save the dataset again")
        return files
    for pattern in ("*.parquet", "*.jsonl", "*.json"):
        files = sorted(path for path in folder.rglob(pattern) if path.name != "dataset_infos.json" and path.is_file())
        if files:
            return _select_split(folder, files, split)
    raise ItemError(
        f"{folder} holds no dataset; expected Parquet, JSONL or JSON files, or what datasets' save_to_disk writes"
    )


def read_table(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield the records of a Parquet or Arrow file."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError as error:
        raise ItemError(f"{path} needs pyarrow to be read; pip install pyarrow, or write the items as JSONL") from error
    limit = _TableLimit()
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(ROWS_AT_ONCE, columns=columns(table.schema_arrow)):
                    yield from limit.records(batch)
            return
        with pyarrow.memory_map(str(path)) as mapped, ipc.open_stream(mapped) as reader:
            for batch in reader:
                yield from limit.records(batch.select(columns(batch.schema)))
    except (OSError, ArithmeticError, LookupError, ValueError, pyarrow.ArrowException) as error:
        raise ItemError(f"{path} cannot be read as a table ({error}); download or save the dataset again") from error


class _TableLimit:
    """A count of what a table unpacks to, without videos as bytes: a repeated value takes no room in the file."""

    def __init__(self) -> None:
        self._characters = self._rows = 0

    def records(self, batch: Any) -> Iterator[dict[str, Any]]:
        """Yield a batch's records after validation: a damaged file may hold invalid offsets or invalid UTF-8."""
        batch.validate(full=True)
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            for row in batch.slice(start, ROWS_AT_ONCE).to_pylist():
                self._characters += _characters(row)
                self._rows += 1
                if self._characters > MAX_CHARACTERS or self._rows > MAX_ROWS:
                    raise ValueError(f"it unpacks to more than {MAX_ROWS:,} rows or {MAX_CHARACTERS:,} letters")
                yield row


def _characters(row: dict[str, Any]) -> int:
    """Count the characters of a row's text, and one for each other value."""
    waiting: list[Any] = [row]
    count = 0
    while waiting:
        value = waiting.pop()
        count += len(value) if isinstance(value, str) else 1
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return count


def _select_split(folder: Path, files: list[Path], split: str | None) -> list[Path]:
    """Return the files of one split by the naming scheme of the Hugging Face Hub."""
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_split_name(path.relative_to(folder)), []).append(path)
    return splits[_one_split(folder, list(splits), split)]


def _split_name(path: Path) -> str:
    """Return `test` for `test-00000-of-00001.parquet`, `test.jsonl` and `test/…`; `hard/test` for `hard/test-…`."""
    folders = [part for part in path.parts[:-1] if part != "data"]
    own = path.stem.split("-")[0]
    return "/".join([*folders, own] if not folders or own in USUAL_SPLITS else folders)


def _one_split(folder: Path, names: list[str], split: str | None) -> str:
    """Return the split with this name or with this as a unique path component; the only split if None."""
    found = [name for name in names if split in (None, name)] or [name for name in names if split in name.split("/")]
    if len(found) != 1:
        problem = f"{split!r} is {'several' if found else 'none'} of them" if split else "choose one of them"
        raise SplitError(f"{folder} has the splits {', '.join(sorted(names))}; {problem}")
    return found[0]


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object of a small JSON file; raise ItemError if it holds none."""
    try:
        if (size := path.stat().st_size) > MAX_JSON_BYTES:
            raise ValueError(f"it has {size:,} bytes, and may have {MAX_JSON_BYTES:,}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ItemError(f"{path} is not readable JSON ({error}); save the dataset again") from error
    if not isinstance(found, dict):
        raise ItemError(f"{path} must hold an object, got {type(found).__name__}; save the dataset again")
    return found


def _listed(path: Path, field: str, *keys: str) -> list[str]:
    """Return the file names that a JSON file lists in `field`, each nested under `keys`."""
    entries = read_json_object(path).get(field, [])
    names = entries if isinstance(entries, list) else [entries]
    for key in keys:
        names = [name.get(key) if isinstance(name, dict) else name for name in names]
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
            raise ItemError(f"{path} must list names in {field!r}, got {name!r:.80}; save the dataset again")
    return names

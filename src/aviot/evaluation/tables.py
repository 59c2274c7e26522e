"""A folder that holds a Hugging Face dataset: which files are its rows, and the rows of one."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aviot.evaluation.errors import ItemError
from aviot.evaluation.keys import FIELDS

USUAL_SPLITS = frozenset({"train", "validation", "valid", "val", "dev", "test"})
LARGEST = 2**24  # bytes of a dataset's own JSON files
MOST_ROWS, MOST_LETTERS = 2**20, 2**28  # of a table as it is unpacked; the largest benchmark has some ten thousand rows
FEW = 64  # rows that are unpacked at a time
Columns = Callable[[Any], list[str]]
"""Which columns of a schema are read; videos and images as bytes are not."""


def item_columns(schema: Any) -> list[str]:
    """Return the columns of an item's fields, and all others but bytes."""
    others = all_but_bytes(schema)
    return [name for name in schema.names if name in FIELDS or name in others]


def all_but_bytes(schema: Any) -> list[str]:
    """All but bytes."""
    return [field.name for field in schema if "binary" not in str(field.type)]


def dataset_files(folder: Path, split: str | None) -> list[Path]:
    """The files with a dataset's rows, in order: as `save_to_disk` leaves it, Parquet files, or JSON files."""
    if (folder / "dataset_dict.json").is_file():
        names = _listed(folder / "dataset_dict.json", "splits")
        return dataset_files(folder / _one_split(folder, names, split), None)
    if (folder / "state.json").is_file():
        files = [folder / name for name in _listed(folder / "state.json", "_data_files", "filename")]
        if wrong := [path for path in files if not os.path.isfile(path)]:  # names may be longer than Path takes
            raise ItemError(f"{wrong[0]} is missing or not a regular file; download or save the dataset again")
        return files
    for pattern in ("*.parquet", "*.jsonl", "*.json"):
        files = sorted(path for path in folder.rglob(pattern) if path.name != "dataset_infos.json" and path.is_file())
        if files:
            return _of_split(folder, files, split)
    raise ItemError(
        f"{folder} holds no dataset; expected Parquet, JSONL or JSON files, or what datasets' save_to_disk writes"
    )


def read_table(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet or Arrow file, a few at a time."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError as error:
        raise ItemError(f"{path} needs pyarrow to be read; pip install pyarrow, or write the items as JSONL") from error
    limit = _Limit()
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(FEW, columns=columns(table.schema_arrow)):
                    yield from limit.rows(batch)
            return
        with pyarrow.memory_map(str(path)) as mapped, ipc.open_stream(mapped) as reader:
            for batch in reader:
                yield from limit.rows(batch.select(columns(batch.schema)))
    except (OSError, ArithmeticError, LookupError, ValueError, pyarrow.ArrowException) as error:
        raise ItemError(f"{path} cannot be read as a table ({error}); download or save the dataset again") from error


class _Limit:
    """Counts what a table unpacks to, videos as bytes left out: a value that repeats takes no room in the file."""

    def __init__(self) -> None:
        self._letters = self._rows = 0

    def rows(self, batch: Any) -> Iterator[dict[str, Any]]:
        """Yield a batch's rows; offsets in a damaged file may point outside it, and text may not be UTF-8."""
        batch.validate(full=True)
        for start in range(0, batch.num_rows, FEW):
            for row in batch.slice(start, FEW).to_pylist():
                self._letters += _letters(row)
                self._rows += 1
                if self._letters > MOST_LETTERS or self._rows > MOST_ROWS:
                    raise ValueError(f"it unpacks to more than {MOST_ROWS:,} rows or {MOST_LETTERS:,} letters")
                yield row


def _letters(row: dict[str, Any]) -> int:
    """Count the letters of a row, and one for each value that is no text."""
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


def _of_split(folder: Path, files: list[Path], split: str | None) -> list[Path]:
    """Files of one split, by the hub's naming."""
    splits: dict[str, list[Path]] = {}
    for path in files:
        splits.setdefault(_split_name(path.relative_to(folder)), []).append(path)
    return splits[_one_split(folder, list(splits), split)]


def _split_name(path: Path) -> str:
    """`test-00000-of-00001.parquet`, `test.jsonl` and `test/…` are of `test`, `hard/test-…` is of `hard/test`."""
    folders = [part for part in path.parts[:-1] if part != "data"]
    own = path.stem.split("-")[0]
    return "/".join([*folders, own] if not folders or own in USUAL_SPLITS else folders)


def _one_split(folder: Path, names: list[str], split: str | None) -> str:
    """The split that is meant: by its name, or by a part of it that no other has."""
    meant = [name for name in names if split in (None, name)] or [name for name in names if split in name.split("/")]
    if len(meant) != 1:
        asked = f"{split!r} is {'several' if meant else 'none'} of them" if split else "say --split with one of them"
        raise ItemError(f"{folder} has the splits {', '.join(sorted(names))}; {asked}")
    return meant[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise ValueError(f"it has {size:,} bytes, and may have {LARGEST:,}")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ItemError(f"{path} is not readable JSON ({error}); save the dataset again") from error
    if not isinstance(found, dict):
        raise ItemError(f"{path} must hold an object, got {type(found).__name__}; save the dataset again")
    return found


def _listed(path: Path, field: str, *keys: str) -> list[str]:
    """Return the names beside `path` that it lists in a field, each below `keys`."""
    entries = _read(path).get(field, [])
    names = entries if isinstance(entries, list) else [entries]
    for key in keys:
        names = [name.get(key) if isinstance(name, dict) else name for name in names]
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
            raise ItemError(f"{path} must list names in {field!r}, got {name!r:.80}; save the dataset again")
    return names

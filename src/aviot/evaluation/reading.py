"""Read items from a JSON array, JSONL, or a directory with a Hugging Face dataset."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.data.scan import Scanner
from aviot.evaluation.fields import FIELDS, ItemError, sort_keys
from aviot.evaluation.item import Item, parse_item
from aviot.evaluation.text import normal

TABLES = (".parquet", ".arrow")
NAMED = 20
"""Mistakes, or keys, that one message lists."""


USUAL_SPLITS = frozenset({"train", "validation", "valid", "val", "dev", "test"})
Columns = Callable[[Any], list[str]]
"""Which columns of a schema are read; videos and images as bytes are not."""


def item_columns(schema: Any) -> list[str]:
    """Return the columns of an item's fields, and all others but bytes."""
    others = all_but_bytes(schema)
    return [name for name in schema.names if name in FIELDS or name in others]


def all_but_bytes(schema: Any) -> list[str]:
    """All but bytes."""
    return [field.name for field in schema if "binary" not in str(field.type)]


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


def dataset_files(folder: Path, split: str | None) -> list[Path]:
    """The files with a dataset's rows, in order: as `save_to_disk` leaves it, Parquet files, or JSON files."""
    if (folder / "dataset_dict.json").is_file():
        names = _listed(folder / "dataset_dict.json", "splits")
        return dataset_files(folder / _one_split(folder, names, split), None)
    if (folder / "state.json").is_file():
        return [folder / name for name in _listed(folder / "state.json", "_data_files", "filename")]
    for pattern in ("*.parquet", "*.jsonl", "*.json"):
        files = sorted(path for path in folder.rglob(pattern) if path.name != "dataset_infos.json")
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
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as table:
                for batch in table.iter_batches(columns=columns(table.schema_arrow)):
                    yield from _rows(batch)
            return
        with pyarrow.memory_map(str(path)) as mapped, ipc.open_stream(mapped) as reader:
            for batch in reader:
                yield from _rows(batch.select(columns(batch.schema)))
    except (OSError, pyarrow.ArrowException) as error:
        raise ItemError(f"{path} cannot be read as a table ({error}); download or save the dataset again") from error


def _rows(batch: Any) -> list[dict[str, Any]]:
    """Return a batch's rows; offsets in a damaged file may point outside it, and text may not be UTF-8."""
    batch.validate(full=True)
    return batch.to_pylist()


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

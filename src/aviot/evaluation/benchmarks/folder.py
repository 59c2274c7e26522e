"""A benchmark's folder as the user has it: record files and videos somewhere below, found by their names."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aviot.evaluation.benchmarks.benchmark import Benchmark, Part
from aviot.evaluation.errors import ItemError
from aviot.evaluation.item import Item
from aviot.evaluation.reading import Items, refuse, values_of
from aviot.evaluation.tables import USUAL_SPLITS, all_but_bytes

RECORDS = ("*.parquet", "*.arrow", "*.jsonl", "*.json")
NO_RECORDS = frozenset({"dataset_infos.json", "dataset_dict.json", "dataset_info.json", "state.json"})
VIDEOS = frozenset({".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".gif"})
IMAGES = frozenset({".jpg", ".jpeg", ".png"})


def read_benchmark(benchmark: Benchmark, folder: Path) -> Items:
    """Every record of every part that is there; raises one error that names what is no record."""
    videos = Videos(folder)
    found: list[Item] = []
    problems: list[str] = []
    digests: list[str] = []
    for part in benchmark.parts:
        for file in record_files(folder, part, alone=len(benchmark.parts) == 1):
            with file.open("rb") as handle:
                digests.append(hashlib.file_digest(handle, "sha256").hexdigest())
            for where, _, record, problem in values_of(file, all_but_bytes):
                try:
                    if problem is not None:
                        raise ItemError(problem)
                    item = benchmark.item(record, part, f"{part.name}-{len(found) + 1}")
                    found.append(videos.placed(item, part))
                except ItemError as error:
                    problems.append(f"{file}, {where}: {error}")
    refuse(problems, folder, found)
    return Items(tuple(found), hashlib.sha256("".join(digests).encode()).hexdigest(), folder)


def record_files(folder: Path, part: Part, *, alone: bool) -> list[Path]:
    """The files of a part, by the hub's naming: its configuration's folder or name, then its split.

    A benchmark of one part may also lie there under other names, but not under another split's.
    """
    for pattern in RECORDS:
        files = sorted(path for path in folder.rglob(pattern) if path.name not in NO_RECORDS)
        if not files:
            continue
        wanted = part.configuration.lower()
        mine = [path for path in files if not wanted or wanted in _names(path, folder)]
        mine = mine or (files if alone else [])
        named = [path for path in mine if part.split in _names(path, folder)]
        return named or [path for path in mine if not USUAL_SPLITS.intersection(_names(path, folder))]
    return []


class Videos:
    """Video files and folders of frames below a folder, by name without ending."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in VIDEOS:
                self._by_name.setdefault(path.stem.lower(), []).append(path)
            elif path.suffix.lower() in IMAGES and path.parent not in self._by_name.get(path.parent.name.lower(), ()):
                self._by_name.setdefault(path.parent.name.lower(), []).append(path.parent)

    def placed(self, item: Item, part: Part) -> Item:
        """The item with its video as a path from the folder; as it was where there is no such video."""
        name = Path(item.video)
        there = self._by_name.get(name.stem.lower()) or self._by_name.get(name.name.lower()) or []
        if not there:
            return item
        wanted = (name.as_posix(), f"{part.folder}/{name.as_posix()}" if part.folder else name.as_posix())
        best = max(there, key=lambda path: sum(path.as_posix().endswith(f"/{end}") for end in wanted))
        return replace(item, video=str(best.relative_to(self._folder)))


def _names(path: Path, folder: Path) -> Sequence[str]:
    """What a record file is named by: the folders that it lies in, its name, and its name before a shard's number."""
    inside = path.relative_to(folder)
    return [*(part.lower() for part in inside.parts[:-1]), path.stem.lower(), path.stem.lower().split("-")[0]]

"""A benchmark: how its records become items and prompts, and how its records and videos are found on disk."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aviot.evaluation.fields import ItemError, scalars
from aviot.evaluation.item import Asked, Item, parse_item
from aviot.evaluation.reading import USUAL_SPLITS, Items, all_but_bytes, refuse, values_of
from aviot.utils.values import as_whole

Record = Mapping[str, Any]


RECORDS = ("*.parquet", "*.arrow", "*.jsonl", "*.json")
NO_RECORDS = frozenset({"dataset_infos.json", "dataset_dict.json", "dataset_info.json", "state.json"})
VIDEOS = frozenset({".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".gif"})
IMAGES = frozenset({".jpg", ".jpeg", ".png"})


@dataclass(frozen=True)
class Wording:
    """A prompt around a question: what introduces it, what stands over its options, and what follows.

    `label` is what each option gets before it, with its letter for L; empty where the record's options carry their own.
    """

    before: str = ""
    heading: str = ""
    label: str = "L. "
    after: str = ""

    def around(self, question: str, options: Sequence[str]) -> Asked:
        """The user turn; what asks is question and options."""
        labels = [self.label.replace("L", chr(ord("A") + place)) for place in range(len(options))]
        listed = "".join(f"\n{label}{option}" for label, option in zip(labels, options, strict=True))
        asked = question + (self.heading + listed if options else "")
        return Asked(f"{self.before}{asked}{self.after}", (len(self.before), len(self.before) + len(asked)))


@dataclass(frozen=True)
class Question:
    """What a record asks. `listed` are the options as the prompt lists them, `options` as replies are read by them."""

    text: str
    listed: Sequence[str]
    options: Sequence[str]
    answer: Any


@dataclass(frozen=True)
class Part:
    """A task of a benchmark: its name in lmms-eval, the dataset's configuration and split, what is asked and how."""

    name: str
    task: str
    configuration: str
    split: str
    question: Callable[[Record], Question]
    wording: Callable[[Record], Wording]
    folder: str = ""  # that its videos lie in, where the same name may stand for several


@dataclass(frozen=True)
class Benchmark:
    """One of the ten. `counted` is the part that its aggregate score is of, or none for all together."""

    name: str
    title: str
    parts: tuple[Part, ...]
    video: Callable[[Record], str]
    max_new_tokens: int = 64
    counted: str | None = None

    def part(self, name: str) -> Part:
        """A part by its name."""
        return next(part for part in self.parts if part.name == name)

    def item(self, record: Record, part: Part, number: str, video: str | None = None) -> Item:
        """The record as an item; ItemError where it is not in the benchmark's format."""
        try:
            asked = part.question(record)
            name, words = video or self.video(record), part.wording(record)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ItemError(f"it is no record of {part.task}: {type(error).__name__} {error}") from None
        index = as_whole(asked.answer) if asked.options else None
        answer = {"answer": asked.answer} if index is None else {"answer_index": index}
        told = {"video": name, "question": asked.text, "options": list(asked.options)}
        item = parse_item(told | answer, number)
        turn = words.around(asked.text, asked.listed)
        part_name = part.name if len(self.parts) > 1 else None
        return replace(item, asked=turn, part=part_name, columns=scalars(record))


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

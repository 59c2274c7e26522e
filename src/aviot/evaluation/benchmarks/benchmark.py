"""A benchmark: how its records become items and prompts, and how its records and videos are found on disk."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aviot.evaluation.fields import ItemError, scalars
from aviot.evaluation.item import Item, Prompt, parse_item
from aviot.evaluation.reading import USUAL_SPLITS, Items, all_but_bytes, read_records, refuse
from aviot.utils.values import as_whole

Record = Mapping[str, Any]

RECORDS = ("*.parquet", "*.arrow", "*.jsonl", "*.json")
METADATA_FILES = frozenset({"dataset_infos.json", "dataset_dict.json", "dataset_info.json", "state.json"})
VIDEOS = frozenset({".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".gif"})
IMAGES = frozenset({".jpg", ".jpeg", ".png"})


@dataclass(frozen=True)
class Wording:
    """The text around a question in a prompt: before it, above its options, and after it.

    `label` precedes each option, with its letter in place of L; empty if the record's options have their own labels.
    """

    before: str = ""
    heading: str = ""
    label: str = "L. "
    after: str = ""

    def prompt(self, question: str, options: Sequence[str]) -> Prompt:
        """Return the prompt; its question span is question and options."""
        labels = [self.label.replace("L", chr(ord("A") + index)) for index in range(len(options))]
        listed = "".join(f"\n{label}{option}" for label, option in zip(labels, options, strict=True))
        span = question + (self.heading + listed if options else "")
        return Prompt(f"{self.before}{span}{self.after}", (len(self.before), len(self.before) + len(span)))


@dataclass(frozen=True)
class Question:
    """A record's question.

    `listed` are the options as the prompt lists them, with labels of their own in some benchmarks; `options` are the
    bare texts, with which replies are compared. `answer` is an index or a text.
    """

    text: str
    listed: Sequence[str]
    options: Sequence[str]
    answer: Any


@dataclass(frozen=True)
class Part:
    """A part of a benchmark: its task in lmms-eval, the dataset's configuration and split, question and wording."""

    name: str
    task: str
    configuration: str
    split: str
    question: Callable[[Record], Question]
    wording: Callable[[Record], Wording]
    folder: str = ""  # directory of its videos, if names are not unique in the benchmark


@dataclass(frozen=True)
class Benchmark:
    """One of the paper's benchmarks. `scored_part` is the part that its overall score covers; None for all parts."""

    name: str
    title: str
    parts: tuple[Part, ...]
    video: Callable[[Record], str]
    max_new_tokens: int = 64
    scored_part: str | None = None

    def part(self, name: str) -> Part:
        """Return the part with this name."""
        return next(part for part in self.parts if part.name == name)

    def item(self, record: Record, part: Part, number: str, video: str | None = None) -> Item:
        """Return the item that a record describes; raise ItemError if it is not in the benchmark's format."""
        try:
            question = part.question(record)
            name, wording = video or self.video(record), part.wording(record)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ItemError(f"it is not a record of {part.task}: {type(error).__name__} {error}") from None
        index = as_whole(question.answer) if question.options else None
        answer = {"answer": question.answer} if index is None else {"answer_index": index}
        fields = {"video": name, "question": question.text, "options": list(question.options)}
        item = parse_item(fields | answer, number)
        prompt = wording.prompt(question.text, question.listed)
        part_name = part.name if len(self.parts) > 1 else None
        return replace(item, prompt=prompt, part=part_name, columns=scalars(record))


def read_benchmark(benchmark: Benchmark, folder: Path) -> Items:
    """Read the records of all parts that are on disk; raise one ItemError that lists every invalid record."""
    videos = VideoIndex(folder)
    found: list[Item] = []
    problems: list[str] = []
    digests: list[str] = []
    for part in benchmark.parts:
        for file in record_files(folder, part, is_only_part=len(benchmark.parts) == 1):
            with file.open("rb") as handle:
                digests.append(hashlib.file_digest(handle, "sha256").hexdigest())
            for where, _, record, problem in read_records(file, all_but_bytes):
                try:
                    if problem is not None:
                        raise ItemError(problem)
                    item = benchmark.item(record, part, f"{part.name}-{len(found) + 1}")
                    found.append(videos.locate(item, part.folder))
                except ItemError as error:
                    problems.append(f"{file}, {where}: {error}")
    refuse(problems, folder, found)
    return Items(tuple(found), hashlib.sha256("".join(digests).encode()).hexdigest(), folder)


def record_files(folder: Path, part: Part, *, is_only_part: bool) -> list[Path]:
    """Return the record files of a part by the Hub's naming: the configuration's directory or name, then the split.

    The only part of a benchmark may have files of any name that is not another split's.
    """
    for pattern in RECORDS:
        files = sorted(path for path in folder.rglob(pattern) if path.name not in METADATA_FILES)
        if not files:
            continue
        configuration = part.configuration.lower()
        of_part = [path for path in files if not configuration or configuration in _names(path, folder)]
        of_part = of_part or (files if is_only_part else [])
        of_split = [path for path in of_part if part.split in _names(path, folder)]
        return of_split or [path for path in of_part if not USUAL_SPLITS.intersection(_names(path, folder))]
    return []


class VideoIndex:
    """Video files and directories of frames below a directory, by name without suffix."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in VIDEOS:
                self._by_name.setdefault(path.stem.lower(), []).append(path)
            elif path.suffix.lower() in IMAGES and path.parent not in self._by_name.get(path.parent.name.lower(), ()):
                self._by_name.setdefault(path.parent.name.lower(), []).append(path.parent)

    def locate(self, item: Item, folder: str = "") -> Item:
        """Return the item with its video, if possible in `folder`, as a relative path; unchanged if there is none."""
        name = Path(item.video)
        candidates = self._by_name.get(name.stem.lower()) or self._by_name.get(name.name.lower()) or []
        if not candidates:
            return item
        suffixes = (name.as_posix(), f"{folder}/{name.as_posix()}" if folder else name.as_posix())
        best = max(candidates, key=lambda path: sum(path.as_posix().endswith(f"/{suffix}") for suffix in suffixes))
        return replace(item, video=str(best.relative_to(self._folder)))


def _names(path: Path, folder: Path) -> Sequence[str]:
    """Return the names of a record file: its directories, its stem, and its stem without a shard number."""
    inside = path.relative_to(folder)
    return [*(part.lower() for part in inside.parts[:-1]), path.stem.lower(), path.stem.lower().split("-")[0]]

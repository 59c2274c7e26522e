"""Local files of temporal grounding benchmarks: Charades-STA, ActivityNet Captions, QVHighlights, TimeLens-Bench."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aviot.evaluation.benchmarks.benchmark import VideoIndex
from aviot.evaluation.fields import ItemError
from aviot.evaluation.item import Item, Prompt, parse_item
from aviot.evaluation.reading import MAX_JSON_BYTES, Items, read_json_object, read_records, refuse
from aviot.grounding.spans import Span, bounded
from aviot.utils.values import as_number

BEFORE = "When does the following happen in the video?\n"
AFTER = "\nAnswer with its start and its end in seconds, in the form: from START to END seconds."
AFTER_SEVERAL = "\nAnswer with the start and the end of each time it happens, in the form: from START to END seconds."
NO_SPAN = "its annotated spans have no length within the video"


@dataclass(frozen=True)
class Query:
    """A record of a benchmark: a sentence, the spans in which it holds, and the video's length if the file says it."""

    where: str
    video: Any
    text: Any
    spans: Any
    duration: Any = None
    id: Any = None


Queries = Iterator[Query | tuple[str, str]]
"""Records in file order; a place and a problem where there is none."""


@dataclass(frozen=True)
class GroundingBenchmark:
    """A benchmark of temporal grounding: the names its file may have in a folder, and how that is read.

    With `several`, a sentence may hold in several spans, for which the prompt asks.
    """

    name: str
    title: str
    patterns: tuple[str, ...]
    queries: Callable[[Path], Queries]
    several: bool = False

    def file(self, source: Path) -> Path:
        """Return the benchmark's file: the source itself, or the only one of its name in a folder."""
        if not source.is_dir():
            return source
        for pattern in self.patterns:
            found = sorted(path for path in source.rglob(pattern) if path.is_file())
            if len(found) > 1:
                names = ", ".join(path.name for path in found[:5])
                raise ItemError(f"{source} has several files that may be {self.title}'s ({names}); name one of them")
            if found:
                return found[0]
        raise ItemError(f"{source} has no file of {self.title}; expected {' or '.join(self.patterns)}")

    def prompt(self, text: str) -> Prompt:
        """Return the user's turn; its question span is the sentence."""
        after = AFTER_SEVERAL if self.several else AFTER
        return Prompt(f"{BEFORE}{text}{after}", (len(BEFORE), len(BEFORE) + len(text)))

    def item(self, query: Query, default_id: str) -> Item:
        """Return a record as an item, not scored without a span in the video; raise ItemError if it is no record."""
        duration = None if query.duration is None else as_number(query.duration)
        if query.duration is not None and (duration is None or duration <= 0):
            raise ItemError(f"duration must be a number of seconds above 0, got {query.duration!r:.80}")
        spans = [[query.spans]] if query.spans is None else query.spans
        found = [_window(span, duration) for span in (spans if isinstance(spans, list) else [spans])]
        windows = tuple(window for window in found if window is not None)
        item = parse_item({"id": query.id, "video": query.video, "question": query.text}, default_id)
        columns = {"windows": len(windows)} | ({} if duration is None else {"duration": duration})
        return replace(
            item,
            problem=None if windows else NO_SPAN,
            prompt=self.prompt(item.question),
            windows=windows,
            duration=duration,
            columns=columns,
        )


def read_grounding(benchmark: GroundingBenchmark, source: Path, *, videos: Path | None = None) -> Items:
    """Read a benchmark's file; raise one ItemError that lists every invalid record.

    Videos are looked for by name below `videos`, by default below the directory of the file.
    """
    if videos is not None and not videos.is_dir():
        raise ItemError(f"{videos} is not a directory; name the one that holds the videos")
    file = benchmark.file(source)
    folder = videos or file.parent
    index = VideoIndex(folder)
    found: list[Item] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    for number, query in enumerate(benchmark.queries(file), 1):
        try:
            if isinstance(query, tuple):
                raise ItemError(query[1])
            item = index.locate(benchmark.item(query, f"{benchmark.name}-{number}"))
            if item.id in seen:
                raise ItemError(f"the id {item.id!r} is taken by {seen[item.id]}")
            seen[item.id] = query.where
            found.append(item)
        except ItemError as error:
            problems.append(f"{file}, {query[0] if isinstance(query, tuple) else query.where}: {error}")
    refuse(problems, file, found)
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return Items(tuple(found), digest, folder)


def _window(value: Any, duration: float | None) -> Span | None:
    """Return the part of an annotated span within the video, None if it is empty; raise ItemError for anything else."""
    ends = [as_number(end) for end in value] if isinstance(value, list | tuple) else []
    start, end = ends if len(ends) == 2 else (None, None)
    if start is None or end is None:
        raise ItemError(f"a span must be a start and an end in seconds, got {value!r:.80}")
    span = bounded(start, end, duration)
    return span if span is not None and span.length > 0 else None


def _charades_sta(file: Path) -> Queries:
    """Yield the lines `VIDEO START END##SENTENCE`."""
    if (size := file.stat().st_size) > MAX_JSON_BYTES:
        raise ItemError(f"{file} has {size:,} bytes, and may have {MAX_JSON_BYTES:,}")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ItemError(f"{file} is not text in UTF-8 ({error}); download it again") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        head, marks, sentence = line.partition("##")
        words = head.split()
        if not marks or len(words) != 3:
            yield f"line {number}", f"expected VIDEO START END##SENTENCE, got {line[:80]!r}"
            continue
        yield Query(f"line {number}", words[0], sentence, [[_number(word) for word in words[1:]]])


def _activitynet_captions(file: Path) -> Queries:
    """Yield the sentences of `{VIDEO: {"duration", "timestamps", "sentences"}}`."""
    for video, record in read_json_object(file).items():
        if not isinstance(record, Mapping) or not _are_parallel(record.get("timestamps"), record.get("sentences")):
            yield f"{video[:80]!r}", "expected an object with duration, and as many timestamps as sentences"
            continue
        for place, (span, text) in enumerate(zip(record["timestamps"], record["sentences"], strict=True)):
            yield Query(f"{video[:80]!r}, sentence {place + 1}", video, text, [span], record.get("duration"))


def _qvhighlights(file: Path) -> Queries:
    """Yield the records `{"qid", "query", "vid", "duration", "relevant_windows"}`, one per line."""
    for where, _, record, problem in read_records(file):
        if problem is not None or not isinstance(record, Mapping):
            yield where, problem or "expected an object with qid, query, vid, duration and relevant_windows"
            continue
        names = ("vid", "query", "relevant_windows", "duration", "qid")
        yield Query(where, *(record.get(name) for name in names))


def _timelens(file: Path) -> Queries:
    """Yield the queries of `[{"video", "duration", "queries": [{"query", "span" or "spans"}]}]`."""
    for where, _, record, problem in read_records(file):
        queries = record.get("queries") if isinstance(record, Mapping) else None
        if problem is not None or not isinstance(queries, list):
            yield where, problem or "expected an object with video, duration and queries"
            continue
        for place, query in enumerate(queries, 1):
            at = f"{where}, query {place}"
            if not isinstance(query, Mapping) or ("span" in query) == ("spans" in query):
                yield at, f"expected an object with query and either span or spans, got {query!r:.80}"
                continue
            spans = query["spans"] if "spans" in query else [query["span"]]
            yield Query(at, record.get("video"), query.get("query"), spans, record.get("duration"))


def _number(text: str) -> float | None:
    try:
        return as_number(float(text))
    except ValueError:
        return None


def _are_parallel(left: Any, right: Any) -> bool:
    return isinstance(left, list) and isinstance(right, list) and len(left) == len(right)


GROUNDING = {
    benchmark.name: benchmark
    for benchmark in (
        GroundingBenchmark("charades-sta", "Charades-STA", ("*charades_sta_test*.txt",), _charades_sta),
        GroundingBenchmark("activitynet-captions", "ActivityNet Captions", ("val_1.json",), _activitynet_captions),
        GroundingBenchmark("qvhighlights", "QVHighlights", ("*.jsonl",), _qvhighlights, several=True),
        GroundingBenchmark("timelens", "TimeLens-Bench", ("*.json", "*.jsonl"), _timelens, several=True),
    )
}
"""The benchmarks of temporal grounding, by name."""

"""Items and records: evaluation items, benchmark records, tables, training records and manifests."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutate import RAW, TEXTS, mutate_bytes, mutate_json, nasty_value
from fuzz.target import Target, require

TESTS = Path(__file__).parents[1]
PROMPTS = TESTS / "evaluation" / "task_prompts.json"
ITEMS: tuple[dict[str, Any], ...] = (
    {"id": "a", "video": "v.mp4", "question": "What?", "options": ["cat", "dog", "hen"], "answer": "B", "kind": "x"},
    {
        "id": 7,
        "video": "v.mp4",
        "question": "Which?",
        "options": {"A": "one", "B": "two"},
        "answer": "two",
        "seconds": 3,
    },
    {"video": {"path": "w.mp4"}, "question": "How many?", "choices": ["(A) 1", "(B) 2"], "correct_answer": "(A)"},
    {"id": "d", "video": "w.mp4", "question": "Why?", "answer": ["because", "so"]},
    {"id": "e", "video": "w.mp4", "question": "Who?", "option_a": "he", "option_b": "she", "answer_idx": 1},
    {"id": "f", "video": "v.mp4", "question": "Where?"},
)
ITEM_NAMES = (
    "options",
    "choices",
    "answer",
    "answer_idx",
    "option0",
    "option1",
    "A",
    "B",
    "video",
    "question",
    "id",
    "qid",
)
RECORDS: tuple[dict[str, Any], ...] = (
    {
        "id": "r0",
        "video": "a/0.mp4",
        "data_source": "0_30_s_academic_v0_1",
        "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "That."}],
    },
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "video", "video": "a/1.mp4"}, {"type": "text", "text": "What?"}]},
            {"role": "assistant", "content": "This."},
        ],
        "duration": 12.5,
    },
    {"videos": ["a/2.mp4"], "query": "<video>Who?", "response": "He.", "history": [["So?", "Yes."]], "system": "Hm."},
    {"video": "/videos/3.mp4", "instruction": "Say", "input": "what", "output": "It.", "id": 3},
)
RECORD_NAMES = ("video", "videos", "messages", "conversations", "image", "tools", "weight", "role", "from", "history")
MANIFEST = {
    "datasets": [{"json_path": "records.jsonl", "sampling_strategy": "first:2"}, {"json_path": "records.jsonl"}]
}


def prepare(sources: Path) -> None:
    """Write the items as tables, which only pyarrow can write."""
    import pyarrow
    from pyarrow import ipc, parquet

    table = pyarrow.Table.from_pylist([item for item in ITEMS if isinstance(item.get("video"), str)][3:])
    parquet.write_table(table, sources / "test.parquet")
    with ipc.new_stream(str(sources / "data.arrow"), table.schema) as stream:
        stream.write_table(table)


def control(sources: Path, folder: Path) -> None:
    """Write the items as they are."""
    _describe(folder, "items", "items.jsonl")
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))


def write(rng: Random, sources: Path, folder: Path) -> str:
    """Mutate items, a benchmark's records, a table, training records or a manifest."""
    kind = rng.choice(("items", "items", "benchmark", "table", "records", "records", "manifest"))
    return f"{kind}: {WRITERS[kind](rng, sources, folder)}"


def _describe(folder: Path, kind: str, file: str, **more: Any) -> None:
    (folder / "case.json").write_text(json.dumps({"kind": kind, "file": file, **more}))


def _lines(rng: Random, values: list[Any], names: tuple[str, ...]) -> tuple[bytes, str]:
    """Return values as JSONL or as an array, some of them mutated, and perhaps the file's bytes too."""
    done, parts = [], []
    bad = set(rng.sample(range(len(values)), rng.choice((1, 1, 2, len(values)))))
    for number, value in enumerate(values):
        data = json.dumps(value).encode()
        if number in bad:
            data, what = mutate_json(rng, value, names)
            done.append(f"{number} {what}")
        parts.append(data)
    form = rng.choice(("lines", "lines", "array"))
    whole = b"\n".join(parts) + b"\n" if form == "lines" else b"[" + b",\n".join(parts) + b"]"
    match rng.randrange(12):
        case 0:
            whole, what = mutate_bytes(rng, whole)
            done.append(what)
        case 1:
            whole = rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b" \n\t", b"\0", b"[", b"//\n")) + whole
            done.append("a beginning")
        case 2:
            whole += rng.choice((b"x", b"]", b"\0" * 10, b"{", *(raw.encode() for raw in RAW)))
            done.append("an end")
        case 3:
            whole = whole.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n\n", b"\x0b", "\u2028".encode())))
            done.append("line ends")
    return whole, f"{form}, {'; '.join(done)}"


def _write_items(rng: Random, sources: Path, folder: Path) -> str:
    data, what = _lines(rng, list(ITEMS), ITEM_NAMES)
    file = rng.choice(("items.jsonl", "items.json", "items"))
    (folder / file).write_bytes(data)
    _describe(folder, "items", file)
    return what


def _write_benchmark(rng: Random, sources: Path, folder: Path) -> str:
    known = {task: (name, part) for name, task, part in _tasks()}
    entry = rng.choice([entry for entry in json.loads(PROMPTS.read_text())["prompts"] if entry["task"] in known])
    name, (configuration, split) = known[entry["task"]]
    data, what = _lines(rng, [entry["record"]] * 2, tuple(entry["record"]))
    file = folder / (configuration or "data") / f"{split}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    _describe(folder, "benchmark", "", benchmark=name)
    return f"{entry['task']}, {what}"


def _tasks() -> list[tuple[str, str, tuple[str, str]]]:
    from aviot.evaluation.benchmarks.definitions import BENCHMARKS

    return [(each.name, part.task, (part.configuration, part.split)) for each in BENCHMARKS for part in each.parts]


def _write_table(rng: Random, sources: Path, folder: Path) -> str:
    file = rng.choice(("test.parquet", "data.arrow"))
    data, what = (sources / file).read_bytes(), "as it is"
    if rng.random() < 0.9:
        data, what = mutate_bytes(rng, data)
    (folder / "set").mkdir()
    (folder / "set" / file).write_bytes(data)
    if file.endswith(".arrow"):
        state, more = mutate_json(rng, {"_data_files": [{"filename": file}], "_split": "test"}, ("_data_files",))
        if rng.random() < 0.7:
            state, more = json.dumps({"_data_files": [{"filename": file}]}).encode(), ""
        (folder / "set" / "state.json").write_bytes(state)
        what += f"; {more}"
    _describe(folder, "items", "set")
    return f"{file}, {what}"


def _write_records(rng: Random, sources: Path, folder: Path) -> str:
    data, what = _lines(rng, list(RECORDS), RECORD_NAMES)
    (folder / "records.jsonl").write_bytes(data)
    _describe(folder, "records", "records.jsonl", policy=rng.choice(("skip", "refuse")))
    return what


def _write_manifest(rng: Random, sources: Path, folder: Path) -> str:
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    data, what = mutate_json(rng, MANIFEST, ("json_path", "sampling_strategy", "video_root", "datasets"))
    if rng.random() < 0.2:
        value = rng.choice(
            ("first:0", "end:101%", "random:1e3", "random:0.000000001%", "first:999999999999999", *TEXTS)
        )
        data, what = (
            json.dumps({"datasets": [{"json_path": "records.jsonl", "sampling_strategy": value}]}).encode(),
            value,
        )
    if rng.random() < 0.1:
        data, what = f"datasets: &d [*d, {nasty_value(rng)!r}]"[:500].encode("utf-8", "surrogatepass"), "an alias"
    (folder / "records.yaml").write_bytes(data)
    _describe(folder, "records", "records.yaml", policy=rng.choice(("skip", "refuse")))
    return what[:300]


WRITERS: dict[str, Callable[[Random, Path, Path], str]] = {
    "items": _write_items,
    "benchmark": _write_benchmark,
    "table": _write_table,
    "records": _write_records,
    "manifest": _write_manifest,
}


def check(folder: Path) -> str:
    """Read the items or records, and check those that were accepted."""
    case = json.loads((folder / "case.json").read_text())
    if case["kind"] == "records":
        return _check_records(folder, case)
    from aviot.evaluation.benchmarks.benchmark import read_benchmark
    from aviot.evaluation.benchmarks.definitions import BY_NAME
    from aviot.evaluation.reading import read_items

    if case["kind"] == "benchmark":
        found = read_benchmark(BY_NAME[case["benchmark"]], folder)
    else:
        found = read_items(folder / case["file"])
    require(len(found) >= 1, "no item, and no error")
    require(len({item.id for item in found.items}) == len(found), "two items have one id")
    for item in found.items:
        _check_item(item, is_plain=case["kind"] == "items")
    return f"{len(found)} items"


def _check_item(item: Any, *, is_plain: bool) -> None:
    """Check an item's fields, that it can be asked, and that it is the same when it is written down and read again."""
    from aviot.evaluation.item import ask, parse_item

    texts = (item.id, item.video, item.question, *item.options, *item.answers)
    for text in texts:
        require(isinstance(text, str) and bool(text.encode()), f"{text!r:.80} of {item!r:.200} is not text")
    require("\0" not in item.video and "\n" not in item.video, f"the video is {item.video!r:.80}")
    require(item.right is None or 0 <= item.right < len(item.options), f"option {item.right} of {len(item.options)}")
    require(item.has_answer or bool(item.problem), "there is no answer, and no reason why")
    require(item.question in ask(item.question, item.options, "x").text, "the prompt does not hold the question")
    if is_plain:
        again = parse_item(_as_record(item), item.id)
        same = (again.id, again.video, again.question, again.right, again.answers)
        require(
            same == (item.id, item.video, item.question, item.right, item.answers),
            f"{item!r:.300} becomes {again!r:.300}",
        )


def _as_record(item: Any) -> dict[str, Any]:
    """Return the simplest record of an item: options as they are, the answer by index or as texts."""
    record = {"id": item.id, "video": item.video, "question": item.question}
    if item.options:
        labelled = [f"{chr(ord('A') + place)}. {option}" for place, option in enumerate(item.options)]
        record["options"] = labelled
    if item.right is not None:
        return record | {"answer_idx": item.right}
    return record | ({"answer": list(item.answers)} if item.answers else {})


def _check_records(folder: Path, case: dict[str, Any]) -> str:
    from aviot.data import Corpus, DataConfig

    index = folder / "index"
    config = DataConfig(records=str(folder / case["file"]), bad_records=case["policy"], index_folder=str(index))
    corpus = Corpus.open(config)
    again = Corpus.open(config)
    require(len(corpus) == len(again) >= 1, f"{len(corpus)} records, and {len(again)} by the index")
    require(corpus.fingerprint == again.fingerprint, "the fingerprint by the index differs")
    for number in range(len(corpus)):
        located = corpus[number]
        record = located.record
        require(record == again[number].record, f"record {number} differs by the index")
        require(
            bool(record.turns) and all(q.strip() and a.strip() for q, a in record.turns), f"turns {record.turns!r:.200}"
        )
        require("<image>" not in record.turns[0][0] and ".." not in Path(record.video).parts, f"{record!r:.200}")
        require(record.seconds is None or 0 <= record.seconds < float("inf"), f"{record.seconds} s")
    require(
        not [path for path in index.iterdir() if path.suffix != ".safetensors"], "a temporary file beside the index"
    )
    shutil.rmtree(index)
    return f"{len(corpus)} records"


def errors() -> tuple[type[Exception], ...]:
    """Return what items and records that cannot be used raise."""
    from aviot.data.checks import DataError
    from aviot.evaluation.fields import ItemError

    return ItemError, DataError


TARGET = Target(
    name="items",
    prepare=prepare,
    control=control,
    write=write,
    check=check,
    errors=errors,
    modules=(
        *("aviot.data.corpus", "aviot.evaluation.reading", "aviot.evaluation.item", "pyarrow", "pyarrow.parquet"),
        *("aviot.evaluation.benchmarks.benchmark", "aviot.evaluation.benchmarks.definitions", "yaml", "pyarrow.ipc"),
    ),
    changes=("index", "index/*.safetensors"),
)

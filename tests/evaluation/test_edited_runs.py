"""Edited run files are refused with a message that names the line; they are never counted and give no traceback."""

import json
import math
import os
import shutil

import pytest
from evaluation_sets import rows, run, write_items
from test_evaluate_command import aviot, evaluated
from test_judge import YES, Server

from aviot.evaluation.config import EvaluationConfig
from aviot.evaluation.manifest import ManifestError, read_object
from aviot.evaluation.schema import is_too_deep
from aviot.utils.journal import JournalError, as_line

ANSWERED, FAILED = 0, 6  # lines of a whole run's part: an answer to multiple choice, and a video that is broken


def no_model(model):
    raise AssertionError("nothing is to be asked")


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole[0], tmp_path / "run")


def part_of(out):
    return out / "parts" / "rows-0000.jsonl"


def place(out, status):
    """Return the number of the first line of the part with a status."""
    return next(number for number, row in enumerate(rows(part_of(out))) if row["status"] == status)


def edit(path, number, change):
    """Change one row of a file."""
    lines = path.read_bytes().splitlines(keepends=True)
    changed = change(json.loads(lines[number]))
    lines[number] = changed if isinstance(changed, bytes) else json.dumps(changed).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def without(name):
    return lambda row: {key: value for key, value in row.items() if key != name}


def having(**values):
    return lambda row: row | values


def test_a_run_that_calls_its_methods_compressors_is_resumed_and_its_rows_are_read(made, whole, copied):
    """Version 0.1 wrote the key of a method as `compressor`, in rows and in the manifest."""

    def older(row):
        return {"compressor" if name == "method" else name: value for name, value in row.items()}

    for path in (part_of(copied), copied / "results.jsonl"):
        path.write_bytes(b"".join(map(as_line, map(older, rows(path)))))
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["identity"]["settings"] = [older(each) for each in manifest["identity"]["settings"]]
    (copied / "manifest.json").write_text(json.dumps(manifest))
    assert "method" not in rows(copied / "results.jsonl")[0]
    summary = run(made, copied, resume=True, loading=no_model)
    assert (summary.measures, rows(copied / "results.jsonl")) == (whole[1].measures, rows(whole[0] / "results.jsonl"))
    with pytest.warns(DeprecationWarning, match="is called methods now"):
        former = EvaluationConfig(items=made / "items.jsonl", model=made / "model", out=copied, compressors=("none",))
    assert former.methods == ("none",)


EDITS = {
    "of item 9999": (having(item=9999), "its item is 9999, the run has items 0 to 11"),
    "of item -1": (having(item=-1), "its item is -1"),
    "of item true": (having(item=True), "its item is True"),
    "of item text": (having(item="0"), "its item is '0'"),
    "of item list": (having(item=[0]), r"its item is \[0\]"),
    "of item 0.0": (having(item=0.0), "its item is 0.0"),
    "unknown setting": (having(setting="magic@4"), "its setting is 'magic@4', the run has aviot@2, aviot@4, none"),
    "no setting": (without("setting"), "it lacks setting"),
    "setting list": (having(setting=["none"]), "its setting is"),
    "other id": (having(id="other"), "its id is 'other' and must be"),
    "other video": (having(video="other.mp4"), "its video is 'other.mp4' and must be"),
    "other ratio": (having(ratio=3.0), "its ratio is 3.0 and must be"),
    "other method": (having(method="uniform"), "its method is 'uniform' and must be"),
    "no status": (without("status"), "it lacks status"),
    "other status": (having(status="great"), "its status is 'great'"),
    "status list": (having(status=[]), r"its status is \[\]"),
    "right by text": (having(correct="yes"), "its correct is 'yes'"),
    "right by number": (having(correct=1), "its correct is 1"),
    "right 100 times": (having(correct=100), "its correct is 100"),
    "other kind": (having(kind="magic"), "its kind is 'magic'"),
    "prediction number": (having(prediction=5), "its prediction is 5"),
    "frames text": (having(frames="8"), "its frames is '8'"),
    "tokens huge": (having(tokens_after=10**400), "its tokens_after is 1000"),
    "damage empty": (having(damage={}), r"its damage is \{\}"),
    "damage of no seconds": (
        having(damage={"claimed_seconds": 0, "missing_seconds": 1, "decoder_errors": 0}),
        "its damage is",
    ),
    "a verdict": (having(judge={"correct": True, "score": 5}), "it holds 'judge', which no row has"),
    "another key": (having(extra=1), "it holds 'extra', which no row has"),
    "NaN": (lambda row: as_line(row)[:-2] + b', "tokens_after": NaN}\n', "is not a row of a run"),
    "infinity": (lambda row: as_line(row)[:-2] + b', "tokens_after": -Infinity}\n', "is not a row of a run"),
    "no UTF-8": (lambda row: as_line(row | {"prediction": "?"}).replace(b'"?"', b'"\xff"'), "is not a row of a run"),
    "surrogates in UTF-8": (
        lambda row: as_line(row | {"id": "?"}).replace(b"?", b"\xed\xa0\x80"),
        "is not a row of a run",
    ),
    "UTF-16": (lambda row: json.dumps(row).encode("utf-16") + b"\n", "is not a row of a run"),
    "NUL": (lambda row: b"\0" * 100 + b"\n", "is not a row of a run"),
    "empty line": (lambda row: b"\n", "is not a row of a run"),
    "two rows on a line": (lambda row: as_line(row)[:-1] + b"\r" + as_line(row), "is not a row of a run"),
    "a list": (lambda row: [row], "is not a row of a run"),
    "deep": (lambda row: b'{"item": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "is not a row of a run"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_row_is_refused_and_left_as_it_is(made, copied, name):
    change, sentence = EDITS[name]
    number = place(copied, "answered")
    edit(part_of(copied), number, change)
    before = part_of(copied).read_bytes()
    with pytest.raises(
        JournalError, match=rf"rows-0000\.jsonl, line {number + 1} is not a row of .*{sentence}|{sentence}"
    ):
        run(made, copied, resume=True, loading=no_model)
    assert part_of(copied).read_bytes() == before


@pytest.mark.parametrize("name", ["of item 9999", "of item -1", "unknown setting", "no setting", "NaN", "a verdict"])
def test_an_edited_last_row_is_no_torn_one(made, copied, name):
    """What is whole and wrong is refused; only what a kill could leave makes way."""
    edit(part_of(copied), -1, EDITS[name][0])
    before = part_of(copied).read_bytes()
    with pytest.raises(JournalError, match=EDITS[name][1]):
        run(made, copied, resume=True, loading=no_model)
    assert part_of(copied).read_bytes() == before


@pytest.mark.parametrize("change", [having(reason=None), without("reason"), having(prediction="B")])
def test_an_edited_failure_is_refused(made, copied, change):
    edit(part_of(copied), place(copied, "failed"), change)
    with pytest.raises(JournalError, match="is not a row of this run"):
        run(made, copied, resume=True, loading=no_model)


def test_a_row_too_many_is_refused_by_the_command(made, copied):
    with part_of(copied).open("ab") as file:
        file.write(as_line(rows(part_of(copied))[0] | {"item": 9999}))
    done = evaluated(made, copied, "--resume")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "line 37 is not a row of this run: its item is 9999" in " ".join(done.stderr.split())


def test_rows_that_are_there_twice_count_once(made, whole, copied):
    part_of(copied).write_bytes(part_of(copied).read_bytes() * 2)
    assert run(made, copied, resume=True, loading=no_model) == whole[1]
    assert (copied / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()


def test_answers_that_contradict_each_other_are_told(made, whole, copied):
    number = place(copied, "answered")
    row = rows(part_of(copied))[number]
    with part_of(copied).open("ab") as file:
        file.write(as_line(row | {"prediction": "forged", "correct": not row["correct"]}))
    summary = run(made, copied, resume=True, loading=no_model)
    assert summary.measures == whole[1].measures
    assert summary.notes == (
        f"1 questions have two different answers, such as {row['id']}, {row['setting']}; the first of each counts",
    )


def test_line_ends_of_another_system_change_nothing(made, whole, copied):
    part_of(copied).write_bytes(part_of(copied).read_bytes().replace(b"\n", b"\r\n"))
    assert run(made, copied, resume=True, loading=no_model) == whole[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (having(item=9999), "its item is 9999"),
        (having(setting="magic"), "its setting is 'magic'"),
        (having(score=6), "a score from 0 to 5"),
        (having(score=math.nan), "is not a row of a run"),
        (having(score=True), "a score from 0 to 5"),
        (having(correct="yes"), "it must hold unjudged, or correct"),
        (having(unjudged="why"), "it must hold unjudged, or correct"),
        (without("item"), "it lacks item"),
        (having(item=0), "is not one that a judge is asked about"),
    ],
)
def test_an_edited_verdict_is_refused(made, judged, tmp_path, change, sentence):
    out = shutil.copytree(judged, tmp_path / "run")
    edit(out / "parts" / "verdicts-0000.jsonl", 1, change)
    with pytest.raises(JournalError, match=sentence):
        run(made, out, resume=True, loading=no_model)


@pytest.fixture(scope="module")
def judged(made, whole, tmp_path_factory):
    out = shutil.copytree(whole[0], tmp_path_factory.mktemp("judged") / "run")
    server = Server(YES)
    try:
        assert evaluated(made, out, "--resume", "--judge", server.url, "--judge-model", "m").exit_code == 0
    finally:
        server.close()
    return out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (having(item=9999), "line 1 is not a row of this run: its item is 9999"),
        (having(setting="magic"), "line 1 is not a row of this run: its setting is 'magic'"),
        (having(id="other"), "line 1 is not a row of this run: its id is 'other'"),
        (None, "line 37 is not a row of this run: it is a duplicate"),
    ],
)
def test_verify_tells_of_rows_that_are_not_the_runs(copied, change, sentence):
    results = copied / "results.jsonl"
    if change is None:
        results.write_bytes(results.read_bytes() + results.read_bytes().splitlines(keepends=True)[0])
    else:
        edit(results, 0, change)
    done = aviot("--verify", copied, "--sample", 1, "--json")
    result = json.loads(done.stdout)
    assert (done.exit_code, result["holds"]) == (1, False)
    assert any(sentence in line for line in result["broken"])


@pytest.mark.parametrize(
    "change",
    [having(item="0"), having(item=-1), having(status=[]), having(prediction=None), without("id"), having(x=1)],
)
def test_verify_refuses_rows_that_no_run_writes(copied, change):
    edit(copied / "results.jsonl", 0, change)
    done = aviot("--verify", copied)
    assert done.exit_code == 2
    assert "line 1 is not a row of this run: it" in " ".join(done.stderr.split())


def changed_manifest(out, place, value):
    found = json.loads((out / "manifest.json").read_text())
    *way, last = place.split(".")
    inner = found
    for name in way:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    (out / "manifest.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("identity", []),
        ("identity.items", None),
        ("identity.items.count", "12"),
        ("identity.items.count", ...),
        ("identity.items.limit", "x"),
        ("identity.items.benchmark", ["mvbench"]),
        ("identity.settings", {}),
        ("identity.settings", []),
        ("identity.settings", [{"method": "aviot"}]),
        ("identity.settings", [{"method": "aviot", "ratio": 4, "more": 1}]),
        ("identity.settings", [{"method": [], "ratio": 4}]),
        ("identity.sampling", {"fps": "2"}),
        ("identity.sampling", {"magic": 2}),
        ("identity.sampling", {"fps": 2, "sampling": "magic"}),
        ("identity.sampling", {"fps": 2, "sampling": 2}),
        ("identity.prompt", {}),
        ("identity.prompt.instructions", {"magic": "x"}),
        ("identity.generation.batch", "1"),
        ("identity.generation", ...),
        ("identity.seed", -1),
        ("identity.weights", {"model.safetensors": 5}),
        ("judge", {"model": "m"}),
        ("judge", "m"),
        ("places.items", None),
        ("places", []),
        ("starts", []),
        ("starts", [5]),
        ("starts", {}),
        ("format", 2),
        ("format", ...),
    ],
)
def test_an_edited_manifest_is_refused(made, copied, place, value):
    changed_manifest(copied, place, value)
    for done in (aviot("--verify", copied), evaluated(made, copied, "--resume")):
        assert (done.exit_code, done.stdout) == (2, "")
        assert "manifest.json" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 400 + b"1" + b"}" * 400,
        b'{"format": NaN}',
        b'{"format": ' + b"1" * 5000 + b"}",
        b"5",
        b"\0\0",
    ],
)
def test_a_damaged_file_of_a_run_is_named(copied, name, text):
    (copied / name).write_bytes(text)
    done = aviot("--verify", copied, "--sample", 1)
    assert done.exit_code == 2
    assert name in " ".join(done.stderr.split())


def put_special(path, kind):
    """Put a pipe, an endless device, a file of 4 GB that takes no room, or a link in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(4 * 10**9)
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("name", ["manifest.json", "summary.json"])
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "sparse"])
def test_what_is_no_file_or_too_large_is_not_read(copied, name, kind):
    put_special(copied / name, kind)
    with pytest.raises(ManifestError, match=rf"{name} (is not a regular file|cannot be read \(it has 4,000,000,000)"):
        read_object(copied / name)


@pytest.mark.parametrize("name", ["parts/rows-0000.jsonl", ".lock"])
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "../elsewhere"])
def test_a_run_writes_to_files_of_its_own_alone(made, copied, name, kind):
    put_special(copied / name, kind)
    with pytest.raises(ValueError, match="is not a regular file, as a run writes it"):
        run(made, copied, resume=True)
    assert not (copied / name).parent.with_name("elsewhere").exists()


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"a": NaN}', b"\xff", b"[" * 5000])
def test_a_damaged_generation_config_is_named(made, tmp_path, text):
    model = shutil.copytree(made / "model", tmp_path / "model")
    (model / "generation_config.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"generation_config\.json"):
        run(made, tmp_path / "run", model=model, loading=no_model)


def test_nesting_is_noticed_without_recursion():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    assert is_too_deep(deep)
    assert not is_too_deep({"a": [{"b": [1]}]})


def test_ratios_with_one_name_are_refused(made, tmp_path):
    result = EvaluationConfig(
        items=made / "items.jsonl", model=made / "model", out=tmp_path / "run", ratios=(4.0, 4.0000001)
    )
    with pytest.raises(ValueError, match="two budgets are both called aviot@4"):
        result.settings(4.0)


def test_strangers_words_reach_no_terminal(made, tmp_path):
    """Of ids, videos, questions and options, in the report, the files and what is verified."""
    hostile = "a\x1b[2J\x9b\r\x07\u202e[red]x[/red]"
    items = [
        {
            "id": f"1{hostile}",
            "video": "v0.mp4",
            "question": f"What {hostile}?",
            "options": ["cat", hostile],
            "answer": "A",
        },
        {
            "id": f"2{hostile}",
            "video": "no\u202e[red]x[/red].mp4",
            "question": "Who?",
            "answer": hostile,
            f"c{hostile}": hostile,
        },
        {"id": "=cmd()", "video": "v0.mp4", "question": "Who?"},
    ]
    write_items(tmp_path / "items.jsonl", items)
    out = tmp_path / "run"
    words = (tmp_path / "items.jsonl", "-m", made / "model", "--videos", made, "--out", out, "--max-new-tokens", "2")
    result = [aviot(*words), aviot(*words, "--resume", "--json"), aviot("--verify", out)]
    written = [path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(written) == 7
    for text in (*(done.output for done in result), *written):
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(text)
    assert "[red]x[/red]" in result[0].output
    assert "'=cmd()" in (out / "results.csv").read_text(encoding="utf-8")
    assert json.loads(result[1].stdout)["items"] == 3

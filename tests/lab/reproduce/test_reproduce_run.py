"""One reproduction with an untrained model: every row is answered as it says, and a killed run goes on."""

import copy
import errno
import itertools
import json
import re
import shutil
import sys
from dataclasses import replace
from io import StringIO
from zlib import crc32

import pytest
import torch
from common import GOLDEN
from rich.console import Console
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.cli import app
from aviot.evaluation.progress import RunningScore
from aviot.methods.aviot.analysis import allocation_distance, temporal_divergence
from aviot.utils.files import folder_lock
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.learning import answer, encode
from aviot_lab.reproduce import evaluator as evaluating
from aviot_lab.reproduce.evaluator import RowEvaluator
from aviot_lab.reproduce.journaling import JOURNAL
from aviot_lab.reproduce.progress import SECONDS_BETWEEN_LINES, RunProgress
from aviot_lab.reproduce.rows import ABLATION, aviot, required_rows
from aviot_lab.reproduce.run import Options, _measure, reproduce
from aviot_lab.reproduce.size import SIZES, Size
from aviot_lab.reproduce.write import write_report
from aviot_lab.world import World, WorldConfig, draw, render

SIZE = Size(
    questions=5,
    frames=16,
    ratios=(2.0, 4.0),
    ablation_ratios=(4.0,),
    curve=(4.0, 10.0, 12.0),
    ratio=4.0,
    long_questions=2,
    long_frames=32,
    sampled=16,
    long_ratios=(4.0,),
    videos=1,
    long_videos=1,
)
PARTS = ("question_cost", "question_allocation", "granularities", "fusion", "pilot")


@pytest.fixture(scope="module")
def world():
    return World(WorldConfig())


@pytest.fixture(scope="module")
def writer(tokenizer):
    return BatchWriter(tokenizer)


def mark_answers(patch):
    """Answers that follow from what was asked and how alone: an untrained model's are all wrong."""
    calls = []

    def answer_and_mark(model, u, batch, *, ratio, compressor, question_of, conditioned):
        found = answer(
            model, u, batch, ratio=ratio, compressor=compressor, question_of=question_of, conditioned=conditioned
        )
        switches = tuple(getattr(model.config.compressor, part) for part in PARTS)
        how = (compressor, ratio, switches, question_of, conditioned, u.shape[1])
        calls.append((*how, model.lm_head.weight.data_ptr(), batch, u))
        whose = model.lm_head.weight.sum().item()
        good = [crc32(repr((how, whose, ids)).encode()) % 3 > 0 for ids in batch.ids.tolist()]
        return replace(found, agrees=torch.tensor(good)[:, None])

    patch.setattr(evaluating, "answer", answer_and_mark)
    return calls


@pytest.fixture
def marked(monkeypatch):
    return mark_answers(monkeypatch)


def options(folder, out, **changed):
    folders = {"model": folder, "uniform": folder.parent / "tuned"}
    given = {"folders": folders, "setting": "small", "size": SIZE, "seed": 0, "out": out}
    return Options(**(given | {"device": torch.device("cpu")} | changed))


def load(folder):
    return VideoLM.from_pretrained(folder, device="cpu")


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A run's folder and report."""
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        mark_answers(patch)
        return out, reproduce(options(folder, out), load)


def test_every_row_is_answered_as_it_says(model, writer, world, marked):
    tuned = copy.deepcopy(model)
    rows = required_rows(SIZE, model.config.compressor, {"uniform"})
    batch = question_batch(writer, world, "test", (0,), SIZE.frames)
    record = RowEvaluator({"model": model, "uniform": tuned}, rows, SIZE, writer).short(batch)
    short = [row for row in rows if row.video == "short"]
    assert list(record["right"]) == [row.key for row in short]
    own = tuple(getattr(model.config.compressor, part) for part in PARTS)
    calls = dict(zip((row.key for row in short), (call[:-2] for call in marked), strict=True))
    here, there = (each.lm_head.weight.data_ptr() for each in (model, tuned))
    assert calls["uncompressed"] == ("none", None, own, None, True, 16, here)
    assert calls["segment-mean r2"] == ("segment-mean", 2.0, own, None, True, 16, here)
    assert calls["uniform r2"] == ("uniform", 2.0, own, None, True, 16, here)
    assert calls["uniform r2 fine-tuned"] == ("uniform", 2.0, own, None, True, 16, there)
    for switches in ABLATION.values():
        expected = tuple(switches.get(part, value) for part, value in zip(PARTS, own, strict=True))
        assert calls[aviot(4.0, **switches).key] == ("aviot", 4.0, expected, None, True, 16, here)
    assert calls["aviot r4 pilot=unbalanced"][2][-1] == "unbalanced"
    assert calls["aviot r4 query=none"][4] is False
    assert calls["aviot r4 query=rotated"][3] == [1, 2, 0]
    assert list(record["usage"]) == ["2", "4"]
    shares = record["usage"]["4"]
    for row in (0, 1):
        total = sum(shares[level][row] for level in ("global", "medium", "local"))
        assert total == pytest.approx(1, abs=1.501e-6)  # three shares, six digits each


def test_distances_are_those_of_compressions_made_one_by_one(model, writer, world):
    batch = question_batch(writer, world, "test", (0,), SIZE.frames)
    assert len(batch.questions) == 3
    record = RowEvaluator({"model": model}, required_rows(SIZE, model.config.compressor, set()), SIZE, writer).short(
        batch
    )
    with torch.no_grad():
        u = encode(model, batch.conversations.plans, 1)
        matched = [
            answer(model, u, batch.conversations, ratio=4.0, question_of=[row] * 3).compression.video(0)
            for row in range(3)
        ]
        without = answer(model, u, batch.conversations, ratio=4.0, conditioned=False).compression.video(2)
    pairs = {
        "questions, matched": (matched[0], matched[1]),
        "questions, rotated": (matched[1], matched[2]),
        "questions, none": (without, without),
        "matched to rotated": (matched[2], matched[0]),  # the last of the three
        "matched to none": (matched[2], without),
    }
    found = {one["kind"]: one for one in record["distances"]}
    assert found.keys() == pairs.keys()
    for kind, (one, other) in pairs.items():
        assert found[kind]["allocation"] == pytest.approx(allocation_distance(one.budgets[0], other.budgets[0]))
        expected = temporal_divergence(one.provenance().frames(), other.provenance().frames())
        assert found[kind]["temporal"] == pytest.approx(expected, abs=1e-5)
    assert found["questions, none"]["temporal"] == 0
    assert found["matched to none"]["temporal"] > 1e-6


def test_an_encoder_that_was_left_alone_encodes_once(model, writer):
    changed = copy.deepcopy(model)
    with torch.no_grad():
        next(changed.model.vision_tower.parameters()).add_(0.1)
    models = {"model": model, "uniform": copy.deepcopy(model), "segment-mean": changed}
    found = RowEvaluator(models, (), SIZE, writer).encoders
    assert found == {"model": "model", "uniform": "model", "segment-mean": "segment-mean"}


def test_sampled_frames_are_those_frames_at_their_times(writer, world, tokenizer, model):
    batch = question_batch(writer, world, "test", (0,), 32)
    at = [0, 15, 31]
    fewer = writer.conversations(batch.asked, frames=at, sampled=True)
    assert torch.equal(draw(fewer.plans, "cpu"), render(batch.scenes).frames[0, at])
    assert "0.00s,7.50s,15.50s" in tokenizer.decode(fewer.ids[0])
    assert "16.00 seconds" in tokenizer.decode(fewer.ids[0])
    with torch.no_grad():
        whole, some = (encode(model, batch.plans, 1) for batch in (batch.conversations, fewer))
    assert torch.allclose(whole[:, at], some, atol=1e-5)


def test_forms_do_not_depend_on_what_is_asked_together(writer, world):
    together = question_batch(writer, world, "test", (3, 4, 5), 16)
    alone = [row for number in (3, 4, 5) for row in question_batch(writer, world, "test", (number,), 16).asked]
    assert [turns for _, turns in together.asked] == [turns for _, turns in alone]
    forms = {"\nA." in turns[0][0] for _, turns in together.asked}
    assert forms == {True, False}


def test_nothing_is_counted_that_was_answered_from_nan(model, writer, world):
    spoilt = copy.deepcopy(model)
    with torch.no_grad():
        spoilt.lm_head.weight[0, 0] = torch.nan
    rows = [row for row in required_rows(SIZE, model.config.compressor, set()) if row.compressor == "none"]
    batch = question_batch(writer, world, "test", (0,), SIZE.long_frames)
    with pytest.raises(ValueError, match="the decoder's loss is not finite"):
        RowEvaluator({"model": spoilt}, rows, SIZE, writer).long(batch)


def test_long_videos_are_read_whole_or_at_the_sampled_frames(model, writer, world, tokenizer, marked):
    rows = required_rows(SIZE, model.config.compressor, set())
    batch = question_batch(writer, world, "test", (0,), SIZE.long_frames)
    record = RowEvaluator({"model": model}, rows, SIZE, writer).long(batch)
    calls = dict(zip(record["right"], marked, strict=True))
    own = tuple(getattr(model.config.compressor, part) for part in PARTS)
    expected = {"uncompressed sampled": ("none", None, 16), "aviot r4 sampled": ("aviot", 4.0, 16)}
    expected |= {f"aviot r{ratio} long": ("aviot", float(ratio), 32) for ratio in (4, 10, 12, 8)}
    assert calls.keys() == expected.keys()
    with torch.no_grad():
        features = encode(model, batch.conversations.plans, 1)
    at = [31 * i // 15 for i in range(16)]
    for key, (compressor, ratio, frames) in expected.items():
        assert calls[key][:6] == (compressor, ratio, own, None, True, frames)
        assert torch.allclose(calls[key][-1], features if frames == 32 else features[:, at], atol=1e-5)
        times = ",".join(f"{frame / 2:.2f}s" for frame in (range(32) if frames == 32 else at))
        assert f"at {times}." in tokenizer.decode(calls[key][-2].ids[0])


@pytest.mark.parametrize("kept", [2, 3])
def test_a_killed_run_goes_on_and_reports_the_same(folder, finished, tmp_path, marked, kept):
    out, whole = finished
    console = Console(file=StringIO(), width=80)
    now = itertools.count(step=SECONDS_BETWEEN_LINES)  # seconds enough for a line at each step
    journal = (out / JOURNAL).read_bytes().splitlines(keepends=True)
    assert len(journal) == 1 + 2 + 1  # what the run is, two batches of short videos, one of long ones
    (tmp_path / JOURNAL).write_bytes(b"".join(journal[:kept]) + journal[kept][:40])
    again = reproduce(options(folder, tmp_path), load, RunProgress(console, lambda: next(now)))
    rows = required_rows(SIZE, load(folder).backbone.model.config.compressor, {"uniform"})
    short = sum(row.video == "short" for row in rows)
    assert len(marked) == (3 - kept) * short + len(rows) - short  # the batches that were missing and no other
    assert again["figures"] == whole["figures"]
    score = RunningScore()  # of all batches, those before it was killed too
    for batch in map(json.loads, journal[1:]):
        for key, right in batch["right"].items():
            for good in right:
                score.add({"setting": key, "correct": bool(good)})
    said = console.file.getvalue().splitlines()
    assert said[:2] == ["loading the model", f"resuming: {kept - 1} of 3 batches are done"]
    assert said[2].startswith(f"drawing batch {kept} of 3; ")
    matched = [
        line for line in said if re.match(r"batch \d of 3: answering row \d+ of \d+; .* so far, about .* left", line)
    ]
    assert len(matched) == len(marked)  # every row, with the time that is left
    assert said[-2].startswith("batch 3 of 3 done; ")
    assert said[-2].endswith(f"; {score}")
    assert said[-1] == "writing the report"


def test_a_fresh_run_says_nothing_of_resuming(folder, writer, tmp_path):
    class Quick(RowEvaluator):
        def short(self, batch):
            return {"scenes": [scene.index for scene, _ in batch.asked], "right": {}}

        long = short

    console = Console(file=StringIO(), width=80)
    _measure(options(folder, tmp_path), Quick({}, (), SIZE, writer), {"format": 2}, RunProgress(console))
    assert console.file.getvalue().startswith("drawing batch 1 of 3; ")


def test_a_full_disk_is_named_and_finished_batches_stay(folder, writer, tmp_path, monkeypatch):
    class Full(RowEvaluator):
        def short(self, batch):
            if len((tmp_path / JOURNAL).read_bytes().splitlines()) == 2:
                monkeypatch.setattr("aviot.utils.journal.os.fsync", full)
            return {"scenes": [scene.index for scene, _ in batch.asked], "right": {}}

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    said = r"journal\.jsonl could not be written: No space left on device; finished batches are kept: free some space"
    with pytest.raises(OSError, match=said):
        _measure(options(folder, tmp_path), Full({}, (), SIZE, writer), {"format": 2})
    assert len((tmp_path / JOURNAL).read_bytes().splitlines()) >= 2  # what the run is, and its first batch


@pytest.mark.parametrize(("rows", "line"), [((0, 1, 2, 3, 3), 5), ((0, 2, 3), 2), ((0, 1, 3, 2), 3), ((0, 1, 0), 3)])
def test_batches_that_are_not_the_runs_are_refused(folder, finished, tmp_path, rows, line):
    out, _ = finished
    journal = (out / JOURNAL).read_bytes().splitlines(keepends=True)
    changed = b"".join(journal[row] for row in rows)
    (tmp_path / JOURNAL).write_bytes(changed)
    with pytest.raises(ValueError, match=rf"journal\.jsonl, line {line} is not the run's batch {line - 1} of 3"):
        reproduce(options(folder, tmp_path), load)
    assert (tmp_path / JOURNAL).read_bytes() == changed


def test_a_report_that_cannot_be_written_leaves_the_old_one(finished, tmp_path, monkeypatch):
    _, report = finished
    write_report(tmp_path, report)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(file):
        raise OSError("no space left")

    monkeypatch.setattr("aviot.utils.files.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(tmp_path, report | {"seed": 1})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_weights_that_were_not_fine_tuned_as_long_or_read_other_tokens_are_refused(folder, write_log, tmp_path):
    with pytest.raises(ValueError, match=r"model has the weights of \S+model: nothing was fine-tuned with uniform"):
        reproduce(options(folder, tmp_path, folders={"model": folder, "uniform": folder}), load)
    other = shutil.copytree(folder.parent / "tuned", tmp_path / "other")
    for name, steps in (("segment-mean", 40), ("uniform", 60)):
        write_log(other, name, steps)
        said = f"other was trained with {name} up to step {steps}; its row is of uniform up to step 40"
        with pytest.raises(ValueError, match=said):
            reproduce(options(folder, tmp_path / "run", folders={"model": folder, "uniform": other}), load)
    (other / "training.jsonl").unlink()
    with pytest.raises(ValueError, match=r"other has no training\.jsonl, so nobody can say .*export wrote"):
        reproduce(options(folder, tmp_path / "run", folders={"model": folder, "uniform": other}), load)
    write_log(other, "uniform", 40)
    tokens = json.loads((other / "tokenizer.json").read_text())
    numbers = tokens["model"]["vocab"]
    numbers["?"], numbers["!"] = numbers["!"], numbers["?"]
    (other / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(ValueError, match=r"other has other tokens than .*; fine-tune it from that model's run: python"):
        reproduce(options(folder, tmp_path / "run", folders={"model": folder, "uniform": other}), load)


def test_a_second_run_in_a_folder_is_refused_before_anything_is_loaded(folder, tmp_path):
    with folder_lock(tmp_path, ""), pytest.raises(ValueError, match="another process is writing into"):
        reproduce(options(folder, tmp_path), None)


def test_a_file_is_no_folder_for_a_run(folder, tmp_path):
    for name in ("notes", "plots"):
        (tmp_path / name).touch()
    for out, named in ((tmp_path / "notes", "notes"), (tmp_path, "plots")):
        with pytest.raises(ValueError, match=f"{named} is a file; name a folder for the run with -o"):
            reproduce(options(folder, out), load)


@pytest.mark.parametrize(
    "mine", [b'{"mine": 1}\nand a note of mine\n', b'{"mine": 1}\n{"also": 2}', b'{"mine": [1, 2, 3]}', b"notes\n\n"]
)
def test_a_journal_of_something_else_is_left_as_it_is(folder, tmp_path, mine):
    (tmp_path / JOURNAL).write_bytes(mine)
    with pytest.raises(ValueError, match=r"journal\.jsonl.* is not a (journal|row) of .*name another folder"):
        reproduce(options(folder, tmp_path), load)
    assert (tmp_path / JOURNAL).read_bytes() == mine


@pytest.mark.parametrize(
    "damage",
    [
        {"right": 5},
        {"right": {"uncompressed": []}},
        {"families": None},
        {"seconds": "x"},
        {"scenes": 7},
        {"scenes": [[1]]},
        {"usage": {"2": {"global": []}}},
        {"usage": {"x": {}}},
        {"usage": None},
        {"distances": [{"kind": "matched to none"}]},
        {"distances": [{"kind": 1, "scene": 0, "allocation": 0, "temporal": 0}]},
        {"more": 1},
        {"seconds": -1},
        {"seconds": float("inf")},
    ],
)
def test_a_batch_that_was_changed_is_refused(folder, finished, tmp_path, damage):
    head, batch, *_ = (finished[0] / JOURNAL).read_bytes().splitlines()
    changed = json.dumps(json.loads(batch) | damage).encode()
    (tmp_path / JOURNAL).write_bytes(head + b"\n" + changed + b"\n" + batch + b"\n")
    with pytest.raises(ValueError, match=r"line 2 is not (the run's batch 1 of 3|a row of a run); the file was"):
        reproduce(options(folder, tmp_path), load)


@pytest.mark.parametrize("change", ["more", "other", "missing", "half right", "not a mark"])
def test_answers_of_other_rows_are_refused(folder, finished, tmp_path, change):
    """Neither counted nor stumbled over when the figures are worked out."""
    head, *batches = (finished[0] / JOURNAL).read_bytes().splitlines()
    changed = json.loads(batches[1])
    right, count = changed["right"], len(changed["scenes"])
    first = next(iter(right))
    if change == "more":
        right["magic r4"] = [1.0] * count
    elif change == "other":
        right["magic r4"] = right.pop(first)
    elif change == "missing":
        del right[first]
    else:
        right[first] = [0.5 if change == "half right" else "1"] * count
    (tmp_path / JOURNAL).write_bytes(b"\n".join((head, batches[0], json.dumps(changed).encode(), batches[2], b"")))
    with pytest.raises(ValueError, match=r"line 3 is not the run's batch 2 of 3; the file was changed"):
        reproduce(options(folder, tmp_path), load)


def test_quantities_of_another_batch_are_refused(folder, finished, tmp_path):
    head, *batches = (finished[0] / JOURNAL).read_bytes().splitlines()
    changed = json.loads(batches[1])
    next(iter(changed["usage"].values())).popitem()
    (tmp_path / JOURNAL).write_bytes(b"\n".join((head, batches[0], json.dumps(changed).encode(), b"")))
    with pytest.raises(ValueError, match="line 3 is not the run's batch 2 of 3"):
        reproduce(options(folder, tmp_path), load)


@pytest.mark.parametrize("name", ["report.json", "report.md", "report.html"])
def test_what_stands_where_the_report_goes_is_noticed_before_anything_is_measured(folder, tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} is a folder; name a folder for the run with -o"):
        reproduce(options(folder, tmp_path), load)
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize("seed", [0, 3])
def test_all_videos_are_of_the_test_split_and_of_the_seed(folder, writer, tmp_path, seed):
    asked = []

    class Recorder(RowEvaluator):
        def short(self, batch):
            asked.extend(batch.scenes)
            return {"scenes": [scene.index for scene, _ in batch.asked], "right": {}}

        long = short

    _measure(options(folder, tmp_path, seed=seed), Recorder({}, (), SIZE, writer), {"format": 2})
    world = World(WorldConfig(seed=seed))
    assert [scene.frames for scene in asked] == [16, 16, 32]
    assert asked == [world.scene("test", scene.index, scene.frames) for scene in asked]


def test_another_run_does_not_go_on_in_its_place(folder, finished):
    out, _ = finished
    with pytest.raises(ValueError, match=r"was started with other settings: seed was 0, is 1\. Put them back, or name"):
        reproduce(options(folder, out, seed=1), load)


def test_the_report_says_what_was_found(finished):
    out, report = finished
    assert json.loads((out / "report.json").read_text()) == json.loads(json.dumps(report))
    markdown, page = ((out / name).read_text() for name in ("report.md", "report.html"))
    for line in report["figures"]["ablation"]["lines"]:
        low, high = line["interval"]
        cells = f"{line['title']} | 4 | {100 * line['accuracy']:.1f} | {100 * low:.1f} to {100 * high:.1f} |"
        assert cells in markdown
    assert page.count("data:image/svg+xml;base64,") == 6
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    for name in re.findall(r"\]\((\S+)\)", markdown):
        assert (out / name).is_file()
    assert report["models"]["model"]["sha256"][:12] in page


def test_fine_tuned_baselines_are_rows_of_their_own_or_missing(finished):
    out, report = finished
    controlled = report["figures"]["controlled"]
    assert [line["row"] for line in controlled["lines"] if line["title"] == "Uniform Keep, fine-tuned"] == [
        "uniform r2 fine-tuned",
        "uniform r4 fine-tuned",
    ]
    assert {one["title"] for one in controlled["missing"]} == {"Segment Mean, fine-tuned"}
    command = "python -m aviot_lab.demo_model.train RUN-segment-mean --compressor segment-mean"
    assert command in (out / "report.md").read_text()


def test_the_command_finds_a_finished_run(folder, finished, monkeypatch):
    """And asks nothing again: it takes no answers of an untrained model for those of the run."""
    out, report = finished
    monkeypatch.setitem(SIZES, "small", SIZE)
    tuned = folder.parent / "tuned"
    given = ["reproduce", "--model", str(folder), "--uniform", str(tuned), "--device", "cpu", "-o", str(out)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    last = report["figures"]["controlled"]["lines"][-1]
    assert f"AVIOT at ratio 4: {last['accuracy']:.1%} [" in done.stdout
    assert done.stderr.startswith("loading the model\nresuming: 3 of 3 batches are done\n")
    plain = CliRunner().invoke(app, [*given, "--json"])
    assert json.loads(plain.stdout)["figures"] == json.loads(json.dumps(report["figures"]))
    refused = CliRunner().invoke(app, [*given, "--setting", "full", "--questions", "100"])
    assert refused.exit_code == 2
    assert "loading" not in refused.stderr  # found before anything heavy


def test_an_output_that_cannot_be_written_is_refused_before_loading(tmp_path):
    (tmp_path / "notes").touch()
    done = CliRunner().invoke(app, ["reproduce", "-o", str(tmp_path / "notes" / "run")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"aviot: {tmp_path / 'notes'} is a file; name a folder for the run with -o\n"


def test_without_the_lab_the_command_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aviot_lab", None)  # as if it were not installed
    done = CliRunner().invoke(app, ["reproduce", "-o", str(tmp_path / "run")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "aviot reproduce needs the package aviot_lab, which is not installed; in a clone" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_model_of_other_pictures_is_refused(tmp_path):
    golden = GOLDEN.parent / "checkpoint"
    with pytest.raises(
        ValueError, match=r"pixels, the world's is 108; name a model that aviot_lab\.demo_model\.export"
    ):
        reproduce(options(golden, tmp_path, folders={"model": golden}), load)

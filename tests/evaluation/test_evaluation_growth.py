"""Limits, extending a run, token counts, damaged videos, and scores by column."""

import csv
import json
import shutil

import pytest
from evaluation_sets import load, rows, run, write_items
from test_evaluate_command import aviot

from aviot.backbones.llava_video.backbone import LlavaVideo
from aviot.evaluation import prediction
from aviot.evaluation.batching import Shard
from aviot.evaluation.run import Prepared
from aviot.video.frames import Damage

SMALL = {"ratios": (2.0,), "methods": ("aviot",)}


@pytest.fixture(scope="module")
def short(made, tmp_path_factory):
    """Five items about two videos, with columns."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "model").symlink_to(made / "model")
    for name in ("v0.mp4", "v1.mp4"):
        shutil.copy(made / name, folder)
    asked = {"question": "What?", "options": ["cat", "dog"], "answer": "B"}
    items = [
        asked
        | {"id": f"q{place}", "video": f"v{place % 2}.mp4", "category": ["sport", "food"][place // 3], "length": place}
        for place in range(5)
    ]
    write_items(folder / "items.jsonl", items)
    return folder


@pytest.fixture(scope="module")
def grown(short):
    """A run with three settings at once, which runs that grow are compared with."""
    run(short, short / "at-once", ratios=(2.0, 4.0), methods=("aviot", "none"))
    return short / "at-once"


def manifest(out):
    return json.loads((out / "manifest.json").read_text())


def test_settings_added_to_a_finished_run_ask_only_what_is_new(short, grown, tmp_path, monkeypatch):
    out = tmp_path / "run"
    run(short, out, **SMALL)
    old, part = (out / "results.jsonl").read_bytes().splitlines(), out / "parts" / "rows-0000.jsonl"
    before = part.read_bytes()
    asked = []
    answers = prediction.Predictor.answers
    monkeypatch.setattr(
        prediction.Predictor, "answers", lambda *given: (asked.append(given[-1].name), answers(*given))[1]
    )
    summary = run(short, out, resume=True, ratios=(2.0, 4.0), methods=("aviot", "none"))
    assert set(asked) == {"aviot@4", "none"}
    assert part.read_bytes().startswith(before)
    assert set(old) <= set((out / "results.jsonl").read_bytes().splitlines())
    assert (out / "results.jsonl").read_bytes() == (grown / "results.jsonl").read_bytes()
    assert (out / "summary.json").read_bytes() == (grown / "summary.json").read_bytes()
    assert [each.setting for each in summary.measures] == ["aviot@2", "aviot@4", "none"]
    assert [(each.setting, each.against) for each in summary.differences] == [("aviot@2", "none"), ("aviot@4", "none")]
    assert manifest(out)["starts"][1]["added"] == {"settings": ["aviot@4", "none"], "items": 0}
    assert "added" not in manifest(out)["starts"][0]
    with pytest.raises(ValueError, match=r"settings were aviot@2, aviot@4, none, are aviot@2: aviot@4, none must stay"):
        run(short, out, resume=True, **SMALL)
    assert aviot("--verify", out, "--sample", 3).exit_code == 0


def test_a_run_that_is_killed_while_it_grows_goes_on(short, grown, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(grown, out)
    stored = manifest(out)
    stored["identity"]["settings"] = stored["identity"]["settings"][:1]
    (out / "manifest.json").write_text(json.dumps(stored))
    part = out / "parts" / "rows-0000.jsonl"
    lines = part.read_bytes().splitlines(keepends=True)
    old = b"".join(line for line in lines if b'"aviot@2"' in line)
    new = [line for line in lines if b'"aviot@2"' not in line]
    part.write_bytes(old + new[0] + new[1][:40])  # torn while the first new rows were written
    run(short, out, resume=True, ratios=(2.0, 4.0), methods=("aviot", "none"))
    assert (out / "results.jsonl").read_bytes() == (grown / "results.jsonl").read_bytes()
    assert len(rows(part)) == 15


def test_two_processes_add_a_setting(short, grown, tmp_path):
    out = tmp_path / "run"
    more = {"ratios": (2.0, 4.0), "methods": ("aviot", "none"), "resume": True}
    run(short, out, **SMALL)
    assert run(short, out, shard=Shard(0, 2), **more) is None
    assert run(short, out, shard=Shard(1, 2), **more) is not None
    assert run(short, out, shard=Shard(0, 2), **more) is not None  # a finished run is summed up again
    assert (out / "results.jsonl").read_bytes() == (grown / "results.jsonl").read_bytes()


def test_a_limit_asks_the_first_items_and_can_be_raised(short, tmp_path):
    out = tmp_path / "run"
    assert run(short, out, limit=2, **SMALL).items == 2
    assert manifest(out)["identity"]["items"] | {"sha256": ""} == {
        "sha256": "", "count": 2, "limit": 2, "split": None, "benchmark": None,
    }  # fmt: skip
    first = (out / "results.jsonl").read_bytes()
    assert aviot("--verify", out, "--sample", 1).exit_code == 0
    with pytest.raises(ValueError, match=r"items\.limit was 2, is 1: it can only be raised"):
        run(short, out, resume=True, limit=1, **SMALL)
    with pytest.raises(ValueError, match=r"generation\.batch was 1, is 2"):
        run(short, out, resume=True, limit=2, batch=2, **SMALL)
    assert run(short, out, resume=True, limit=4, **SMALL).items == 4
    assert run(short, out, resume=True, **SMALL).items == 5
    assert (out / "results.jsonl").read_bytes().startswith(first)
    assert [start.get("added", {}).get("items") for start in manifest(out)["starts"]] == [None, 2, 1]
    run(short, tmp_path / "whole", limit=99, **SMALL)  # more than there are: the same run as without a limit
    assert (tmp_path / "whole" / "results.jsonl").read_bytes() == (out / "results.jsonl").read_bytes()
    assert manifest(tmp_path / "whole")["identity"] == manifest(out)["identity"]
    with pytest.raises(ValueError, match=r"items\.limit was None, is 3: it can only be raised"):
        run(short, out, resume=True, limit=3, **SMALL)


def test_a_limit_is_not_raised_where_questions_share_a_batch(short, tmp_path):
    run(short, tmp_path / "run", limit=2, batch=2, **SMALL)
    with pytest.raises(ValueError, match="with a batch above 1 it cannot be raised"):
        run(short, tmp_path / "run", resume=True, limit=4, batch=2, **SMALL)


def test_rows_count_visual_tokens(grown, made):
    per_frame = load(made / "model").backbone.tokens_per_frame
    for row in rows(grown / "results.jsonl"):
        assert row["tokens_before"] == row["frames"] * per_frame
        assert row["tokens_after"] == row["supports"] * per_frame
    stored = {each["setting"]: each for each in json.loads((grown / "summary.json").read_text())["tokens"]}
    assert stored["none"]["before"] == stored["none"]["after"] > stored["aviot@2"]["after"] > stored["aviot@4"]["after"]


@pytest.fixture
def damaged(monkeypatch):
    """Reading v1.mp4 finds it damaged."""
    damage = Damage(claimed_seconds=10.0, missing_seconds=4.3, decoder_errors=2)
    read = prediction.Predictor.read

    def reads(self, path):
        video = read(self, path)
        if path.name == "v1.mp4":
            object.__setattr__(video, "damage", damage)
        return video

    monkeypatch.setattr(prediction.Predictor, "read", reads)
    return damage


def test_damaged_videos_are_counted_and_listed(short, grown, tmp_path, damaged):
    out = tmp_path / "run"
    words = (short / "items.jsonl", "-m", short / "model", "-r", 2, "--max-new-tokens", 3, "-o", out)
    done = aviot(*words)
    assert done.exit_code == 0, done.output
    assert "1 of 2 videos are damaged" in done.stdout
    assert f"v1.mp4: {damaged}" in done.stdout
    stored = json.loads((out / "summary.json").read_text())
    assert stored["damaged"] == [{"video": "v1.mp4", "damage": str(damaged)}]
    found = rows(out / "results.jsonl")
    expected = {"claimed_seconds": 10.0, "missing_seconds": 4.3, "decoder_errors": 2}
    assert [row.get("damage") for row in found] == [None, expected, None, expected, None]
    whole = [row for row in rows(grown / "results.jsonl") if row["setting"] == "aviot@2"]
    assert [{**row, "damage": None} for row in found] == [{**row, "damage": None} for row in whole]
    assert f"v1.mp4: {damaged}" in (out / "summary.md").read_text()
    lines = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [(line["value"], line["note"]) for line in lines if line["table"] == "damaged"] == [("v1.mp4", str(damaged))]
    before = (out / "results.jsonl").read_bytes()
    again = aviot(*words, "--resume", "--json")
    assert json.loads(again.stdout)["damaged"] == stored["damaged"]
    assert (out / "results.jsonl").read_bytes() == before


def test_a_damaged_video_that_fails_later_keeps_its_damage(short, tmp_path, damaged, monkeypatch):
    def fails(self, videos, pixels=None):
        raise RuntimeError("no memory")

    monkeypatch.setattr(LlavaVideo, "encode", fails)
    summary = run(short, tmp_path / "run", limit=2, **SMALL)
    assert [each.video for each in summary.damaged] == ["v1.mp4"]
    assert len(summary.failed) == 2


def test_scores_by_column_of_a_finished_run(short, grown, tmp_path):
    def refuse_to_load(model):
        raise AssertionError("nothing is left to ask")

    out = tmp_path / "run"
    shutil.copytree(grown, out)
    settings = {"ratios": (2.0, 4.0), "methods": ("aviot", "none")}
    summary = run(short, out, resume=True, by=("category", "length"), loading=refuse_to_load, **settings)
    found = {(g.column, g.value): {m.setting: m.counted for m in g.measures} for g in summary.groups}
    assert found[("category", "sport")] == {"aviot@2": 3, "aviot@4": 3, "none": 3}
    assert found[("category", "food")] == {"aviot@2": 2, "aviot@4": 2, "none": 2}
    assert [value for column, value in found if column == "length"] == ["0", "1", "2", "3", "4"]
    assert "## multiple choice by category" in (out / "summary.md").read_text()
    lines = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert [line["category"] for line in lines[::3]] == ["sport", "sport", "sport", "food", "food"]
    assert (out / "results.jsonl").read_bytes() == (grown / "results.jsonl").read_bytes()


def test_a_column_that_is_not_there_is_refused_before_anything_is_written(short, tmp_path):
    done = aviot(short / "items.jsonl", "-m", short / "model", "--by", "genre", "--output", tmp_path / "run")
    assert done.exit_code == 2
    assert "no item has the column 'genre'; they have 'category', 'length'" in done.stderr
    assert not (tmp_path / "run").exists()


def test_output_has_one_destination_under_three_names(short, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        Prepared, "of", lambda config: seen.append(config.out) or (_ for _ in ()).throw(ValueError("x"))
    )
    for name in ("--output", "-o", "--out"):
        aviot(short / "items.jsonl", "-m", short / "model", name, tmp_path / "there")
    assert seen == [tmp_path / "there"] * 3

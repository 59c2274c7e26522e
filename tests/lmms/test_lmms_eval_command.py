"""The real `lmms-eval` command, offline, on real mp4 files, beside `aviot evaluate` on the same items."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmms_eval", reason="lmms-eval wants an environment of its own: make test-lmms-eval")
from harness import lmms_eval, make_task, write_task
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
import folders

from aviot.cli import app

pytestmark = pytest.mark.lmms_eval
SETTINGS = {
    "aviot@4": "ratio=4",
    "uniform@4": "ratio=4,compressor=uniform",
    "segment-mean@4": "ratio=4,compressor=segment-mean",
    "none": "compressor=none",
}


@pytest.fixture(scope="module")
def evaluated(local):
    """Score and replies of `aviot evaluate` with every setting."""
    folder, _ = local
    return ours(folder, folder / "ours")


def ours(folder, out, *words):
    chosen = [word for name in ("aviot", "uniform", "segment-mean", "none") for word in ("--compressor", name)]
    told = [folder / "items.jsonl", "-m", folder / "model", "-r", 4, *chosen, "--max-new-tokens", 1, "--out", out]
    done = CliRunner().invoke(app, ["evaluate", *map(str, told), *words])
    assert done.exit_code == 0, done.output
    summary = json.loads((out / "summary.json").read_text())
    rows = list(map(json.loads, (out / "results.jsonl").read_text().splitlines()))
    return {
        each["setting"]: {
            "score": each["value"],
            "replies": [row.get("prediction") for row in rows if row["setting"] == each["setting"]],
            "tokens": [(r["tokens_before"], r["tokens_after"]) for r in rows if r["setting"] == each["setting"]],
        }
        for each in summary["measures"]
    }


@pytest.mark.parametrize("setting", SETTINGS)
def test_scores_and_replies_are_those_of_aviot_evaluate(local, evaluated, tmp_path, setting):
    folder, items = local
    found = lmms_eval(folder, tmp_path / "out", f"pretrained={folder / 'model'},{SETTINGS[setting]}")
    assert found["replies"] == evaluated[setting]["replies"]
    assert found["score"] == pytest.approx(evaluated[setting]["score"])
    assert len(found["replies"]) == len(items)
    told = [(counts["tokens_before"], counts["tokens_after"]) for counts in found["tokens"]]
    assert told == evaluated[setting]["tokens"]
    assert all(before > after for before, after in told) == (setting != "none")
    assert {counts["output_tokens"] for counts in found["tokens"]} == {1}
    assert 0 < found["score"] < 1, "a score that any model would have shows nothing"
    assert len(set(found["replies"])) > 2


@pytest.mark.parametrize("family", ["qwen2.5-vl", "internvl"])
def test_other_families(local, tmp_path, family):
    """Frames are scaled by torch there, in the process that reads a video: with the packages of this environment."""
    folder, items = local
    model = folders.save(family, tmp_path / "model")
    told = ["-m", str(model), "-r", "4", "--max-new-tokens", "1", "--out", str(tmp_path / "ours")]
    done = CliRunner().invoke(app, ["evaluate", str(folder / "items.jsonl"), *told])
    assert done.exit_code == 0, done.output
    rows = list(map(json.loads, (tmp_path / "ours" / "results.jsonl").read_text().splitlines()))
    found = lmms_eval(folder, tmp_path / "out", f"pretrained={model},ratio=4")
    assert found["replies"] == [row["prediction"] for row in rows]
    assert len(found["replies"]) == len(items)
    counts = [(counts["tokens_before"], counts["tokens_after"]) for counts in found["tokens"]]
    assert counts == [(row["tokens_before"], row["tokens_after"]) for row in rows]
    assert all(before > after > 0 for before, after in counts)


def test_settings_differ(evaluated):
    assert len({tuple(each["replies"]) for each in evaluated.values()}) == len(SETTINGS)


def test_sampling_and_batches_are_passed_on(local, tmp_path):
    folder, _ = local
    expected = ours(folder, tmp_path / "ours", "--frames", "8", "--batch", "3")["aviot@4"]
    told = f"pretrained={folder / 'model'},ratio=4,frames=8"
    found = lmms_eval(folder, tmp_path / "out", told, "--batch_size", "3")
    assert (found["score"], found["replies"]) == (pytest.approx(expected["score"]), expected["replies"])


def test_two_processes_answer_the_same(local, evaluated, tmp_path):
    folder, _ = local
    found = lmms_eval(folder, tmp_path / "out", f"pretrained={folder / 'model'},ratio=4", processes=2)
    assert found["replies"] == evaluated["aviot@4"]["replies"]
    assert found["score"] == pytest.approx(evaluated["aviot@4"]["score"])


def test_a_broken_and_a_missing_video_are_listed_and_wrong(local, tmp_path):
    folder, _ = local
    items = make_task(tmp_path, scenes=1, questions=2)
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 99)
    more = [items[0] | {"id": name, "video": f"{name}.mp4"} for name in ("broken", "missing")]
    write_task(tmp_path, [*items, *more])
    manifest = tmp_path / "manifest.json"
    told = f"pretrained={folder / 'model'},ratio=4,manifest={manifest}"
    found = lmms_eval(tmp_path, tmp_path / "out", told)
    assert found["replies"][2:] == ["-", "-"]
    assert found["tokens"][2:] == [None, None]
    assert "2 of 4 questions could not be asked" in found["said"]
    assert str(tmp_path / "broken.mp4") in found["said"]
    written = json.loads(manifest.read_text())
    assert written["versions"]["lmms-eval"] == "0.7.3"
    assert written["versions"]["av"].startswith("15.")
    assert len(written["failed_here"]) == 2
    assert written["weights"]["model.safetensors"]
    assert written["sampling"]["max_frames"] == 224


def test_a_wrong_compressor_is_refused(local, tmp_path):
    folder, _ = local
    with pytest.raises(AssertionError, match="method must be one of"):
        lmms_eval(folder, tmp_path / "out", f"pretrained={folder / 'model'},compressor=magic")

"""The `aviot evaluate` command: summary, JSON, judge, --verify, exit codes."""

import json
import re
import shutil

import pytest
from clips import encode
from evaluation_sets import OPTIONS, rows, write_items
from test_judge import YES, Server, reply, says
from typer.testing import CliRunner

from aviot.cli import app
from aviot.evaluation import prediction


def aviot(*words):
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)], env={"COLUMNS": "140"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def evaluated(made, out, *words):
    return aviot(made / "items.jsonl", "-m", made / "model", *OPTIONS, "--out", out, *words)


def test_the_summary_says_first_what_went_wrong(made, whole):
    done = evaluated(made, whole[0], "--resume")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"2 of 12 items could not be asked and count as wrong (videos in {made}):"
    assert "missing (nowhere.mp4): there is no file nowhere.mp4" in done.stdout
    assert "no file" in done.stdout
    assert "1 of 12 items have no usable answer and are not scored:" in done.stdout
    assert "multiple choice" in done.stdout
    assert json.loads(evaluated(made, whole[0], "--resume", "--json").stdout)["items"] == 12


def test_nothing_that_can_be_asked_is_exit_code_1(made, tmp_path):
    items = write_items(tmp_path / "items.jsonl", [{"video": "no.mp4", "question": "?", "answer": "x"}])
    done = aviot(items, "-m", made / "model", "--out", tmp_path / "run")
    assert done.exit_code == 1
    assert "no item could be asked" in done.stderr
    assert "exact match" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give ITEMS, or --verify RUN"),
        (("{made}/items.jsonl", "-m", "/nowhere"), "no such folder"),
        (("/nowhere.jsonl", "-m", "{made}/model"), "no such file"),
        (("{made}/items.jsonl", "-m", "{made}/model", "-r", "0.5"), "ratio must be"),
        (("{made}/items.jsonl", "-m", "{made}/model", "--compressor", "magic"), "method must be one of"),
        (("{made}/items.jsonl", "-m", "{made}/model", "--batch", "0"), "batch must be"),
        (("{made}/items.jsonl", "-m", "{made}/model", "--out", "{made}/items.jsonl"), "is a file"),
        (
            ("{made}/items.jsonl", "-m", "{made}/model", "--out", "{made}/none", "--resume"),
            "no run to resume; start a new one (without --resume)",
        ),
        (("{made}/items.jsonl", "-m", "{made}/model", "--out", "{made}/whole"), "another output directory (--resume)"),
        (("{made}/items.jsonl", "-m", "{made}/model", "--retry"), "add --resume"),
        (
            ("{made}/items.jsonl", "-m", "{made}/model", "--judge", "http://x", "--judge-model", " "),
            "--judge-model must name the judge's model",
        ),
        (("{made}/items.jsonl", "-m", "{made}/model", "--judge", "ftp://x"), "http or https"),
        (("{made}/items.jsonl", "-m", "{made}/model", "--judge", "http://x", "--judge-key", "NOPE"), "it is not set"),
        (("--verify", "{made}"), "is not a complete evaluation run"),
        (("--verify", "{made}", "-r", "2", "--frames", "8"), "leave out the options for ratio, sampling"),
    ],
)
def test_mistakes(made, whole, words, sentence):
    done = aviot(*(word.format(made=made) for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_verify_says_that_a_run_repeats(made, whole):
    done = aviot("--verify", whole[0], "--sample", 9)
    assert done.exit_code == 0, done.stdout
    assert done.stdout == "9 of 9 answers repeat; the run holds\n"


def test_verify_finds_what_was_changed(whole, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "run")
    found = rows(out / "results.jsonl")
    for row in found:
        if row["status"] == "answered":
            row |= {"prediction": "B", "correct": True}
    write_items(out / "results.jsonl", found)
    done = aviot("--verify", out, "--sample", 36, "--json")
    result = json.loads(done.stdout)
    assert (done.exit_code, result["holds"], result["rerun"], result["repeated"]) == (1, False, 36, 6)
    assert any("is not the file that summary.json summarises" in line for line in result["broken"])
    assert any("its answer scores" in line for line in result["broken"])
    assert "now" in result["changed"][0]


def test_a_split_that_is_not_chosen_is_refused_with_its_flag(made, tmp_path):
    for split in ("train", "test"):
        write_items(tmp_path / f"{split}.jsonl", [{"video": "v0.mp4", "question": "What?", "answer": "red"}])
    done = aviot(tmp_path, "-m", made / "model")
    assert done.exit_code == 2
    assert "has the splits test, train; choose one of them (--split)" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("manifest.json", '{"format": 1, "judge": null}', "must hold .* it lacks identity, places, starts"),
        ("results.jsonl", '{"item": 0, "status": "answered"}\n', "line 1 is not a row .* lacks id, setting, correct"),
        ("results.jsonl", "", "has no results.jsonl; resume the run and let it finish first \\(--resume\\)"),
    ],
)
def test_a_run_that_is_none_cannot_be_verified(whole, tmp_path, name, text, sentence):
    shutil.copytree(whole[0], tmp_path / "run")
    (tmp_path / "run" / name).write_text(text)
    done = aviot("--verify", tmp_path / "run")
    assert done.exit_code == 2
    assert re.search(sentence, done.stderr)


def test_what_fails_with_one_setting_is_listed_with_it(made, tmp_path, monkeypatch):
    before = prediction.Predictor.answers

    def fails(self, session, items, setting):
        if setting.name == "none" and items[0].id == "open-1":
            raise ValueError("the prompt is too long")
        return before(self, session, items, setting)

    monkeypatch.setattr(prediction.Predictor, "answers", fails)
    one = [item for item in rows(made / "items.jsonl") if item["id"] == "open-1"]
    write_items(tmp_path / "items.jsonl", one)
    done = aviot(tmp_path / "items.jsonl", "-m", made / "model", *OPTIONS, "--out", tmp_path / "run", "--videos", made)
    assert "open-1 (v1.mp4; none): the prompt is too long" in done.stdout
    assert done.exit_code == 0, "it was asked with the others"


def test_verify_notices_other_items(made, whole, tmp_path):
    items = rows(made / "items.jsonl")
    items[0]["question"] = "Another question?"
    moved = write_items(tmp_path / "items.jsonl", items)
    done = aviot(moved, "--verify", whole[0], "--videos", made, "--sample", 1)
    assert done.exit_code == 1
    assert "differs: items.sha256 was" in done.stdout


def test_a_judge_that_fails_for_some_is_reported_and_asked_again(made, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    out = tmp_path / "run"
    judge = ("--judge-model", "judge", "--judge-key", "JUDGE_KEY", "--judge-attempts", "1")
    server = Server(YES, says("{'pred': 'no', 'score': 1}"), says("nonsense"))
    try:
        done = evaluated(made, out, "--judge", server.url, *judge, "--json")
    finally:
        server.close()
    result = json.loads(done.stdout)
    assert sum(len(problem["settings"]) for problem in result["unjudged"]) == 7
    assert all("malformed reply" in problem["reason"] for problem in result["unjudged"])
    judged = [m for m in result["measures"] if m["name"] == "judge: correct"]
    assert sum(m["unjudged"] for m in judged) == 7
    assert sum(m["counted"] for m in judged) == 2 + 3  # two verdicts, and the missing video once a setting
    before = (out / "parts" / "rows-0000.jsonl").read_bytes()
    server = Server(YES)
    try:
        done = evaluated(made, out, "--judge", server.url, *judge, "--resume")
    finally:
        server.close()
    assert len(server.requests) == 7
    assert "not judged" not in done.stdout
    assert (out / "parts" / "rows-0000.jsonl").read_bytes() == before
    found = [row["judge"] for row in rows(out / "results.jsonl") if "judge" in row]
    assert len(found) == 9
    assert sum(verdict["correct"] for verdict in found) == 8
    everything = "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert "secret" not in everything
    assert '"model": "judge"' in everything


def test_a_judge_that_turns_everyone_away_is_asked_little(made, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    server = Server(reply({"error": "bad key"}, 401))
    try:
        done = evaluated(made, tmp_path / "run", "--resume", "--judge", server.url, "--judge-model", "m")
    finally:
        server.close()
    assert done.exit_code == 0
    assert "3 of 12 items were not judged and are not in the judge's figures:" in done.stdout
    assert "HTTP 401" in done.stdout
    assert len(server.requests) <= 8


def test_the_judge_of_a_run_may_not_change(made, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    server = Server(YES)
    try:
        evaluated(made, tmp_path / "run", "--resume", "--judge", server.url, "--judge-model", "one")
        done = evaluated(made, tmp_path / "run", "--resume", "--judge", server.url, "--judge-model", "two")
    finally:
        server.close()
    assert done.exit_code == 2
    assert "judged by one, not two" in done.stderr


def test_videos_can_be_read_at_their_keyframes(made, tmp_path):
    """Read 4 frames of 12 seconds with a keyframe every 4; the run records it, and is verified and resumed so."""
    encode(tmp_path / "v.mp4", pictures=300, options={"g": "100", "bf": "3", "sc_threshold": "0"})
    items = write_items(tmp_path / "items.jsonl", [{"video": "v.mp4", "question": "What?", "answer": "x"}])
    words = (items, "-m", made / "model", "-r", "2", "--frames", "4", "--max-new-tokens", "2", "--out")
    counts = {}
    for mode in ("times", "keyframes"):
        assert aviot(*words, tmp_path / mode, "--sampling", mode).exit_code == 0
        (row,) = rows(tmp_path / mode / "results.jsonl")
        counts[mode] = row["frames"]
        done = aviot("--verify", tmp_path / mode, "--device", "cpu")
        assert done.exit_code == 0, done.output
    assert counts == {"times": 4, "keyframes": 3}
    other = aviot(*words, tmp_path / "keyframes", "--resume")
    assert other.exit_code == 2
    assert "sampling.sampling was 'keyframes', is None" in other.stderr.replace("\n", " ")
    refused = aviot("--verify", tmp_path / "times", "--sampling", "keyframes")
    assert "leave out the options for sampling" in refused.stderr.replace("\n", " ")
    assert "keyframes, got 'all'" in aviot(*words, tmp_path / "all", "--sampling", "all").stderr.replace("\n", " ")

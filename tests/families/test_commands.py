"""Every command on checkpoint folders of three kinds: M-RoPE and pairs of frames, times in the text, images."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "video"))
from clips import encode

import aviot
from aviot.cli import app
from aviot.evaluation.suite.report import match_model

THREE = ("qwen2.5-vl", "qwen3-vl", "internvl")
ASKED = ("-q", "What is it?", "--max-new-tokens", "4")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return encode(tmp_path_factory.mktemp("clips") / "clip.mp4", pictures=22, rate=4, size=(128, 80))


def run(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output + str(done.exception)
    return done


@pytest.mark.parametrize("family", THREE)
def test_answer_and_compress(stored, family, clip, tmp_path):
    model = stored(family)
    said = json.loads(run("answer", clip, *ASKED, "-r", "2", "-m", model, "--json").stdout)
    session = aviot.VideoLM.from_pretrained(model).open(clip)
    expected = session.ask("What is it?", budget=2, max_new_tokens=4)
    assert (said["text"], said["tokens_after"]) == (expected.text, expected.tokens_after)
    assert said["model_path"] == str(model)
    for method, width in (("aviot", 1), ("low-resolution", None), ("segment-mean", None)):
        file = tmp_path / f"{method}.safetensors"
        run("compress", clip, "-q", "What is it?", "-r", "2", "-m", model, "--method", method, "-o", file)
        tensors = load_file(file)
        with safe_open(file, "pt") as opened:
            about = json.loads(opened.metadata()["aviot"])
        assert about["times"] == pytest.approx(session.encoded.times)
        sources = session.sources(method)
        if "coefficients" in tensors:  # whole frames were mixed
            rebuilt, made = torch.einsum("kst,tsd->ksd", tensors["coefficients"], sources), tensors["features"]
        else:
            parts = sources.flatten(0, 1)[tensors["indices"]]
            rebuilt, made = torch.einsum("nm,nmd->nd", tensors["weights"], parts), tensors["tokens"]
            assert width in (None, parts.shape[1])
        torch.testing.assert_close(rebuilt, made, atol=1e-5, rtol=1e-4)


def page_data(path):
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found[1])


@pytest.mark.parametrize("family", THREE)
@pytest.mark.parametrize("method", ["aviot", "low-resolution"])
def test_the_explorer_shows_the_encoders_grid_and_times(stored, family, method, clip, tmp_path):
    model, page, data = stored(family), tmp_path / "page.html", tmp_path / "data.safetensors"
    how = ("-r", "2", "-m", model, "--method", method, "--against", "aviot:4")
    run("explain", clip, *ASKED, *how, "-o", page, "--export", data)
    session = aviot.VideoLM.from_pretrained(model).open(clip)
    shown = page_data(page)
    assert shown["times"] == pytest.approx(session.encoded.times)
    assert tuple(shown["grid"]) == session.encoded.grid
    assert len(shown["pictures"]) == len(session.encoded.times)
    assert shown["views"][0]["path"][0] == len(shown["times"])
    assert shown["tokens"]["before"] == session.encoded.tokens_before
    assert shown["views"][0]["checks"]["rebuilt"] < 1e-5
    ran, title = ("aviot-free", "AVIOT, training-free") if method == "aviot" else (method, "low resolution")
    assert (shown["method"], shown["title"], shown["whole_frames"]) == (ran, title, False)
    assert [other["title"] for other in shown["alternatives"]] == ["AVIOT (as aviot-free)"]
    exported = load_file(data)
    assert exported["boxes"].shape == (session.encoded.grid[0] * session.encoded.grid[1], 4)
    assert exported["times"].tolist() == pytest.approx(session.encoded.times)
    answers = {condition["answer"] for condition in shown["conditions"]}
    answered = session.ask("What is it?", budget=2, method=method, max_new_tokens=4)
    assert answered.text in answers  # the page's frames are those that `answer` reads


@pytest.mark.parametrize("family", THREE)
def test_evaluate_encodes_each_video_once_and_verifies(stored, family, clip, tmp_path, monkeypatch):
    items, out = tmp_path / "items.json", tmp_path / "run"
    rows = [
        {"id": str(number), "video": str(clip), "question": text, "answer": "x"}
        for number, text in enumerate(("Why?", "When?", "Who is it?"))
    ]
    items.write_text(json.dumps(rows))
    family_class, counted = type(aviot.VideoLM.from_pretrained(stored(family)).backbone), []
    whole = family_class.encode_one
    monkeypatch.setattr(family_class, "encode_one", lambda *given: counted.append(1) or whole(*given))
    common = ("-m", stored(family), "-r", "2", "--method", "aviot", "--method", "none", "--max-new-tokens", "3")
    run("evaluate", items, *common, "--batch", "2", "-o", out, "--dtype", "bfloat16")
    assert len(counted) == 1
    manifest = json.loads((out / "manifest.json").read_text())["identity"]
    assert {"config.json", "model.safetensors", "tokenizer.json", "video_preprocessor_config.json"} <= set(
        manifest["weights"]
    )
    assert "QUESTION" in manifest["prompt"]["choice"]
    assert manifest["generation"]["dtype"] == "bfloat16"
    ran = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {(row["method"], row.get("ran")) for row in ran} == {("aviot", "aviot-free"), ("none", None)}
    assert "6 of 6 answers repeat; the run holds" in run("evaluate", "--verify", out).stdout
    refused = run("evaluate", items, *common, "--batch", "2", "-o", out, "--resume", code=2)
    assert "generation.dtype was 'bfloat16', is None" in " ".join(refused.stderr.split())


def test_bench_times_every_part(stored):
    family = "qwen3-vl"
    arguments = ("--frames", "4", "--repeats", "1", "-r", "2", "--json", "--dtype", "float32")
    rows = json.loads(run("bench", "-m", stored(family), *arguments).stdout)["rows"]
    assert [row["method"] for row in rows] == ["none", "uniform", "random", "aviot-free"]
    for row in rows:
        missing = [name for name, part in row["parts"].items() if "median_ms" not in part]
        assert not missing, row["parts"]
    assert rows[0]["tokens"] > rows[-1]["tokens"] > 0


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3.5", "internvl", "smolvlm"])
def test_bench_runs_each_part(stored, family):
    """What is timed is what the model runs: the same tokens in parts as in one call."""
    from aviot.bench.pipeline import Pipeline

    pipeline = Pipeline(aviot.VideoLM.from_pretrained(stored(family)), 2, 4, 0)
    for name in ("aviot", "low-resolution"):
        method, budget = pipeline.backbone.method(name), aviot.Budget(ratio=2)
        made = pipeline.compress(pipeline.features(method), method, budget)
        parts, whole = pipeline.project(made, method), pipeline.to_tokens(method, budget)
        for one, other in zip(parts, whole, strict=True):
            torch.testing.assert_close(one.tokens, other.tokens)
        with torch.inference_mode():
            step = pipeline.next_token(pipeline.decoder_input(method, budget))
            assert step().logits.shape[:2] == step().logits.shape[:2] == (2, 1)


@pytest.mark.parametrize("family", THREE)
def test_account_counts_what_the_model_reads(stored, family, clip):
    session = aviot.VideoLM.from_pretrained(stored(family)).open(clip)
    size = ("--frames", len(session.video), "--video-size", "128x80")
    rows = json.loads(run("account", "-m", stored(family), *size, "-r", "2", "--json").stdout)
    assert rows[0]["tokens"] == session.encoded.tokens_before
    assert rows[1]["tokens"] == session.ask("Why?", budget=2, method="uniform", max_new_tokens=1).tokens_after
    refused = run("account", "-m", stored(family), "--layers", "3", code=2)
    assert "--model has its own shape" in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_the_app_answers(stored, clip):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from aviot.app.run import AppSettings
    from aviot.app.service import AppService
    from aviot.explain.page import readable

    for family in (*THREE, "llava-onevision"):
        lm = aviot.VideoLM.from_pretrained(stored(family))
        service = AppService(lm, AppSettings(max_new_tokens=3).served, 10**7)
        with TestClient(service.app) as client:
            kind = {"Content-Type": "application/octet-stream"}
            key = client.post("/videos", content=clip.read_bytes(), headers=kind).json()["video"]
            video = {"type": "video_url", "video_url": {"url": f"upload:{key}"}}
            messages = [{"role": "user", "content": [video, {"type": "text", "text": "Why?"}]}]
            given = {"model": "aviot", "messages": messages, "aviot": {"budget": 2}}
            reply = client.post("/v1/chat/completions", json=given).json()
            report = client.get(f"{reply['aviot']['explain']}/data").json()
        (opened,) = (held for held, _ in service.answerer.videos.kept._held.values())
        service.close()
        assert tuple(report["times"]) == opened.session.encoded.times
        assert (report["method"], report["whole_frames"]) == ("aviot-free", False)
        assert len(report["pictures"]) == len(report["times"])
        asked = opened.session.ask("Why?", budget=2, max_new_tokens=3).text
        assert asked == reply["choices"][0]["message"]["content"]
        assert readable(asked) in {condition["answer"] for condition in report["conditions"]}


def test_a_suites_report_says_that_another_family_is_not_the_papers(stored):
    found = match_model(stored("qwen2.5-vl"))
    assert not found.may_be_the_papers
    assert found.sentence.startswith("This model is not the paper's (qwen2.5-vl instead of llava-video)")

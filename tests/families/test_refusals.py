"""What cannot be loaded is refused in one sentence with the way out, before weights are read, with exit code 2."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import aviot
from aviot.backbones.huggingface import loading
from aviot.cli import app

FAMILIES = ("qwen2.5-vl", "qwen3-vl", "internvl", "video-llama3", "smolvlm", "llava-onevision")


@pytest.fixture
def copied(stored, tmp_path):
    """Return a copy of a family's checkpoint, to be tampered with."""

    def of(family="internvl"):
        return shutil.copytree(stored(family), tmp_path / "model")

    return of


@pytest.fixture
def video(tmp_path):
    folder = tmp_path / "frames"
    folder.mkdir()
    from PIL import Image

    for number in range(2):
        Image.new("RGB", (64, 48), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def refused(video, model, *more):
    """Return the one line that `aviot answer` prints."""
    done = CliRunner().invoke(app, ["answer", str(video), "-q", "Why?", "-m", str(model), *more])
    assert done.exit_code == 2, (done.output, done.exception)
    (line,) = done.stderr.strip().splitlines()
    assert line.isprintable()
    assert "Traceback" not in done.output
    return line


def write(path, **values):
    document = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(document | values))


@pytest.fixture
def unread(monkeypatch):
    """Make reading any weights fail the test."""

    def fail(*args, **how):
        raise AssertionError("weights were read")

    monkeypatch.setattr(loading.AutoModelForImageTextToText, "from_pretrained", fail)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "qwen2"}, "a model of text without an encoder for video"),
        ({"model_type": "llama"}, "a model of text without an encoder for video"),
        ({"model_type": "llava_next"}, "a model that reads images and no video"),
        ({"model_type": "gemma4"}, "which no family can read yet"),
        ({"model_type": "some\u001b[31mthing"}, "which no family can read"),
        ({"model_type": None}, "which no family can read"),
        (
            {"model_type": "internvl_chat", "auto_map": {"AutoModel": "modeling.Chat"}},
            "take this model's checkpoint in the layout of transformers, often named -hf",
        ),
        ({"model_type": "qwen9_vl", "transformers_version": "99.1.0"}, "by the newer 99.1.0: upgrade transformers"),
    ],
)
def test_models_of_no_family(unread, video, tmp_path, config, sentence):
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / "config.json", **config)
    line = refused(video, folder)
    assert sentence in line
    for expected in ("qwen2.5-vl", "internvl", "docs/backbones.md", "explains how to add a family"):
        assert expected in line


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tokenizer_of_another_family(unread, video, stored, copied, family):
    folder = copied(family)
    other = "qwen3-vl" if family not in ("qwen2.5-vl", "qwen3-vl") else "internvl"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(stored(other) / name, folder / name)
    line = refused(video, folder)
    assert f"the processor does not belong to this {family} model" in line
    assert "load both from one checkpoint" in line


@pytest.mark.parametrize(
    ("family", "settings", "sentence"),
    [
        ("qwen3-vl", {"patch_size": 14}, "it has patch_size 14 (the encoder has 16); use the processor of the model's"),
        ("qwen2.5-vl", {"temporal_patch_size": 1}, "it has temporal_patch_size 1 (the encoder has 2)"),
        ("video-llama3", {"patch_size": 16}, "it has patch_size 16 (the encoder has 14)"),
        ("video-llama3", {"temporal_patch_size": 2}, "it has temporal_patch_size 2 (the encoder has 1)"),
        ("video-llama3", {"size": {"height": 48, "width": 48}}, "model: the video processor's size must have shortest"),
        ("qwen3-vl", {"size": {"height": 48, "width": 48}}, "model: the video processor's size must have shortest"),
        ("qwen2.5-vl", {"resample": 4}, "resample must be one of 1 (lanczos), 2 (bilinear), 3 (bicubic), got 4; copy"),
        ("internvl", {"resample": 0}, "resample must be one of 1 (lanczos), 2 (bilinear), 3 (bicubic), got 0; copy"),
        ("internvl", {"size": {"height": 448, "width": 448}}, "scales frames to 448x448, and the encoder"),
        ("smolvlm", {"max_image_size": {"longest_edge": 512}}, "scales frames to 512x512, and the encoder"),
        ("internvl", {"size": "large"}, "model: "),
    ],
)
def test_preprocessing_of_another_model(unread, video, copied, family, settings, sentence):
    folder = copied(family)
    write(folder / "video_preprocessor_config.json", **settings)
    assert sentence in refused(video, folder)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["tokenizer.json", "tokenizer_config.json"], "has no tokenizer; copy tokenizer.json"),
        (["config.json"], "has no config.json; name the directory of a checkpoint"),
        (["model.safetensors"], "holds no weights; expected model.safetensors"),
    ],
)
def test_missing_files(unread, video, copied, names, sentence):
    folder = copied()
    for name in names:
        (folder / name).unlink()
    assert sentence in refused(video, folder)


def test_weights_that_are_pickles_truncated_or_missing(unread, video, copied, tmp_path):
    folder = copied()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    assert "not a whole safetensors file" in refused(video, folder)
    weights.write_bytes(whole[:5])
    assert "fetch it again" in refused(video, folder)
    weights.rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model-00001-of-00002.safetensors").write_bytes(whole)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "shard model-00002-of-00002.safetensors is missing" in refused(video, folder)
    for name in folder.glob("model*"):
        name.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    assert "holds its weights as pickles (pytorch_model.bin)" in refused(video, folder)


def test_weights_that_do_not_fit(video, stored, copied, caplog):
    from safetensors.torch import load_file, save_file

    folder = copied()
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    fewer = {key: value for key, value in tensors.items() if key != name}
    save_file(fewer, folder / "model.safetensors", {"format": "pt"})
    line = refused(video, folder)
    assert "1 weights are missing" in line
    assert "copy all safetensors" in line
    save_file(tensors | {name: tensors[name][:-1].contiguous()}, folder / "model.safetensors", {"format": "pt"})
    assert "1 weights have other shapes than config.json says, such as" in (line := refused(video, folder))
    assert "expected (32, 32), got (31, 32); copy config.json and the weights from one checkpoint" in line
    extra = {f"model.\u001b[31m{'x' * 9}.weight": torch.ones(2)}
    save_file(tensors | extra, folder / "model.safetensors", {"format": "pt"})
    aviot.VideoLM.from_pretrained(folder)
    (warning,) = [record.getMessage() for record in caplog.records if "not part of the model" in record.getMessage()]
    assert warning.isprintable()
    assert all("\u001b" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "text",
    [
        {"num_hidden_layers": 500, "layer_types": None, "intermediate_size": 250_000},
        {"vocab_size": 2**21, "hidden_size": 4096},
    ],
)
def test_a_config_of_a_much_larger_model_than_the_weights(unread, video, copied, text):
    """It is refused before memory is allocated: the first one would take 48 GB."""
    folder = copied()
    changed = json.loads((folder / "config.json").read_text())["text_config"] | text
    write(folder / "config.json", text_config={name: value for name, value in changed.items() if value is not None})
    line = refused(video, folder)
    assert "describes a model of" in line
    assert "copy config.json and the weights from one checkpoint" in line


def test_a_config_of_a_newer_transformers(video, copied):
    folder = copied()
    write(folder / "config.json", transformers_version="99.0.0", vision_config={"model_type": "internvl_vision_2"})
    line = refused(video, folder)
    assert "written by transformers 99.0.0, newer than" in line
    assert "upgrade transformers" in line


def test_damaged_configs(unread, video, copied):
    folder = copied()
    config = folder / "config.json"
    before = config.read_text()
    for change, sentence in (
        ({"text_config": 3}, "does not describe a model"),
        ({"text_config": {"model_type": "qwen2", "num_hidden_layers": 10**9}}, "num_hidden_layers must be at most 512"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "names code to run, which is never run here"),
    ):
        config.write_text(before)
        write(config, **change)
        assert sentence in refused(video, folder)
    config.write_text("{")
    assert "not JSON" in refused(video, folder)


def test_a_broken_torchvision(stored, video, tmp_path):
    """PyPI's torchvision cannot be imported beside a CPU's torch, and transformers imports it if it is there."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms is missing')")
    about = tmp_path / "torchvision-0.28.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
    paths = os.pathsep.join((str(tmp_path), str(Path(aviot.__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-m", "aviot", "answer", str(video), "-q", "Why?", "-m", str(stored("qwen3-vl"))],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert "a package that transformers imports is broken here" in line
    assert "(RuntimeError: operator torchvision::nms is missing); install its version for the torch" in line


HUB = {
    "gated/model": (403, "GatedRepo", "accept them on the model's page, log in with `hf auth login`"),
    "missing/model": (404, "RepoNotFound", "the hub has no model missing/model that this account may see"),
    "old/model": (404, "RevisionNotFound", "old/model has no revision"),
    "broken/model": (500, "", "the hub did not give it"),
}


class Hub(BaseHTTPRequestHandler):
    """A hub on this machine that refuses every model in its own way."""

    def do_GET(self):
        name = next((name for name in HUB if name in self.path), None)
        status, code, _ = HUB.get(name, (404, "RepoNotFound", ""))
        self.server.asked.append(self.path)
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture(scope="module")
def hub():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


ASK = """
import sys
from aviot.commands.model import ModelChoice
from aviot.commands.terminal import mistakes
import typer
for name in sys.argv[2:]:
    try:
        with mistakes():
            ModelChoice.of(name, "auto", download=sys.argv[1] == "download").folder
    except typer.Exit as ended:
        assert ended.exit_code == 2
"""


def asked(hub, tmp_path, how, *names, **environment):
    """Return the line that is printed for each name, in a process whose hub is this machine's."""
    place = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(tmp_path / "home")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-c", ASK, how, *names],
        env=kept | place | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()


def test_the_hub_refuses(hub, tmp_path):
    lines = asked(hub, tmp_path, "download", *HUB)
    assert len(lines) == len(HUB)
    for line, (_, _, sentence) in zip(lines, HUB.values(), strict=True):
        assert sentence in line


def test_nothing_is_sent_without_asking(hub, tmp_path):
    hub.asked.clear()
    (tmp_path / "checkpoints").mkdir()
    lines = asked(hub, tmp_path, "cache", "gated/model", "checkpoints/7b", "a/b/c")
    assert "in the hub's cache on this machine" in lines[0]
    assert "(--download)" in lines[0]
    assert "checkpoints is a folder here; correct the path" in lines[1]
    assert "no such folder" in lines[2]
    lines = asked(hub, tmp_path, "download", "checkpoints/7b", "./gated/model")
    assert all("no such folder" in line for line in lines)
    (line,) = asked(hub, tmp_path, "download", "gated/model", HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE forbids to fetch it" in line
    assert hub.asked == []


def test_a_model_in_the_hubs_cache_is_found_by_its_name(stored, tmp_path, monkeypatch):
    commit = "0" * 40
    cache = tmp_path / "hub"
    snapshot = cache / "models--some--model" / "snapshots" / commit
    shutil.copytree(stored("internvl"), snapshot)
    refs = cache / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    lm = aviot.VideoLM.from_pretrained("some/model")
    assert lm.backbone.name_or_path == str(snapshot)
    from aviot.explain.study import ModelInfo

    assert ModelInfo.of(lm.backbone).name == "some/model"
    assert aviot.VideoLM.from_pretrained("some/model", revision=commit).backbone.name_or_path == str(snapshot)
    with pytest.raises(ValueError, match=r"at revision v2 in the hub's cache"):
        aviot.VideoLM.from_pretrained("some/model", revision="v2")

"""`aviot explain` as a user meets it: a page, figures, exact data, and sentences for mistakes."""

import json

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from showing import CHECKPOINT, clip
from typer.testing import CliRunner

from aviot.cli import app
from aviot.explain.export import patch_boxes
from aviot.models.answering import compress_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of images with a name that would break careless markup."""
    folder = tmp_path_factory.mktemp("clips") / 'it\'s "mine" <b>'
    folder.mkdir()
    for number, frame in enumerate(clip(8)):
        Image.fromarray(frame).save(folder / f"{number}.png")
    return folder


def explain(*arguments):
    model = () if "--model" in arguments else ("--model", str(CHECKPOINT))
    return CliRunner().invoke(app, ["explain", *map(str, arguments), *model, "--max-new-tokens", "2"])


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    done = explain(
        *(folder, "-q", "What $x$?", "-q", "Why?", "--ratio", "4", "-o", out / "report.html", "--json"),
        *("--figures", out / "figures", "--export", out / "exact.safetensors"),
    )
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


def test_everything_is_written(written):
    out, said = written
    page = (out / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>it&#x27;s &quot;mine&quot; &lt;b&gt;" in page
    assert [answer["kind"] for answer in said["answers"]] == ["matched", "rotated", "none"] * 2
    assert said["ratio"] == 4
    names = {f"{name}.{suffix}" for name in ("allocation", "paths", "support") for suffix in ("pdf", "png")}
    assert {path.name for path in (out / "figures").iterdir()} == names
    for path in (out / "figures").iterdir():
        start = path.read_bytes()[:5]
        assert start == b"%PDF-" if path.suffix == ".pdf" else Image.open(path).width > 400


def test_the_export_is_exact(written, folder, loaded):
    out, _ = written
    tensors = load_file(out / "exact.safetensors")
    _, compression, _, _ = compress_video(*loaded, folder, "Why?", ratio=4.0)
    provenance = compression.provenance()
    assert torch.equal(tensors["question1.coefficients"], provenance.coefficients)
    share = tensors["question1.path_shares"]
    assert torch.allclose(share[2], provenance.branch("local").share, atol=1e-6)
    assert tensors["times"].tolist() == [n / 2 for n in range(8)]
    assert torch.equal(tensors["boxes"], patch_boxes((27, 27), 1.0))
    with safe_open(out / "exact.safetensors", "pt") as file:
        told = json.loads(file.metadata()["aviot"])
    assert told["questions"] == ["What $x$?", "Why?"]
    assert told["views"]["none"]["paths"] == ["global", "medium", "local"]


def test_boxes_are_shares_of_the_frame():
    boxes = patch_boxes((2, 4), 0.8)
    assert boxes[5].tolist() == pytest.approx([0.2, 0.4, 0.4, 0.8])  # second row, second column
    assert boxes[:, 2:].max() == pytest.approx(0.8)


def test_figures_of_a_frame_alone(folder, tmp_path):
    done = explain(folder, "-q", "?", "--frames", "1", "-o", tmp_path / "a.html", "--figures", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"support"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-q", " "), "the question is empty"),
        (("-q", "a", "-q", "b", "-q", "c", "-q", "d", "-q", "e"), "at most 4 questions"),
        (("-q", "a", "--ratio", "1"), "ratio must be"),
        (("-q", "a", "--compressor", "none"), "nothing to look at"),
        (("-q", "a", "--compressor", "magic"), "compressor must be one of"),
        (("-q", "a", "--export", "/nowhere/x"), "/nowhere is no folder"),
        (("-q", "a", "--figures", __file__), "is a file; --figures names a folder"),
        (("-q", "a", "--model", "/nowhere"), "no such folder"),
    ],
)
def test_mistakes_write_nothing(folder, tmp_path, arguments, sentence):
    done = explain(folder, *arguments, "-o", tmp_path / "report.html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_pair_that_is_not_there(folder, tmp_path):
    asked = (folder, "-q", "a", "-o", tmp_path / "a.html", "--figures", tmp_path / "f", "--support", "9")
    done = explain(*asked)
    assert done.exit_code == 2
    assert "--support must be from 0 to 1, got 9" in done.stderr

"""NaN and infinity, wherever they occur, raise an error instead of giving an answer."""

import copy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from aviot import Budget, VideoLM, VideoSession
from aviot.cli import app
from aviot.engine.base import Stopwatch
from aviot.methods import FrameMethod, get, names
from aviot.methods.inside import TwoStage
from aviot.methods.peers.fastv import FastV
from aviot.models import AviotForConditionalGeneration, AviotProcessor

pytestmark = pytest.mark.untraced  # every method from end to end, many times; others count their lines

WHOLE_FRAMES = [name for name in names() if isinstance(get(name), FrameMethod) or name == "none"]  # take no session
OTHERS = [name for name in names() if name not in WHOLE_FRAMES]
DEEP = [name for name in names() if name == "fastv" or name.endswith("-full")]  # act in layers that it does not have
GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
WEIGHTS = {
    "connector": "model.connector.projector.0.weight",
    "separator": "model.connector.row_separator",
    "decoder": "model.language_model.layers.0.self_attn.k_proj.weight",
    "norm": "model.language_model.norm.weight",
    "head": "lm_head.weight",
}


@pytest.fixture(scope="module")
def loaded():
    return AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()


@pytest.fixture
def model(loaded):
    """A copy that a test may spoil; reading the checkpoint takes as long as a short answer."""
    return copy.deepcopy(loaded)


@pytest.fixture(scope="module")
def processor():
    return AviotProcessor.from_pretrained(GOLDEN)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 255, (13, 30, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def batch(processor, frames):
    return processor(frames, ["What?", "Is it a dog?"], source_fps=2.0)


def plant(weight, value):
    with torch.no_grad():
        weight.flatten()[0] = value


def method_of(name):
    """The method; what acts inside the decoder does so in a layer that the golden model of two layers has."""
    if name in DEEP and name != "fastv":
        return TwoStage(name, get(name.removesuffix("-full")), FastV(layer=1))
    return FastV(layer=1) if name == "fastv" else get(name)


def ask(session, name):
    return session.ask("What?", budget=Budget(keep=0.5), method=method_of(name), max_new_tokens=2)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("compressor", WHOLE_FRAMES)
@pytest.mark.parametrize("where", WEIGHTS)
def test_weights_that_are_not_finite(model, batch, where, compressor, value):
    plant(model.get_parameter(WEIGHTS[where]), value)
    with pytest.raises(ValueError, match=r"not finite \(NaN or infinity\)"):
        model.generate(**batch, ratio=4.0, compressor=compressor, max_new_tokens=2, do_sample=False)


@pytest.mark.parametrize("compressor", OTHERS)
@pytest.mark.parametrize("where", WEIGHTS)
def test_weights_that_are_not_finite_in_a_session(model, processor, frames, where, compressor):
    plant(model.get_parameter(WEIGHTS[where]), torch.nan)
    session = VideoLM(model, processor).open(frames, source_fps=2.0)
    with pytest.raises(ValueError, match=r"not finite \(NaN or infinity\)"):
        ask(session, compressor)


@pytest.mark.parametrize("compressor", WHOLE_FRAMES)
def test_features_that_are_not_finite(model, batch, compressor):
    inputs = dict(batch)
    (u,) = model.encode(inputs.pop("pixel_values"), inputs.pop("frame_counts").tolist())
    spoilt = u.detach().clone()
    spoilt[7, 5, 3] = torch.nan
    named = {"aviot": "the relevance is"}
    with pytest.raises(ValueError, match=f"{named.get(compressor, 'the features x are')} not finite"):
        model.generate(**inputs, encoded=[spoilt], ratio=4.0, compressor=compressor, max_new_tokens=2)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("compressor", OTHERS)
def test_features_that_are_not_finite_in_a_session(model, processor, frames, compressor, value):
    """Also of methods that could drop the one token that is not finite."""
    lm = VideoLM(model, processor)
    encoded = lm.open(frames, source_fps=2.0).encoded
    spoilt = encoded.features.clone()
    spoilt[7, 5, 3] = value
    session = VideoSession(lm, replace(encoded, features=spoilt), Stopwatch(lm.backbone.device))
    with pytest.raises(ValueError, match=r"not finite \(NaN or infinity\)"):
        ask(session, compressor)


@pytest.mark.parametrize("how", [{"num_beams": 2}, {"do_sample": True}, {"num_beams": 2, "do_sample": True}])
def test_beams_and_samples_are_guarded_too(model, batch, how):
    plant(model.get_parameter(WEIGHTS["norm"]), torch.nan)
    with pytest.raises(ValueError, match="logits at the first token are not finite"):
        model.generate(**batch, ratio=4.0, compressor="none", max_new_tokens=2, **how)


def test_text_without_a_video_is_guarded_too(model):
    plant(model.get_parameter(WEIGHTS["norm"]), torch.nan)
    with pytest.raises(ValueError, match="logits at the first token are not finite"):
        model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=2)


def test_a_later_token_that_is_not_finite(model, batch):
    """The embedding of the first generated token is NaN, which makes all later steps NaN."""
    said = model.generate(**batch, ratio=4.0, max_new_tokens=3, do_sample=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[said[0, 0]] = torch.nan
    inside = (batch["input_ids"] == said[0, 0]).any()
    assert not inside  # otherwise the prompt itself would be NaN
    with pytest.raises(ValueError, match="logits at the latest token are not finite"):
        model.generate(**batch, ratio=4.0, max_new_tokens=3, do_sample=False)


def test_processors_of_the_caller_are_kept(model, batch):
    def say_nine(_, scores):
        return torch.full_like(scores, -torch.inf).index_fill_(1, torch.tensor([9]), 0.0)

    tokens = model.generate(**batch, ratio=4.0, max_new_tokens=2, do_sample=False, logits_processor=[say_nine])
    assert (tokens == 9).all()


@pytest.mark.parametrize("compressor", [name for name in names() if name not in DEEP])
def test_the_command_line_ends_with_a_sentence(tmp_path, compressor):
    folder = tmp_path / "spoilt"
    shutil.copytree(GOLDEN, folder)
    weights = load_file(folder / "model.safetensors")
    plant(weights["model.multimodal_projector.0.weight"], torch.nan)
    save_file(weights, folder / "model.safetensors")
    video = tmp_path / "pictures"
    video.mkdir()
    for number in range(12):
        Image.new("RGB", (32, 32), (20 * number, 99, 7)).save(video / f"{number}.png")
    command = ["answer", str(video), "-q", "Why?", "--keep", "0.5", "-m", str(folder), "--compressor", compressor]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "not finite (NaN or infinity)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(
    "name", ["aviot_compressor.multiscale_stage.joint_gate_mlp.3.weight", "aviot_query_projector.weight"]
)
def test_parts_of_the_compressor_are_checked_when_they_are_loaded(tmp_path, name, value):
    """Also what a softmax on a GPU would hide."""
    folder = tmp_path / "spoilt"
    shutil.copytree(GOLDEN, folder)
    weights = load_file(folder / "model.safetensors")
    plant(weights[f"model.{name}"], value)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.(compressor|question_projection)\S* is not finite"):
        VideoLM.from_pretrained(folder, device="cpu")

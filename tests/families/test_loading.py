"""Types, device maps and quantisation: the same answers wherever the weights are, or one sentence."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
import torch

import aviot

OFFLOADED = {
    "qwen2.5-vl": {"model.visual": "cpu", "model.language_model": "disk", "lm_head": "cpu"},
    "qwen3-vl": {"model.visual": "disk", "model.language_model": "disk", "lm_head": "cpu"},
    "qwen3.5": {"model.visual": "disk", "model.language_model": "cpu", "lm_head": "cpu"},
    "internvl": {
        "model.vision_tower": "disk",
        "model.multi_modal_projector": "disk",
        "model.language_model": "disk",
        "lm_head": "disk",
    },
    "llava-onevision": {
        "model.image_newline": "cpu",
        "model.vision_tower": "disk",
        "model.multi_modal_projector": "cpu",
        "model.language_model": "disk",
        "lm_head": "cpu",
    },
    "video-llama3": {
        "model.vision_model": "disk",
        "model.projector": "cpu",
        "model.language_model": "disk",
        "lm_head": "cpu",
    },
    "smolvlm": {"model.vision_model": "disk", "model.connector": "cpu", "model.text_model": "disk", "lm_head": "cpu"},
}


@pytest.fixture(scope="module")
def answered(stored):
    """Return the answers of a model that is loaded in some way."""
    clip = np.random.default_rng(0).integers(0, 256, (6, 60, 100, 3), dtype=np.uint8)

    def of(family, **how):
        lm = aviot.VideoLM.from_pretrained(stored(family), **how)
        session = lm.open(clip, source_fps=2)
        texts = [
            session.ask("Why?", budget=2, method=method, max_new_tokens=5).text
            for method in ("aviot", "low-resolution", "none")
        ]
        return lm, texts, "".join(session.ask("Why?", budget=2, max_new_tokens=5, stream=True)).strip()

    return of


@pytest.mark.filterwarnings("ignore:The following device_map keys do not match any submodules")  # a parameter's
@pytest.mark.parametrize("family", OFFLOADED)
def test_offloaded_weights_answer_as_those_in_memory(answered, family):
    _, expected, streamed = answered(family)
    whole, texts, again = answered(family, device_map="auto")
    assert (texts, again) == (expected, streamed)
    assert whole.backbone.device == torch.device("cpu")
    lm, texts, again = answered(family, device_map=OFFLOADED[family])
    assert any(weight.is_meta for weight in lm.backbone.model.parameters())  # it is on the disk
    assert lm.backbone.device == torch.device("cpu")
    assert (texts, again) == (expected, streamed)


def test_types(stored):
    for dtype in ("bfloat16", torch.float16, "float32"):
        lm = aviot.VideoLM.from_pretrained(stored("internvl"), dtype=dtype)
        assert str(lm.backbone.model.dtype) in (f"torch.{dtype}", str(dtype))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"dtype": "int8"}, "dtype must be one of auto, float32, bfloat16, float16, got 'int8'"),
        ({"quantization": "3bit"}, "quantization must be one of 4bit, 8bit, got '3bit'"),
        ({"device_map": "everywhere"}, "device_map must be one of auto, .*got 'everywhere'"),
        (
            {"device_maps": "auto"},
            "unknown arguments device_maps; expected device, base, dtype, device_map, quantization",
        ),
    ],
)
def test_options_are_checked_before_anything_is_read(how, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        aviot.VideoLM.from_pretrained("no-such-folder", **how)


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_without_bitsandbytes(stored, tmp_path):
    with pytest.raises(ValueError, match="4bit quantisation needs bitsandbytes, which is not installed here; pip inst"):
        aviot.VideoLM.from_pretrained(stored("qwen3-vl"), quantization="4bit")
    folder = quantised(stored("qwen3-vl"), tmp_path / "bnb", {"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(ValueError, match="bnb, whose weights are quantised with it, needs bitsandbytes, which is not"):
        aviot.VideoLM.from_pretrained(folder)


def quantised(source, folder, about):
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}))
    return folder


def test_other_quantisations_are_refused(stored, tmp_path):
    folder = quantised(stored("internvl"), tmp_path / "awq", {"quant_method": "awq", "bits": 4})
    with pytest.raises(ValueError, match="weights are quantised by awq, and only bitsandbytes is supported; use the"):
        aviot.VideoLM.from_pretrained(folder)
    folder = quantised(stored("internvl"), tmp_path / "twice", {"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(ValueError, match="its weights are quantised already; leave the quantization out"):
        aviot.VideoLM.from_pretrained(folder, quantization="8bit")


def test_llava_video_is_loaded_whole():
    from aviot.bundled import embedded_model

    assert aviot.VideoLM.from_pretrained(embedded_model(), dtype="bfloat16").backbone.model.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="llava-video models are loaded whole onto one device"):
        aviot.VideoLM.from_pretrained(embedded_model(), device_map="auto")


def test_progress_bars_are_off_only_while_weights_are_loaded(stored):
    from transformers.utils import logging

    from aviot.backbones.loading import without_progress_bars
    from aviot.bench.workload import load_model

    assert logging.is_progress_bar_enabled()
    load_model(stored("internvl"), torch.device("cpu"), None)
    assert logging.is_progress_bar_enabled()
    with without_progress_bars():
        assert not logging.is_progress_bar_enabled()
        with without_progress_bars():
            pass
        assert not logging.is_progress_bar_enabled()
    assert logging.is_progress_bar_enabled()

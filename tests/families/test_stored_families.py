"""Checkpoint folders of the families, in today's layout and in those of older versions of transformers."""

import json

import numpy as np
import pytest
import tiny_models as tiny
import torch
from safetensors.torch import load_file, save_file

import aviot
from aviot.backbones.huggingface.processing import Processing

CLIP = np.random.RandomState(3).randint(0, 256, (7, 56, 112, 3)).astype(np.uint8)
QUESTION = "What happens?"


def save(backbone, folder, settings):
    """Write a model with the small files that can be written without the family's own processor."""
    backbone.model.save_pretrained(folder)
    backbone.tokenizer.save_pretrained(folder)
    (folder / "video_preprocessor_config.json").write_text(json.dumps(settings))


def first_logits(lm, method="segment-mean", dtype=torch.float32):
    """Return the logits of a whole prompt."""
    session = lm.open(CLIP, source_fps=2.0)
    prompt = session.prompt(QUESTION)
    made = session.compress(QUESTION, method=method, budget=2)
    inputs = lm.backbone.place([prompt], [made.video])
    with torch.inference_mode():
        return lm.backbone.model(**inputs.arguments).logits.to(dtype)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_saved_folder_answers_as_in_memory(family, tmp_path):
    backbone = tiny.backbone(family)
    save(backbone, tmp_path, tiny.VIDEO_SETTINGS[family])
    lm = aviot.VideoLM.from_pretrained(tmp_path, device="cpu")
    assert lm.backbone.family == backbone.family
    memory = aviot.VideoLM(backbone)
    assert torch.equal(first_logits(lm), first_logits(memory))
    asked = {"budget": 2, "method": "segment-mean", "max_new_tokens": 6}
    stored, held = (each.open(CLIP, source_fps=2.0).ask(QUESTION, **asked) for each in (lm, memory))
    assert stored.text == held.text
    assert (stored.tokens_after, stored.supports) == (held.tokens_after, held.supports)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_half_precision(family):
    """Frames are in float32 and weights in bfloat16, as in every large checkpoint."""
    backbone = tiny.backbone(family)
    expected = first_logits(aviot.VideoLM(backbone))
    backbone.model.to(torch.bfloat16)
    lm = aviot.VideoLM(backbone)
    session = lm.open(CLIP, source_fps=2.0)
    assert session.encoded.features.dtype == torch.bfloat16
    found = first_logits(lm)
    assert torch.isfinite(found).all()
    assert (found - expected).abs().median() < 0.1 * expected.std()
    assert session.ask(QUESTION, budget=2, method="segment-mean", max_new_tokens=4).tokens_after


OLD_NAMES = {
    "qwen2-vl": [("model.visual.", "visual."), ("model.language_model.", "model.")],
    "qwen2.5-vl": [("model.visual.", "visual."), ("model.language_model.", "model.")],
    "llava-onevision": [
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model.", ""),
    ],
    "internvl": [
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model.", ""),
    ],
}
"""Prefixes of weights before transformers 4.52."""


def rewrite_weights(folder, prefixes):
    """Store a checkpoint's weights under the names of an older version."""
    path = folder / "model.safetensors"
    weights = load_file(path)

    def renamed(name):
        for new, old in prefixes:
            if name.startswith(new):
                return old + name.removeprefix(new)
        return name

    save_file({renamed(name): weight for name, weight in weights.items()}, path, {"format": "pt"})


def older_config(family, config):
    """Return config.json as transformers 4.4x wrote it."""
    text, vision = config.pop("text_config"), config["vision_config"]
    dropped = {"rope_parameters", "layer_types", "dtype", "model_type"}
    if family in ("qwen2-vl", "qwen2.5-vl"):
        rope = text["rope_parameters"]
        config |= {name: value for name, value in text.items() if name not in dropped}
        config |= {"rope_theta": rope["rope_theta"], "torch_dtype": "float32"}
        config["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
        if family == "qwen2-vl":
            vision["in_chans"] = 3
    else:
        kept = {name: value for name, value in text.items() if name not in dropped - {"model_type"}}
        config["text_config"] = kept | {"rope_theta": text["rope_parameters"]["rope_theta"]}
        if family == "llava-onevision":
            config = {name: value for name, value in config.items() if name not in ("image_token_id", "video_token_id")}
    config.pop("dtype", None)
    return config | {"transformers_version": "4.49.0"}


@pytest.mark.parametrize("family", OLD_NAMES)
def test_checkpoints_of_older_versions(family, tmp_path):
    backbone = tiny.backbone(family)
    save(backbone, tmp_path, tiny.VIDEO_SETTINGS[family])
    rewrite_weights(tmp_path, OLD_NAMES[family])
    path = tmp_path / "config.json"
    older = older_config(family, json.loads(path.read_text()))
    path.write_text(json.dumps(older))
    assert ("text_config" in older) == (family in ("llava-onevision", "internvl"))
    lm = aviot.VideoLM.from_pretrained(tmp_path, device="cpu")
    torch.testing.assert_close(first_logits(lm), first_logits(aviot.VideoLM(backbone)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "llava-onevision", "smolvlm"])
def test_tied_embeddings_are_not_missing(family, tmp_path):
    """Small checkpoints store one matrix for input and output."""
    model, _ = tiny.FAMILIES[family]()
    config = model.config
    config.tie_word_embeddings = config.get_text_config().tie_word_embeddings = True
    tied = type(model)(config).eval()
    backbone = tiny.backbone(family)
    save(type(backbone)(tied, backbone.processing), tmp_path, tiny.VIDEO_SETTINGS[family])
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    lm = aviot.VideoLM.from_pretrained(tmp_path, device="cpu")
    weights = lm.backbone.model.get_input_embeddings().weight
    assert weights.data_ptr() == lm.backbone.model.get_output_embeddings().weight.data_ptr()
    assert torch.equal(weights, tied.get_input_embeddings().weight)


def test_of_several_templates_the_default_is_used(tmp_path):
    backbone = tiny.backbone("internvl")
    own = backbone.tokenizer.chat_template
    backbone.tokenizer.chat_template = {"default": own, "tool_use": "{{ tools }}"}
    save(backbone, tmp_path, tiny.VIDEO_SETTINGS["internvl"])
    assert Processing.from_folder(tmp_path).template == own
    assert Processing.from_processor(backbone.tokenizer).template == own

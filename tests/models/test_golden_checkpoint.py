"""A whole published model loads unchanged and gives the recorded answers."""

import json
from pathlib import Path

import pytest
import torch
from common import relative
from safetensors.torch import load_file

from aviot.models import AviotForConditionalGeneration, AviotProcessor

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
RATIOS = {case["ratio"]: case for case in EXPECTED["cases"]}


@pytest.fixture(scope="module")
def expected():
    return load_file(GOLDEN / "expected.safetensors")


@pytest.fixture(scope="module")
def model():
    return AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()


@pytest.fixture(scope="module")
def inputs(model, expected):
    with torch.no_grad():
        encoded = model.encode(expected["pixel_values"], [25])
    return {
        "input_ids": expected["input_ids"],
        "question_span": expected["question_token_ranges"],
        "encoded": encoded,
    }


def test_vision_and_positions(model, inputs, expected):
    assert relative(inputs["encoded"][0][:4], expected["vision_features"]) < 1e-5
    assert relative(model.model.position(inputs["encoded"][0])[:4], expected["positioned_features"]) < 1e-5


@pytest.mark.parametrize("ratio", RATIOS)
def test_logits_path_and_budgets(model, inputs, expected, ratio):
    with torch.no_grad():
        out = model(**inputs, ratio=ratio, output_compression=True)
    case = RATIOS[ratio]
    assert out.logits.shape[1] == case["sequence_length"]
    assert relative(out.logits[0, -16:], expected[f"logits_last16.r{ratio:g}"]) < 1e-5
    (compression,) = out.compressions
    assert list(compression.path) == case["path"]
    assert [list(budgets) for budgets in compression.budgets] == case["budgets"]


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_the_same_greedy_tokens(model, inputs, expected, ratio, use_cache):
    tokens = model.generate(**inputs, ratio=ratio, max_new_tokens=12, do_sample=False, use_cache=use_cache)
    assert tokens[0].tolist() == expected[f"generated.r{ratio:g}"].tolist()


def test_training_losses(model, inputs):
    labels = inputs["input_ids"].clone()
    labels[:, :-8] = -100
    out = model(**inputs, labels=labels, ratio=4.0)
    assert out.lm_loss.item() == pytest.approx(EXPECTED["training"]["lm_loss"], rel=1e-5)
    assert out.transport_loss.item() == pytest.approx(EXPECTED["training"]["transport_loss"], rel=1e-5)
    assert out.loss.item() == pytest.approx(out.lm_loss.item() + out.transport_loss.item())


def test_the_processor_builds_the_published_prompt(expected):
    processor = AviotProcessor.from_pretrained(GOLDEN)
    frames = torch.zeros(25, 10, 10, 3, dtype=torch.uint8)
    batch = processor(frames, EXPECTED["question"], source_fps=2.0)
    assert processor.image_size == 54
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert torch.equal(batch["question_span"], expected["question_token_ranges"][:, 0])
    video = processor.read(frames, source_fps=2.0)
    assert processor.prompt(EXPECTED["question"], video).text == EXPECTED["prompt"]


def test_ours_round_trips(model, inputs, expected, tmp_path):
    model.save_pretrained(tmp_path)
    AviotProcessor.from_pretrained(GOLDEN).save_pretrained(tmp_path)
    again = AviotForConditionalGeneration.from_pretrained(tmp_path).eval()
    stored = model.state_dict()
    assert all(torch.equal(value, stored[name]) for name, value in again.state_dict().items())
    with torch.no_grad():
        assert torch.allclose(again(**inputs, ratio=4.0).logits, model(**inputs, ratio=4.0).logits, atol=1e-5)
    assert AviotProcessor.from_pretrained(tmp_path).image_size == 54


def test_auto_classes(model, tmp_path):
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

    model.save_pretrained(tmp_path)
    AviotProcessor.from_pretrained(GOLDEN).save_pretrained(tmp_path)
    assert type(AutoModelForImageTextToText.from_pretrained(tmp_path)) is AviotForConditionalGeneration
    assert type(AutoProcessor.from_pretrained(tmp_path)) is AviotProcessor
    assert AutoConfig.from_pretrained(tmp_path).compressor == model.config.compressor

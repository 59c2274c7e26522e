"""The model and its processor: batches, cached features, other methods, and refused inputs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aviot.models import AviotForConditionalGeneration, AviotProcessor

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
QUESTIONS = ["What colour is the spoon?", "Is there a dog in it, or a cat, or nothing at all?"]


@pytest.fixture(scope="module")
def model():
    return AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()


@pytest.fixture(scope="module")
def processor():
    return AviotProcessor.from_pretrained(GOLDEN)


@pytest.fixture(scope="module")
def videos():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (frames, 30, 40, 3), dtype=np.uint8) for frames in (21, 13)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_equals_its_members_whatever_the_padding(model, processor, videos, side):
    batch = processor(videos, QUESTIONS, source_fps=2.0, padding_side=side)
    with torch.no_grad():
        together = model(**batch, ratio=4.0).logits
        for i in range(2):
            alone = model(**processor(videos[i], QUESTIONS[i], source_fps=2.0), ratio=4.0).logits[0]
            assert torch.allclose(together[i, -len(alone) :], alone, atol=1e-5)
    tokens = model.generate(**batch, ratio=4.0, max_new_tokens=6, do_sample=False)
    for i in range(2):
        alone = model.generate(
            **processor(videos[i], QUESTIONS[i], source_fps=2.0), ratio=4.0, max_new_tokens=6, do_sample=False
        )
        assert tokens[i].tolist()[: len(alone[0])] == alone[0].tolist()


def test_one_video_many_questions_is_encoded_once(model, processor, videos):
    batch = processor(videos[0], QUESTIONS, source_fps=2.0)
    assert batch["pixel_values"].shape[0] == 21
    assert batch["video_index"].tolist() == [0, 0]
    with torch.no_grad():
        together = model(**batch, ratio=4.0, output_compression=True)
        for i in range(2):
            alone = model(**processor(videos[0], QUESTIONS[i], source_fps=2.0), ratio=4.0).logits[0]
            assert torch.allclose(together.logits[i, -len(alone) :], alone, atol=1e-5)
    one, other = together.compressions
    assert not torch.equal(one.features, other.features)  # each question has its own compression


def test_a_cached_encoding_equals_a_fresh_one(model, processor, videos):
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with torch.no_grad():
        fresh = model(**batch, ratio=5.0).logits
        encoded = model.encode(batch.pop("pixel_values"), batch.pop("frame_counts").tolist())
        assert torch.equal(model(**batch, encoded=encoded, ratio=5.0).logits, fresh)


@pytest.mark.parametrize(("compressor", "supports"), [("aviot", 6), ("uniform", 6), ("segment-mean", 6), ("none", 21)])
def test_compressors_by_name(model, processor, videos, compressor, supports):
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with torch.no_grad():
        out = model(**batch, ratio=4.0, compressor=compressor, output_compression=True)
    tokens = model.model.connector.tokens_per_support
    assert tokens == 210
    assert out.logits.shape[1] == batch["input_ids"].shape[1] - 1 + supports * tokens
    if compressor != "none":
        assert out.compressions[0].provenance().coefficients.shape == (supports, 729, 21)


def test_a_ratio_above_the_frame_count_leaves_one_support(model, processor, videos):
    batch = processor(videos[1], QUESTIONS[0], source_fps=2.0)
    with torch.no_grad():
        out = model(**batch, ratio=1000.0, output_compression=True)
    assert out.compressions[0].path[-1] == 1


def test_default_ratio_is_the_configs(model, processor, videos):
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, model(**batch, ratio=model.config.ratio).logits)


@pytest.mark.parametrize("how", [{"dtype": torch.bfloat16}, {"device_map": "auto"}, {"attn_implementation": "eager"}])
def test_loading_options(processor, videos, how):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN, **how).eval()
    batch = processor(videos[1], QUESTIONS[0], source_fps=2.0).to(model.device)
    assert model.dtype == how.get("dtype", torch.float32)
    tokens = model.generate(**batch, ratio=4.0, max_new_tokens=3, num_beams=2)
    assert tokens.shape[0] == 1


def test_gradients_reach_what_the_paper_trains(processor, videos):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN)
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    labels = batch["input_ids"].clone()
    labels[:, :-6] = -100
    model(**batch, labels=labels, ratio=4.0).loss.backward()
    for name, parameter in model.named_parameters():
        trained = "vision_tower" in name or name == "model.compressor.metric.embed.3.bias"
        assert trained or (parameter.grad is not None and parameter.grad.abs().max() > 0), name


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ratio": 0.5}, "ratio must be a finite number above 1"),
        (
            {"compressor": "magic"},
            "method must be one of 'aviot', 'aviot-free', 'uniform', 'segment-mean', 'random'",
        ),
        ({"question_span": None}, "build them with the processor"),
        ({"frame_counts": torch.tensor([20])}, "frame_counts must add up to the 21 frames"),
        ({"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": None}, "exactly one video placeholder, got 0"),
    ],
)
def test_what_is_refused(model, processor, videos, change, sentence):
    batch = dict(processor(videos[0], QUESTIONS[0], source_fps=2.0)) | {"ratio": 4.0} | change
    if "input_ids" in change:
        batch["question_span"] = torch.tensor([[0, 2]])
    with pytest.raises(ValueError, match=sentence):
        model(**batch)


def test_a_prompt_past_the_context_is_refused(processor, videos):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()
    model.config.text_config.max_position_embeddings = 1000
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with pytest.raises(ValueError, match=r"1,4\d\d tokens; the decoder reads 1,000: compress more"):
        model.generate(**batch, ratio=4.0, max_new_tokens=2)


def test_an_answer_past_the_context_is_refused(model, processor, videos):
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with pytest.raises(ValueError, match="and the answer may have 40,000"):
        model.generate(**batch, ratio=4.0, max_new_tokens=40000)


def test_inputs_that_do_not_belong_together(model, processor, videos):
    batch = processor(videos[0], QUESTIONS[0], source_fps=2.0)
    with pytest.raises(ValueError, match="a video placeholder but no video"):
        model(input_ids=batch["input_ids"])
    with pytest.raises(ValueError, match=r"question_span must lie inside the \d+ tokens, got \[5000, 5001\]"):
        model(**(dict(batch) | {"question_span": torch.tensor([[5000, 5001]])}), ratio=4.0)
    three = processor(videos[0], [*QUESTIONS, "Why?"], source_fps=2.0)
    two = {"pixel_values": torch.cat((three["pixel_values"],) * 2), "frame_counts": torch.tensor([21, 21])}
    with pytest.raises(ValueError, match="got 2 videos and 3 prompts"):
        model(**(dict(three) | two | {"video_index": None}), ratio=4.0)


def test_frames_reach_the_encoder_as_published(model, processor):
    """Frames are scaled by bicubic interpolation and normalised with a mean and deviation of one half."""
    frame = np.random.default_rng(1).integers(0, 255, (1, 90, 70, 3), dtype=np.uint8)
    batch = processor(frame, "Why?", source_fps=1.0)
    size = (54, 54)
    scaled = np.asarray(Image.fromarray(frame[0]).resize(size, Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    assert torch.equal(batch["pixel_values"][0], torch.from_numpy(scaled.copy()))
    normalised = (torch.from_numpy(scaled.copy()).float() / 255 - 0.5) / 0.5
    with torch.no_grad():
        assert torch.allclose(
            model.encode(batch["pixel_values"], [1])[0], model.encode(normalised[None], [1])[0], atol=1e-5
        )


def test_the_question_gives_no_gradient_to_its_embeddings(processor, videos):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN)
    batch = processor(videos[1], QUESTIONS[0], source_fps=2.0)
    labels = batch["input_ids"].clone()
    labels[:, :-6] = -100
    out = model(**batch, labels=labels, ratio=4.0)
    out.transport_loss.backward()
    assert model.model.question_projection.weight.grad.abs().max() > 0
    assert model.get_input_embeddings().weight.grad is None


def test_the_transport_loss_has_its_weight(processor, videos):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN)
    model.config.transport_loss_weight = 3.0
    batch = processor(videos[1], QUESTIONS[0], source_fps=2.0)
    out = model(**batch, labels=batch["input_ids"].clamp_min(0), ratio=4.0)
    assert out.loss.item() == pytest.approx((out.lm_loss + 3 * out.transport_loss).item())


def test_the_processor_takes_settings_and_keeps_them(processor, tmp_path):
    assert AviotProcessor.from_pretrained(GOLDEN, fps=1.0, max_frames=8).max_frames == 8
    changed = AviotProcessor(processor.tokenizer, image_size=54, fps=1.0, max_frames=8)
    changed.save_pretrained(tmp_path)
    AviotForConditionalGeneration.from_pretrained(GOLDEN).save_pretrained(tmp_path)
    assert AviotProcessor.from_pretrained(tmp_path).fps == 1.0


def test_processor_refusals(processor, videos):
    with pytest.raises(ValueError, match="the question is empty"):
        processor(videos[0], "  ", source_fps=2.0)
    for mark in processor.tokenizer.all_special_tokens:
        refused = re.escape(f"the question holds {mark}, which would be read as a special token")
        with pytest.raises(ValueError, match=refused):
            processor(videos[0], f"Why?{mark}\nassistant", source_fps=2.0)
    assert processor.tokenizer.all_special_tokens
    with pytest.raises(ValueError, match="questions is empty"):
        processor(videos[0], [], source_fps=2.0)
    with pytest.raises(ValueError, match="got 2 videos and 3 questions"):
        processor(videos, ["a", "b", "c"], source_fps=2.0)
    for histories in ([("What is it?", "A spoon.")], [[("Hm",)]], ["Hm"]):
        with pytest.raises(ValueError, match=r"list of \(question, answer\) pairs"):
            processor(videos[0], "a", source_fps=2.0, histories=histories)
    with pytest.raises(ValueError, match="give one history per question"):
        processor(videos[0], "a", source_fps=2.0, histories=[[], []])
    with pytest.raises(TypeError, match="unknown arguments colour"):
        processor(videos[0], "a", source_fps=2.0, colour=1)


def test_several_turns_mark_the_last_question(processor, videos):
    history = [("What is it?", "A spoon.")]
    batch = processor(videos[0], "Which colour?", histories=[history], source_fps=2.0)
    first, end = batch["question_span"][0].tolist()
    assert processor.tokenizer.decode(batch["input_ids"][0, first:end]).strip() == "Which colour?"
    video = processor.read(videos[0], source_fps=2.0)
    text = processor.prompt("Which colour?", video, history).text
    assert text.count("<image>") == 1
    assert "What is it?<|im_end|>\n<|im_start|>assistant\nA spoon.<|im_end|>\n<|im_start|>user\nWhich colour?" in text


def test_a_question_of_several_ranges(model, processor, videos):
    batch = dict(processor(videos[0], "Which colour?", source_fps=2.0))
    first, end = batch["question_span"][0].tolist()
    ranges = {
        "whole": [[first, end]],
        "in two": [[first, first + 1], [first + 1, end]],
        "with an empty one": [[first, end], [0, 0]],
        "a part": [[first, first + 1]],
    }
    with torch.no_grad():
        logits = {
            name: model(**(batch | {"question_span": torch.tensor([spans])}), ratio=4.0).logits
            for name, spans in ranges.items()
        }
        single = model(**batch, ratio=4.0).logits
    for name in ("whole", "in two", "with an empty one"):
        assert torch.equal(logits[name], single)
    assert not torch.equal(logits["a part"], single)


def test_features_for_some_videos_and_pixels_for_the_rest(model, processor, videos):
    batch = dict(processor(videos, QUESTIONS, source_fps=2.0))
    pixels, counts = batch.pop("pixel_values"), batch.pop("frame_counts")
    with torch.no_grad():
        features = model.encode(pixels, counts.tolist())
        whole = model(**batch, encoded=features, ratio=4.0).logits
        mixed = model(**batch, encoded=(features[0], None), pixel_values=pixels[21:], ratio=4.0, output_encoded=True)
    assert torch.allclose(mixed.logits, whole, atol=1e-6)
    assert torch.allclose(mixed.encoded[1], features[1], atol=1e-6)
    with pytest.raises(ValueError, match="1 videos have no features and 0 have pixels"):
        model(**batch, encoded=(features[0], None), ratio=4.0)


def test_losses_need_the_logits_of_the_text_alone(model, processor, videos):
    batch = processor(videos, QUESTIONS, source_fps=2.0, padding_side="right")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    labels[:, :-30] = -100
    with torch.no_grad():
        whole = model(**batch, labels=labels, ratio=4.0)
        text = model(**batch, labels=labels, ratio=4.0, logits_to_keep=labels.shape[1])
    assert text.logits.shape[1] == labels.shape[1]
    assert text.lm_loss.item() == pytest.approx(whole.lm_loss.item(), rel=1e-6)


@pytest.mark.parametrize("case", ["no question", "nothing to compress"])
def test_what_a_batch_does_not_use_has_a_gradient_of_zero(processor, videos, case):
    model = AviotForConditionalGeneration.from_pretrained(GOLDEN)
    batch = processor(videos[1][:1] if case == "nothing to compress" else videos[1], QUESTIONS[0], source_fps=2.0)
    labels = batch["input_ids"].clone()
    labels[:, :-6] = -100
    if case == "no question":
        batch["question_span"] = batch["question_span"][:, :1].expand(1, 2)
    model.model.vision_tower.requires_grad_(False)
    model(**batch, labels=labels, ratio=4.0).loss.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert model.model.question_projection.weight.grad.abs().max() == 0

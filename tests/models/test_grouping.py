"""Prompts compressed together give the results of single ones, in few calls and without needless copies."""

import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from aviot import Budget
from aviot.backbones.llava_video import prompt_batch
from aviot.backbones.llava_video.prompt_batch import EmbeddedPrompt, group_prompts, select_videos, stack_videos
from aviot.models import AviotForConditionalGeneration, AviotProcessor

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
FRAMES = (13, 13, 9)
ASKED = (1, 0, 2, 0, 1)  # two videos of one length with two questions each, and a third
QUESTIONS = ["What colour is it?", "Is there a dog, or a cat?", "Who?", "Why is it there?", "Where?"]


@pytest.fixture(scope="module")
def model():
    return AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()


@pytest.fixture(scope="module")
def batch(model):
    """Return five prompts about three encoded videos, the last without a question."""
    processor = AviotProcessor.from_pretrained(GOLDEN)
    rng = np.random.default_rng(0)
    videos = [rng.integers(0, 255, (frames, 30, 40, 3), dtype=np.uint8) for frames in FRAMES]
    made = processor([videos[i] for i in ASKED], QUESTIONS, source_fps=2.0)
    each = processor(videos, QUESTIONS[:3], source_fps=2.0)
    span = made["question_span"].clone()
    span[-1] = span[-1, :1]
    with torch.no_grad():
        encoded = model.encode(each["pixel_values"], each["frame_counts"].tolist())
    return {name: made[name] for name in ("input_ids", "attention_mask")} | {
        "question_span": span,
        "video_index": torch.tensor(ASKED),
        "encoded": encoded,
    }


def take(batch, row):
    """Return the batch with only one of its prompts, or a slice of them."""
    rows = row if isinstance(row, slice) else slice(row, row + 1)
    return {name: value if name == "encoded" else value[rows] for name, value in batch.items()}


def count_calls(model, monkeypatch):
    sizes = []
    compress = model.model.compressor.forward
    monkeypatch.setattr(model.model.compressor, "forward", lambda x, **k: sizes.append(len(x)) or compress(x, **k))
    return sizes


@pytest.mark.parametrize("compressor", ["aviot", "uniform", "segment-mean", "none"])
def test_together_as_one_by_one(model, batch, compressor):
    how = {"ratio": 3.0, "compressor": compressor, "output_compression": True}
    with torch.no_grad():
        together = model(**batch, **how)
        for row in range(len(ASKED)):
            alone = model(**take(batch, row), **how)
            present = int(batch["attention_mask"][row].sum()) + alone.logits.shape[1] - batch["input_ids"].shape[1]
            assert torch.allclose(together.logits[row, -present:], alone.logits[0, -present:], atol=1e-5)
            found, expected = together.compressions[row], alone.compressions[0]
            if compressor == "none":
                assert found is None
                continue
            assert found.path == expected.path
            assert found.budgets == expected.budgets
            assert torch.allclose(found.features, expected.features, atol=1e-5)
            assert torch.allclose(found.loss, expected.loss, rtol=1e-5)
            assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found.terms, expected.terms, strict=True))
            ours, theirs = found.provenance(), expected.provenance()
            assert torch.allclose(ours.coefficients, theirs.coefficients, atol=1e-5)
            if compressor == "aviot":
                assert torch.allclose(ours.branch("local").mass, theirs.branch("local").mass, atol=1e-5)


def test_calls_and_their_bound(model, batch, monkeypatch):
    sizes = count_calls(model, monkeypatch)
    with torch.no_grad():
        free = model(**batch, ratio=3.0).logits
        assert sizes == [1, 1, 3]  # 9 frames; 13 without a question; 13 with one
        sizes.clear()
        monkeypatch.setattr(prompt_batch, "ELEMENTS_AT_ONCE", 2 * batch["encoded"][0].numel())
        assert torch.allclose(model(**batch, ratio=3.0).logits, free, atol=1e-5)
        assert sizes == [1, 1, 2, 1]
        sizes.clear()
        monkeypatch.setattr(prompt_batch, "ELEMENTS_AT_ONCE", 1)
        assert torch.allclose(model(**batch, ratio=3.0).logits, free, atol=1e-5)
        assert sizes == [1] * 5


def test_losses_and_gradients_are_means_over_prompts(model, batch):
    labels = batch["input_ids"].clone()
    labels[:, :-6] = -100
    parameters = [model.model.compressor.gate[1].weight, model.model.question_projection.weight]
    together = model(**batch, labels=labels, ratio=3.0).transport_loss
    each = [model(**take(batch, row), labels=labels[row : row + 1], ratio=3.0).transport_loss for row in range(5)]
    expected = torch.stack(each).mean()
    assert torch.allclose(together, expected, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(together, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-7)


def test_a_video_is_prepared_once_however_many_calls_it_takes(model, batch, monkeypatch):
    same = batch | {"video_index": torch.zeros(5, dtype=torch.long), "question_span": batch["question_span"].clone()}
    same["question_span"][-1] = same["question_span"][0]
    prepared, seen = model.model.position.forward, []
    monkeypatch.setattr(model.model.position, "forward", lambda u, **k: seen.append(u) or prepared(u, **k))
    monkeypatch.setattr(prompt_batch, "ELEMENTS_AT_ONCE", 2 * batch["encoded"][0].numel())
    sizes = count_calls(model, monkeypatch)
    with torch.no_grad():
        model(**same, ratio=3.0)
    assert sizes == [2, 2, 1]
    assert len(seen) == 1
    assert seen[0].data_ptr() == batch["encoded"][0].data_ptr()


def test_one_group_of_videos_is_held_at_a_time(model, batch, monkeypatch):
    distinct = take(batch, slice(0, 3)) | {"video_index": torch.arange(3)}
    prepare, held = model.model.prepare, []

    def prepare_alone(u, **how):
        assert not any(x() is not None for x in held)
        prepared = prepare(u, **how)
        held.append(weakref.ref(prepared.x))
        return prepared

    monkeypatch.setattr(model.model, "prepare", prepare_alone)
    monkeypatch.setattr(prompt_batch, "ELEMENTS_AT_ONCE", 1)
    with torch.no_grad():
        model(**distinct, ratio=3.0)
    assert len(held) == 3


def test_groups_copy_only_what_they_must():
    encoded = torch.randn(6, 4, 2).split(2)
    prompts = [EmbeddedPrompt(torch.zeros(1), 0, None, video, torch.ones(3)) for video in (1, 0, 1)]
    (mixed,) = group_prompts(prompts, encoded, (Budget(ratio=2),) * 3)
    assert mixed.prompts == (1, 0, 2)
    assert mixed.videos == (0, 1)
    stacked = stack_videos([encoded[video] for video in mixed.videos])
    assert torch.equal(
        select_videos(stacked, mixed.video_of_prompt), torch.stack([encoded[video] for video in (0, 1, 1)])
    )
    (both,) = group_prompts(prompts[:2], encoded, (Budget(ratio=2),) * 2)
    assert select_videos(stacked, both.video_of_prompt) is stacked
    (single,) = group_prompts([prompts[0], prompts[2]], encoded, (Budget(ratio=2),) * 2)
    assert select_videos(stack_videos([encoded[1]]), single.video_of_prompt).data_ptr() == encoded[1].data_ptr()


def test_stacking_is_a_view_where_it_can_be():
    whole = torch.randn(8, 4, 2)
    parts = whole.split(2)
    for chosen, copied in (((0, 1, 2), False), ((0, 2), False), ((0, 1, 3), True), ((1, 0), True)):
        videos = [parts[i] for i in chosen]
        stacked = stack_videos(videos)
        assert torch.equal(stacked, torch.stack(videos))
        assert (stacked.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()) == copied
    apart = [part.clone() for part in parts]
    assert torch.equal(stack_videos(apart), torch.stack(apart))
    whole.requires_grad_()
    weights = torch.randn(2, 2, 4, 2)
    (stack_videos(whole.split(2)[1:3]) * weights).sum().backward()
    assert torch.equal(whole.grad[2:6].unflatten(0, (2, 2)), weights)


def test_a_ratio_for_each_prompt(model, batch):
    ratios = [3.0, 2.0, 3.0, 4.0, 3.0]
    with torch.no_grad():
        together = model(**batch, ratio=ratios, output_compression=True)
        for row, ratio in enumerate(ratios):
            alone = model(**take(batch, row), ratio=ratio, output_compression=True)
            assert together.compressions[row].path == alone.compressions[0].path
            present = int(batch["attention_mask"][row].sum()) + alone.logits.shape[1] - batch["input_ids"].shape[1]
            assert torch.allclose(together.logits[row, -present:], alone.logits[0, -present:], atol=1e-5)
    with pytest.raises(ValueError, match="one per prompt: got 2 ratios and 5 prompts"):
        model(**batch, ratio=[2.0, 3.0])

"""Batches as the model takes them, with pixels and with cached features."""

import pytest
import torch
from training_sets import GOLDEN, make_set

from aviot.data import (
    CachedFeatures,
    Collate,
    Corpus,
    DataConfig,
    FeatureCache,
    FeatureKeys,
    VideoDataset,
    fingerprint,
    split_by_ratio,
    with_features,
)
from aviot.models import AviotForConditionalGeneration, AviotProcessor


@pytest.fixture(scope="module")
def model():
    return AviotForConditionalGeneration.from_pretrained(GOLDEN).eval()


@pytest.fixture(scope="module")
def processor():
    return AviotProcessor.from_pretrained(GOLDEN)


@pytest.fixture
def config(tmp_path):
    return DataConfig(str(make_set(tmp_path, 3)), index_folder=str(tmp_path / "index"))


@pytest.fixture
def data(config, processor):
    return VideoDataset(Corpus.open(config), processor, config)


@pytest.fixture
def cached(config, model, processor, tmp_path):
    weights = model.model.vision_tower.state_dict()
    keys = FeatureKeys(processor.fps, processor.max_frames, processor.image_size, fingerprint(weights), "float32")
    features = CachedFeatures(FeatureCache(tmp_path / "features", 10**9), keys)
    return VideoDataset(Corpus.open(config), processor, config, features=features)


def inputs(batch):
    names = ("input_ids", "attention_mask", "labels", "question_span", "video_index", "pixel_values", "frame_counts")
    return {name: batch[name] for name in names}


def test_a_batch_is_what_the_model_takes(data, model):
    examples = [data[position] for position in range(3)]
    batch = Collate(0)(examples)
    assert batch["positions"] == [0, 1, 2]
    assert batch["frame_counts"].tolist() == [len(example.clip) for example in examples]
    with torch.no_grad():
        together = model(**inputs(batch), ratio=4.0)
        alone = [model(**inputs(Collate(0)([example])), ratio=4.0) for example in examples]
    tokens = [sum(label >= 0 for label in example.tokens.labels) for example in examples]
    weighted = sum(one.lm_loss * count for one, count in zip(alone, tokens, strict=True)) / sum(tokens)
    assert together.lm_loss.item() == pytest.approx(weighted.item(), rel=1e-4)
    mean = sum(one.transport_loss for one in alone) / 3
    assert together.transport_loss.item() == pytest.approx(mean.item(), rel=1e-4)


def test_padding_is_never_attended_to_nor_supervised(data):
    examples = [data[position] for position in range(3)]
    batch = Collate(77)(examples)
    for row, example in enumerate(examples):
        length = len(example.tokens.ids)
        assert batch["input_ids"][row, :length].tolist() == example.tokens.ids
        assert (batch["input_ids"][row, length:] == 77).all()
        assert batch["attention_mask"][row].sum() == length
        assert (batch["labels"][row, length:] == -100).all()


def test_the_second_time_nothing_is_decoded_or_encoded(cached, model, monkeypatch):
    cache = cached.features.cache
    first = with_features(Collate(0)([cached[0], cached[1]]), model.encode, cache)
    monkeypatch.setattr(cached, "processor", _NoReading(cached.processor))
    batch = Collate(0)([cached[0], cached[1]])
    assert "pixel_values" not in batch
    again = with_features(batch, _refuse, cache)
    assert torch.equal(first["input_ids"], again["input_ids"])
    for before, after in zip(first["encoded"], again["encoded"], strict=True):
        assert torch.equal(before, after)


def test_cached_and_new_videos_share_a_batch(cached, data, model):
    with torch.no_grad():
        with_features(Collate(0)([cached[1]]), model.encode, cached.features.cache)
        batch = Collate(0)([cached[0], cached[1], cached[2]])
        assert len(batch["frame_counts"]) == 2
        mixed = with_features(batch, model.encode)["encoded"]
        plain = with_features(Collate(0)([data[0], data[1], data[2]]), model.encode)["encoded"]
    for one, other in zip(mixed, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_each_ratio_has_its_rows(data, model):
    examples = [data[position] for position in range(4)]
    batch = with_features(Collate(0)(examples), model.encode)
    parts = list(split_by_ratio(batch))
    assert [ratio for ratio, _ in parts] == sorted(set(batch["ratios"]))
    rows = [row for ratio, _ in parts for row, drawn in enumerate(batch["ratios"]) if drawn == ratio]
    assert torch.cat([part["video_index"] for _, part in parts]).tolist() == rows
    with torch.no_grad():
        for ratio, part in parts:
            row = batch["ratios"].index(ratio)
            if len(part["input_ids"]) == 1:
                alone = model(**inputs(Collate(0)([examples[row]])), ratio=ratio)
                assert model(**part, ratio=ratio).loss.item() == pytest.approx(alone.loss.item(), rel=1e-4)


def test_pixels_are_not_split(data):
    with pytest.raises(ValueError, match="with_features"):
        next(split_by_ratio(Collate(0)([data[0]])))


class _NoReading:
    """A processor whose videos are out of reach."""

    def __init__(self, processor):
        self.encode_conversation = processor.encode_conversation


def _refuse(*_):
    raise AssertionError("everything was cached")

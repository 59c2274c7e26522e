"""Batches as input of the model, with pixels and with cached features."""

from dataclasses import replace
from types import SimpleNamespace

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
    keep_features,
    model_inputs,
)
from aviot.methods.aviot.schedule import support_count
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


def test_a_batch_is_valid_model_input(data, model):
    examples = [data[position] for position in range(3)]
    batch = Collate(0)(examples)
    assert batch["positions"] == [0, 1, 2]
    assert batch["frame_counts"].tolist() == [len(example.clip) for example in examples]
    with torch.no_grad():
        together = model(**model_inputs(batch))
        alone = [model(**model_inputs(Collate(0)([example]))) for example in examples]
    tokens = [sum(label >= 0 for label in example.tokens.labels) for example in examples]
    weighted = sum(one.lm_loss * count for one, count in zip(alone, tokens, strict=True)) / sum(tokens)
    assert together.lm_loss.item() == pytest.approx(weighted.item(), rel=1e-4)
    mean = sum(one.transport_loss for one in alone) / 3
    assert together.transport_loss.item() == pytest.approx(mean.item(), rel=1e-4)


def test_padding_is_neither_attended_to_nor_supervised(data):
    examples = [data[position] for position in range(3)]
    batch = Collate(77)(examples)
    for row, example in enumerate(examples):
        length = len(example.tokens.ids)
        assert batch["input_ids"][row, :length].tolist() == example.tokens.ids
        assert (batch["input_ids"][row, length:] == 77).all()
        assert batch["attention_mask"][row].sum() == length
        assert (batch["labels"][row, length:] == -100).all()


def test_each_turns_question_is_marked_and_nothing_between(data):
    example = data[0]
    several = SimpleNamespace(ids=example.tokens.ids, labels=example.tokens.labels, questions=[(3, 5), (8, 9)])
    batch = Collate(0)([example, replace(example, tokens=several)])
    assert batch["question_span"][0].tolist() == [list(example.tokens.questions[0]), [0, 0]]
    assert batch["question_span"][1].tolist() == [[3, 5], [8, 9]]


def encode_and_store(batch, model, cache):
    with torch.no_grad():
        encoded = model(**model_inputs(batch), output_encoded=True).encoded
    keep_features(batch, encoded, cache, torch.float32)
    return encoded


def test_the_second_time_nothing_is_decoded_or_encoded(cached, model, monkeypatch):
    cache = cached.features.cache
    first = encode_and_store(Collate(0)([cached[0], cached[1]]), model, cache)
    monkeypatch.setattr(cached, "processor", _NoReading(cached.processor))
    monkeypatch.setattr(model.model, "encode", _refuse)
    batch = Collate(0)([cached[0], cached[1]])
    assert "pixel_values" not in batch
    for before, after in zip(first, encode_and_store(batch, model, cache), strict=True):
        assert torch.equal(before, after)


def test_cached_and_new_videos_share_a_batch(cached, data, model):
    encode_and_store(Collate(0)([cached[1]]), model, cached.features.cache)
    batch = Collate(0)([cached[0], cached[1], cached[2]])
    assert len(batch["frame_counts"]) == 2
    mixed = encode_and_store(batch, model, cached.features.cache)
    plain = encode_and_store(Collate(0)([data[0], data[1], data[2]]), model, cached.features.cache)
    for one, other in zip(mixed, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_each_example_has_its_own_ratio(data, model):
    examples = [data[position] for position in range(4)]
    batch = Collate(0)(examples)
    assert len(set(batch["ratios"])) > 1
    with torch.no_grad():
        out = model(**model_inputs(batch), output_compression=True)
    for example, compression in zip(examples, out.compressions, strict=True):
        assert compression.path[-1] == support_count(len(example.clip), example.ratio)


class _NoReading:
    """A processor that cannot read videos."""

    def __init__(self, processor):
        self.encode_conversation = processor.encode_conversation


def _refuse(*_):
    raise AssertionError("everything was cached")

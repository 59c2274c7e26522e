"""A session answers and compresses as the one-shot functions do, from one encoding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.models.answering import answer_question, compress_video
from aviot.models.session import Session

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.fixture(scope="module")
def loaded():
    return AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval(), AviotProcessor.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 255, (12, 30, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def session(loaded, frames):
    model, processor = loaded
    return Session(model, processor, processor.read(frames, source_fps=2))


def test_the_same_as_asking_once(loaded, session, frames):
    expected = answer_question(*loaded, frames, "What is it?", ratio=4.0, max_new_tokens=6, source_fps=2)
    _, compression, _, _ = compress_video(*loaded, frames, "What is it?", ratio=4.0, source_fps=2)
    listened = session.compress("What is it?", ratio=4.0)
    assert session.answer("What is it?", listened.tokens, max_new_tokens=6).text == expected.text
    assert torch.equal(listened.compression.features, compression.features)
    assert listened.compression.budgets == expected.budgets


def test_coefficients_rebuild_from_the_sessions_features(session):
    out = session.compress("What is it?", ratio=4.0).compression
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients, session.positioned())
    assert torch.allclose(rebuilt, out.features, atol=1e-5)


def test_without_a_question_the_prompt_does_not_matter(session):
    nothing, something = session.compress(None, ratio=4.0), session.compress("Why?", ratio=4.0)
    assert not torch.equal(nothing.compression.features, something.compression.features)
    assert torch.equal(nothing.tokens, session.compress(None, ratio=4.0).tokens)


def test_patches_cover_what_the_encoder_sees(session):
    vision = session.model.config.vision_config
    assert session.patch_cover == 27 * vision.patch_size / vision.image_size


def test_what_is_refused(session):
    with pytest.raises(ValueError, match="compressor none mixes nothing"):
        session.compress("Why?", ratio=4.0, compressor="none")
    with pytest.raises(ValueError, match="the decoder reads 32,768"):
        session.answer("Why?", session.compress("Why?", ratio=4.0).tokens, max_new_tokens=40_000)

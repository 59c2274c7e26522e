"""A session gives the answers and compressions of the one-shot functions from one encoding."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from aviot import Budget, VideoLM
from aviot.methods import Compressed, TokenMethod
from aviot.models import AviotForConditionalGeneration, AviotProcessor

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.fixture(scope="module")
def loaded():
    return AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval(), AviotProcessor.from_pretrained(CHECKPOINT)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 255, (12, 30, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def session(loaded, frames):
    return VideoLM(*loaded).open(frames, source_fps=2)


def test_the_same_as_asking_once(loaded, session, frames):
    model, processor = loaded
    batch = processor(frames, "What is it?", source_fps=2)
    tokens = model.generate(**batch, ratio=4.0, max_new_tokens=6, do_sample=False)
    expected = processor.tokenizer.decode(tokens[0], skip_special_tokens=True).strip()
    (compression,) = model(**batch, ratio=4.0, output_compression=True).compressions
    read = session.compress("What is it?", budget=4)
    assert session.answer("What is it?", read, max_new_tokens=6).text == expected
    assert session.ask("What is it?", budget=4, max_new_tokens=6).text == expected
    assert "".join(session.ask("What is it?", budget=4, max_new_tokens=6, stream=True)).strip() == expected
    assert torch.equal(read.compression.features, compression.features)
    assert read.compression.budgets == session.ask("What is it?", budget=4, max_new_tokens=1).budgets


def test_coefficients_rebuild_from_the_sessions_features(session):
    out = session.compress("What is it?", budget=4).compression
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients, session.sources("aviot"))
    assert torch.allclose(rebuilt, out.features, atol=1e-5)


def test_without_a_question_the_prompt_does_not_matter(session):
    nothing, something = session.compress(None, budget=4), session.compress("Why?", budget=4)
    assert not torch.equal(nothing.compression.features, something.compression.features)
    assert torch.equal(nothing.tokens, session.compress(None, budget=4).tokens)


def test_patches_cover_what_the_encoder_sees(session):
    vision = session.backbone.model.config.vision_config
    assert session.backbone.patch_cover == 27 * vision.patch_size / vision.image_size


def test_what_is_refused(session):
    with pytest.raises(ValueError, match=r"method must be one of 'aviot', .*, got 'avoit'"):
        session.compress("Why?", budget=4, method="avoit")
    with pytest.raises(ValueError, match="ratio must be a finite number above 1"):
        session.ask("Why?", budget=0.5)
    with pytest.raises(ValueError, match="the decoder reads 32,768"):
        session.answer("Why?", session.compress("Why?", budget=4), max_new_tokens=40_000)


def test_tokens_are_read_by_frame_row_and_column_whatever_order_a_method_gives(session):
    """All tokens have a separator after each row, as an uncompressed video has them."""
    rows, columns = session.backbone.model.model.connector.pooled
    count = len(session.video) * rows * columns

    class Backwards(TokenMethod):
        name = "backwards"

        def compress(self, video, *, question, budget):
            return Compressed.kept(video, torch.arange(count).flip(0))

    whole, turned = (session.compress(None, budget=Budget(keep=1.0), method=one) for one in ("none", Backwards()))
    torch.testing.assert_close(turned.tokens, whole.tokens)
    assert turned.video.order[:columns].tolist() == list(range(count - 1, count - 1 - columns, -1))


def test_a_stream_that_is_left_ends_its_decoding(session):
    before = threading.active_count()
    pieces = session.ask("What is it?", budget=4, max_new_tokens=200, stream=True)
    next(pieces, None)
    pieces.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.001)  # the thread has delivered its last piece and ends by itself
    assert threading.active_count() == before


def test_nothing_and_no_text(session):
    assert session.answer_all([], budget=4) == []
    with pytest.raises(ValueError, match="a question must be text, got NoneType"):
        session.ask(None)


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        ("Why? Because.", "must be a list of pairs"),
        ([("Why?", "So.", "then")], "must be a list of pairs"),
        (["ab"], "must be a list of pairs"),
        (None, "must be a list of pairs"),
        ([("Why?", "So."), (" ", "So.")], "turn 1 of the history: the question is empty"),
        ([(3, "So.")], "turn 0 of the history: a question must be text, got int"),
        ([("Why?", None)], "turn 0 of the history: its answer must be text, got NoneType"),
        ([("Why?", "\ud800")], "its answer has bytes that are not UTF-8"),
    ],
)
def test_a_history_is_checked_before_work_starts(session, monkeypatch, history, sentence):
    monkeypatch.setattr(session, "prompt", None)
    for stream in (False, True):
        with pytest.raises(ValueError, match=sentence):
            session.ask("What is it?", budget=4, history=history, stream=stream)


@pytest.mark.parametrize("count", [0, -1, 2.5, "3", True, None])
def test_the_longest_answer_is_checked_before_work_starts(session, monkeypatch, count):
    monkeypatch.setattr(session, "prompt", None)
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number of at least 1"):
        session.ask("What is it?", budget=4, max_new_tokens=count)
    with pytest.raises(ValueError, match="max_new_tokens must be a whole number of at least 1"):
        session.lm.ask_all([(session, "What is it?")], budget=4, max_new_tokens=count)


def test_several_videos_in_one_batch(session, frames):
    other = session.lm.open(frames[:7].copy(), source_fps=2)
    asked = [(session, "What is it?"), (other, "Why is it so long?"), (session, "When?")]
    for method in ("aviot", "uniform", "low-resolution"):
        how = {"budget": 3, "method": method, "max_new_tokens": 5}
        batch, alone = session.lm.ask_all(asked, **how), [one.ask(question, **how) for one, question in asked]
        for found, expected in zip(batch, alone, strict=True):
            assert found.text == expected.text
            assert (found.supports, found.tokens_before, found.tokens_after) == (
                expected.supports,
                expected.tokens_before,
                expected.tokens_after,
            )

"""The calls of 0.1.0 around one video, under their old names."""

import warnings
from pathlib import Path

import numpy as np
import torch

from aviot import VideoLM
from aviot.models import AviotForConditionalGeneration, AviotProcessor

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"


def test_old_calls_give_what_a_session_gives():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from aviot.models.answering import answer_question, compress_video
        from aviot.models.session import Session
    model = AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval()
    processor = AviotProcessor.from_pretrained(CHECKPOINT)
    frames = np.random.default_rng(0).integers(0, 255, (12, 30, 40, 3), dtype=np.uint8)
    new = VideoLM(model, processor).open(frames, source_fps=2)
    expected = new.ask("What is it?", budget=4, max_new_tokens=6)
    found = answer_question(model, processor, frames, "What is it?", ratio=4.0, max_new_tokens=6, source_fps=2)
    assert (found.text, found.budgets, found.path) == (expected.text, expected.budgets, expected.path)
    video, compression = compress_video(model, processor, frames, "What is it?", ratio=4.0, source_fps=2)
    assert len(video) == 12
    session = Session(model, processor, processor.read(frames, source_fps=2))
    read = session.compress("What is it?", ratio=4.0)
    assert torch.equal(read.compression.features, compression.features)
    answer = session.answer("What is it?", read.tokens, max_new_tokens=6)
    assert (answer.text, answer.tokens_after) == (expected.text, expected.tokens_after)
    assert torch.equal(session.relevance("What is it?"), new.relevance("What is it?"))

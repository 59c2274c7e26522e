"""A video is encoded while it is read, with the features and tokens of one that was read first."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from aviot import VideoLM
from aviot.backbones.ahead import reading_ahead
from aviot.backbones.llava_video import model as llava_video
from aviot.backbones.pipeline import Trace
from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.video import Scaling, VideoError, read_video

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"
QUESTION = "What is it?"


@pytest.fixture(scope="module")
def lm():
    model = AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval()
    return VideoLM(model, AviotProcessor.from_pretrained(CHECKPOINT))


@pytest.fixture
def small_chunks(lm, monkeypatch):
    """Let the encoder work on chunks of five frames."""
    size = lm.backbone.model.config.compressor_config
    monkeypatch.setattr(llava_video, "ENCODED_BY_CPU", 5 * size["grid"][0] * size["grid"][1] * size["dim"])
    assert lm.backbone.frames_at_once == 5


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 255, (23, 30, 40, 3), dtype=np.uint8)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("count", [1, 4, 5, 10, 12, 23])
def test_features_and_tokens_are_those_of_a_video_that_was_read_first(lm, frames, count):
    trace = Trace()
    session = lm.open(frames, source_fps=2, frames=count, trace=trace)
    video = lm.backbone.read(frames, source_fps=2, frames=count)
    first = lm.open(video)
    assert sorted(span.name for span in trace.spans) == ["decode"] + ["encode"] * -(-count // 5)
    assert torch.equal(session.encoded.features, first.encoded.features)
    assert np.array_equal(session.video.frames, video.frames)
    if count > 4:
        tokens = [each.compress(QUESTION, budget=4).tokens for each in (session, first)]
        assert torch.equal(*tokens)
    assert list(session.opening_milliseconds) == ["decode", "encode"]


@pytest.mark.usefixtures("small_chunks")
def test_frames_are_encoded_before_the_last_has_arrived(lm, frames, monkeypatch):
    encoded, encode = threading.Event(), lm.backbone.encode_chunk
    monkeypatch.setattr(lm.backbone, "encode_chunk", lambda some: (encoded.set(), encode(some))[1])

    def reader(source, *, progress, **how):
        def note(some, count):
            progress(some, count)
            assert count < 15 or encoded.wait(30)  # of 23: the rest waits for the encoder

        return read_video(source, progress=note, **how)

    assert len(lm.open(frames, source_fps=2, reader=reader).video) == 23


@pytest.mark.usefixtures("small_chunks")
def test_chunks_of_frames_that_are_sampled_anew_are_dropped(lm, frames):
    def reader(source, *, progress, **how):
        other = read_video(255 - source, **how)
        progress(other.frames, 12)  # as if these turned out not to decode
        return read_video(source, progress=progress, **how)

    session = lm.open(frames, source_fps=2, reader=reader)
    assert torch.equal(session.encoded.features, lm.open(frames, source_fps=2).encoded.features)


def test_a_reader_that_tells_no_progress_is_read_first(lm, frames):
    def reader(source, transform, fps, max_frames):
        return read_video(source, source_fps=2, transform=transform)

    session = lm.open(frames, reader=reader)
    assert torch.equal(session.encoded.features, lm.open(frames, source_fps=2).encoded.features)


@pytest.mark.usefixtures("small_chunks")
def test_errors_of_reader_and_encoder_end_both(lm, frames, monkeypatch):
    before = threading.active_count()
    with pytest.raises(VideoError, match="frame rate"):
        lm.open(frames)

    def fail(some):
        raise MemoryError("no memory")

    monkeypatch.setattr(lm.backbone, "encode_chunk", fail)
    with pytest.raises(MemoryError, match="no memory"):
        lm.open(frames, source_fps=2)
    assert threading.active_count() == before


def test_a_checkpoint_tells_how_it_reads_before_it_is_loaded(lm, tmp_path):
    processor = lm.backbone.processor
    expected = {"fps": processor.fps, "max_frames": processor.max_frames}
    processor.save_pretrained(tmp_path)
    assert reading_ahead(tmp_path) == expected | {"transform": Scaling(processor.image_size)}
    for text in ("", "[]", "{}", '{"image_size": "a", "fps": 2, "max_frames": 3}', '{"image_size": 9999999999}'):
        (tmp_path / "processor_config.json").write_text(text)
        assert reading_ahead(tmp_path) is None

"""Streaming sessions: every family, many threads, faults, and going on after a restart."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from loaded import FAMILIES, LLAVA_VIDEO, clip, lm_of

import aviot
from aviot import Budget, StreamingSession
from aviot.streaming import StreamAnswer
from aviot.streaming.session import StreamError

TINY = lm_of(LLAVA_VIDEO)
TOKENS = TINY.open(clip(2), source_fps=2.0).encoded.tokens_per_frame
HOW = {"max_new_tokens": 3}


def watched(count=30, supports=8, lm=TINY, seed=0, **options):
    session = StreamingSession(lm, memory_tokens=supports * TOKENS, **options)
    session.push(clip(count, seed=seed), [i / 2 for i in range(count)])
    assert session.wait(60)
    return session


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_watches(family):
    """While nothing has been merged, the memory is what encoding the whole video gives; then it stays constant."""
    lm, frames = lm_of(family), clip(14)
    whole = lm.open(frames, source_fps=2.0, frames=14).encoded
    with StreamingSession(lm, memory_tokens=8 * whole.tokens_per_frame) as session:
        for i in range(8):
            session.push(frames[i], i / 2)
        assert session.wait(60)
        snapshot, records, _ = session.snapshot()
        held = snapshot.encoded
        here = len(records)
        assert here == 8 // lm.backbone.merged_frames
        if held.grid == whole.grid:  # some families scale frames by the length of the video
            assert torch.allclose(held.features, whole.features[:here], atol=1e-4)
            assert held.times == pytest.approx(whole.times[:here])
        for name, extra in held.extras.items():
            assert extra.shape[:2] == held.features.shape[:2], name
        for i in range(8, 14):
            session.push(frames[i], i / 2)
        session.push(np.concatenate([frames] * 2), [7 + i / 2 for i in range(28)])
        session.finish()
        status = session.status()
        assert status.supports == status.capacity >= 4
        assert status.encoded * lm.backbone.merged_frames == 42
        for method in ("aviot", "segment-mean", "none", "evs"):
            answer = session.ask("What?", budget=2, method=method, **HOW)
            assert isinstance(answer, StreamAnswer)
            assert answer.sources.frame_shares().sum() == pytest.approx(1, abs=1e-5)
        assert answer.tokens_after <= status.tokens


@pytest.mark.parametrize("method", ["segment-mean", "aviot", "tome"])
def test_provenance_rebuilds_an_answers_tokens_from_original_frames(method):
    """In a family whose methods read the encoder's features as they are, from these alone."""
    lm, frames = lm_of("llava-onevision"), clip(40)
    features = lm.open(frames, source_fps=2.0, frames=40).encoded.features.double()
    with StreamingSession(lm, memory_tokens=8 * features.shape[1]) as session:
        session.push(frames, [i / 2 for i in range(40)])
        session.finish()
        answer = session.ask("Why?", budget=Budget(supports=3), method=method, **HOW)
    for token in range(0, len(answer.sources), 3):
        rebuilt = torch.zeros(features.shape[-1], dtype=torch.float64)
        for source in answer.sources.sources(token):
            assert source.frames.times.tolist() == pytest.approx([i / 2 for i in source.frames.ordinals])
            assert source.frames.numbers.tolist() == source.frames.ordinals.tolist()
            rebuilt += source.weight * features[source.frames.ordinals, source.patch].sum(0)
        assert torch.allclose(rebuilt, answer.compressed.tokens[token].double(), atol=1e-5)


@pytest.mark.parametrize(("supports", "given"), [(2, 4), (3, 6), (4, 8), (7, 8)])
def test_a_question_is_asked_of_a_memory_of_twice_its_budget(supports, given):
    """Counts stay those of the memory, and every token is still the mean of the original frames that it names."""
    session = watched(supports=8)
    features = TINY.open(clip(30), source_fps=2.0, frames=30).encoded.features.double()
    answer = session.ask("Why?", budget=Budget(supports=supports), **HOW)
    assert len(answer.records) == given
    assert answer.frames == len(session.view()) == 8
    assert answer.tokens_before == 8 * TOKENS
    assert sum(record.count for record in answer.records) == 30
    snapshot, records, _ = session.snapshot("Why?", Budget(supports=supports))
    for held, record in zip(snapshot.encoded.features.double(), records, strict=True):
        assert torch.allclose(held, features[record.first : record.last + 1].mean(0), atol=1e-5)
    for method, budget in (("segment-mean", Budget(supports=2)), ("aviot", "auto"), ("none", None)):
        assert len(session.snapshot("Why?", budget, method)[1]) == 8
    session.close()


def test_an_answer_tells_of_the_moment():
    session = watched()
    answer = session.ask("Why?", **HOW)
    assert answer.status.seen == answer.status.encoded == 30
    assert answer.status.time == 14.5
    assert answer.frames == answer.status.supports == 8
    assert answer.tokens_before == 8 * TOKENS
    assert json.loads(json.dumps(answer.as_dict()))["status"]["seen"] == 30
    assert "".join(session.ask("Why?", stream=True, **HOW)).strip() == answer.text
    session.close()


def test_memory_bytes_is_kept():
    with StreamingSession(TINY, memory_bytes=2_000_000) as session:
        session.push(clip(40), [i / 2 for i in range(40)])
        session.wait(60)
        status = session.status()
    assert status.memory_bytes <= 2_000_000
    assert status.capacity >= 4


def test_a_memory_that_is_too_small_says_so():
    session = StreamingSession(TINY, memory_tokens=TOKENS)
    session.push(clip(4), [0, 1, 2, 3])
    session.wait(60)
    with pytest.raises(ValueError, match="give room for at least 4"):
        session.ask("Why?")
    with pytest.raises(StreamError, match="encoding has failed"):
        session.push(clip(1), [5])
    session.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_tokens": 10, "memory_bytes": 10}, "not both"),
        ({"memory_tokens": 0}, "memory_tokens must be"),
        ({"memory_bytes": 1.5}, "memory_bytes must be"),
        ({"fps": 0}, "fps must be"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        StreamingSession(TINY, **options)


@pytest.mark.parametrize(
    ("frames", "times", "said"),
    [
        ([1, 2], 0, "an array or a tensor"),
        (np.zeros((4, 4, 3)), 0, "uint8 RGB"),
        (np.zeros((4, 4, 4), np.uint8), 0, "uint8 RGB"),
        (np.zeros((2, 4, 4, 3), np.uint8), [0], "one time in seconds per frame"),
        (np.zeros((4, 4, 3), np.uint8), float("nan"), "one time in seconds per frame"),
    ],
)
def test_wrong_frames_are_refused(frames, times, said):
    with StreamingSession(TINY) as session, pytest.raises(ValueError, match=said):
        session.push(frames, times)


def test_asking_before_the_first_frame_is_refused():
    with StreamingSession(TINY) as session, pytest.raises(ValueError, match="no frame has been encoded yet"):
        session.ask("Why?")


def test_methods_that_read_attention_are_refused():
    with watched() as session, pytest.raises(ValueError, match="keeps no frames"):
        session.ask("Why?", method="fastvid", **HOW)


def test_frames_of_any_size_and_rate():
    for family in (LLAVA_VIDEO, "qwen2-vl"):
        with StreamingSession(lm_of(family), memory_tokens=10_000, fps=4) as session:
            time_now = 0.0
            for size, step in (((64, 98), 0.25), ((98, 64), 0.5), ((30, 30), 2.0), ((200, 120), 0.25)):
                for frame in clip(4, size):
                    session.push(frame, time_now := time_now + step)
            session.finish()
            assert session.status().encoded == 16 // session.lm.backbone.merged_frames
            assert session.ask("Why?", **HOW).frames == session.status().supports


def test_a_stall_and_a_clock_that_goes_back():
    with StreamingSession(TINY, memory_tokens=12 * TOKENS) as session:
        for at in (0, 0.5, 1, 300, 300.5, 2, 2.5, 1.0):
            session.push(clip(1)[0], at)
        session.finish()
        status, records = session.status(), session.view().records
    assert [record.mean_time for record in records] == [0, 0.5, 1, 300, 300.5, 301, 301.5, 302]
    assert status.clock_resets == 2
    assert status.seen == status.encoded == 8


def test_push_does_not_wait_for_a_slow_encoder(monkeypatch):
    """Frames are dropped evenly, and every one is accounted for."""
    session = StreamingSession(TINY, memory_tokens=40 * TOKENS, fps=1000)
    encode, release = session._encoder.encode, threading.Event()

    def slow(*given):
        release.wait()
        return encode(*given)

    monkeypatch.setattr(session._encoder, "encode", slow)
    frame, slowest = clip(1, (360, 640))[0], 0.0
    for i in range(1500):
        start = time.perf_counter()
        session.push(frame, i / 100)
        slowest = max(slowest, time.perf_counter() - start)
    status = session.status()
    assert slowest < 5  # the encoder waits all the while
    assert status.waiting <= 64 + 8
    assert status.dropped + status.waiting == status.seen == 1500
    release.set()
    session.finish()
    status = session.status()
    assert status.encoded + status.dropped == 1500
    numbers = [record.numbers[0] for record in session.view().records if record.count == 1]
    assert len(set(np.diff(numbers[9:]))) == 1  # after the first batch, which was on its way


def test_two_threads_ask_while_frames_arrive():
    """Every answer is of one moment: as many frames behind the memory as were encoded then, and none torn."""
    session = StreamingSession(TINY, memory_tokens=8 * TOKENS, fps=1000)
    session.push(clip(8), [i / 100 for i in range(8)])
    session.wait(60)
    found, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            answer = session.ask("Why?", method="segment-mean", budget=Budget(supports=3), **HOW)
            found.append((answer.records[-1].last + 1, answer.status.encoded, answer.sources.frame_shares().sum()))

    def look():
        while not stop.is_set():
            view = session.view()
            assert all(a.last + 1 == b.first for a, b in zip(view.records, view.records[1:], strict=False))
            found.append((view.records[-1].last + 1,) * 2 + (torch.tensor(1.0),))

    threads = [threading.Thread(target=each) for each in (ask, ask, look)]
    for thread in threads:
        thread.start()
    frames = clip(60, seed=1)
    for i in range(120):
        session.push(frames[i % 60], 1 + i / 100)
        time.sleep(0.002)
    session.wait(60)
    stop.set()
    for thread in threads:
        thread.join(30)
    session.close()
    assert len(found) > 10
    assert all(last == encoded and abs(float(share) - 1) < 1e-5 for last, encoded, share in found)


def test_an_encoder_that_fails_is_reported(monkeypatch):
    session = watched(8)
    monkeypatch.setattr(TINY.backbone, "encode", lambda videos, pixels=None: 1 / 0)
    session.push(clip(1), [100])
    session.wait(60)
    with pytest.raises(StreamError, match="division by zero"):
        session.push(clip(1), [101])
    status = session.status()
    assert (status.seen, status.encoded, status.dropped, status.waiting) == (9, 8, 1, 0)
    assert session.ask("Why?", **HOW).text is not None  # the memory up to then
    session.close()


def test_features_that_are_not_finite_are_refused(monkeypatch):
    session, encode = watched(8), TINY.backbone.encode

    def poisoned(videos, pixels=None):
        (one,) = encode(videos, pixels)
        return [replace(one, features=one.features * torch.nan)]

    monkeypatch.setattr(TINY.backbone, "encode", poisoned)
    session.push(clip(1), [100])
    session.wait(60)
    with pytest.raises(StreamError, match="not finite"):
        session.push(clip(1), [101])
    assert bool(torch.isfinite(session.view().features).all())
    session.close()


def test_a_stream_that_has_ended_takes_no_more():
    session = watched()
    session.finish()
    assert session.status().ended
    with pytest.raises(ValueError, match="has ended"):
        session.push(clip(1), [99])
    assert session.ask("Why?", **HOW).frames == 8


def test_a_saved_stream_goes_on_as_if_it_had_not_stopped(tmp_path):
    frames = clip(60)
    times = [i / 2 for i in range(60)]
    with watched(60, seed=0) as whole:
        expected = whole.view()
    first = StreamingSession(TINY, memory_tokens=8 * TOKENS)
    first.push(frames[:24], times[:24])
    first.wait(60)
    first.save(tmp_path / "memory.safetensors")
    first.close()
    second = StreamingSession.load(TINY, tmp_path / "memory.safetensors")
    assert second.status().seen == 24
    second.push(frames[24:], [1000 + time for time in times[: 60 - 24]])
    second.finish()
    found = second.view()
    # frames go through the encoder in other batches, and costs that tie may be rounded differently
    assert [record.first for record in found.records] == [record.first for record in expected.records]
    assert torch.allclose(found.features, expected.features, atol=1e-5)
    assert second.status().encoded == 60
    assert [record.count for record in found.records] == [record.count for record in expected.records]


def test_a_resumed_queue_counts_what_was_lost(tmp_path):
    session = watched(10)
    session.save(tmp_path / "memory")
    held = session.status()
    session.close()
    found = StreamingSession.load(TINY, tmp_path / "memory").status()
    assert (found.seen, found.encoded, found.supports) == (held.seen, held.encoded, held.supports)


@pytest.mark.parametrize("spoil", ["cut", "other", "json", "knots"])
def test_damaged_saves_are_refused(tmp_path, spoil):
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = tmp_path / "memory"
    with watched(20) as session:
        session.save(path)
    if spoil == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif spoil == "other":
        save_file({"a": torch.zeros(3)}, path)
    else:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if spoil == "json":
            about["aviot_stream"] = about["aviot_stream"].replace('"capacity": 8', '"capacity": 2')
        else:
            tensors["knots"][0, 0] += 1
        save_file(tensors, path, metadata=about)
    with pytest.raises(ValueError, match="not the saved memory of a stream"):
        StreamingSession.load(TINY, path)


def test_another_familys_memory_is_refused(tmp_path):
    with watched(20) as session:
        session.save(tmp_path / "memory")
    with pytest.raises(ValueError, match="this is a qwen2-vl one"):
        StreamingSession.load(lm_of("qwen2-vl"), tmp_path / "memory")


def test_a_killed_process_goes_on_from_its_last_save(tmp_path):
    golden = Path(__file__).parents[1] / "golden" / "checkpoint"
    code = f"""
import os, numpy as np, aviot
lm = aviot.VideoLM.from_pretrained({str(golden)!r}, device="cpu")
session = aviot.StreamingSession(lm, memory_tokens={8 * TOKENS})
for i in range(1000):
    session.push(np.full((20, 30, 3), i % 250, np.uint8), i / 2)
    if i % 10 == 9:
        session.wait()
        session.save({str(tmp_path / "memory")!r})
    if i == 57:
        os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=120)
    assert ended.returncode == -9, ended.stderr[-500:]
    session = StreamingSession.load(TINY, tmp_path / "memory")
    assert session.status().encoded == 50
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]
    assert session.ask("Why?", **HOW).frames == 8


def test_the_class_is_public():
    assert aviot.StreamingSession is StreamingSession

"""Answers of a running batch, token for token those of each prompt alone."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from aviot import Budget, VideoLM
from aviot.engine import row_attention
from aviot.engine.base import EngineUnavailable, Piece
from aviot.engine.continuous import ContinuousEngine
from aviot.engine.row_cache import RowCache
from aviot.engine.transformers import TransformersEngine

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
QUESTIONS = ("What is it?", "Why?", "And then, after the second thing has moved, what happens?", "Who?", "When is it?")
BUDGETS = (2, 4, Budget(keep=0.9), 8, 3)


@pytest.fixture(scope="module")
def session():
    lm = VideoLM.from_pretrained(GOLDEN, device="cpu")
    frames = torch.randint(0, 256, (12, 40, 40, 3), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    return lm.open(frames.numpy(), source_fps=2)


@pytest.fixture
def engine(session):
    made = ContinuousEngine(session.backbone.model, session.backbone.tokenizer, places=3)
    yield made
    made.close()


def prepared(session, number, new=12):
    prompt = session.prompt(QUESTIONS[number % 5])
    read = session.compress(prompt.text, budget=BUDGETS[number % 5])
    return session._place([prompt], [read.video], new)


def collected(pieces):
    found = list(pieces)
    return (
        [token for piece in found for token in piece.tokens],
        "".join(piece.text for piece in found),
        found[-1].finish,
    )


def test_requests_join_and_leave_with_the_same_tokens(session, engine):
    alone = TransformersEngine(engine.model, engine.tokenizer)
    asked = [(prepared(session, number, new), new) for number, new in enumerate((12, 5, 20, 1, 9, 14, 3, 30))]
    running = [engine.pieces(inputs, new) for inputs, new in asked]  # three at a time, the others wait
    for (inputs, new), pieces in zip(asked, running, strict=True):
        assert collected(pieces) == collected(alone.pieces(inputs, new))


def test_cancelled_requests_free_their_places(session, engine):
    inputs = prepared(session, 0)
    first = [engine.pieces(inputs, 2000) for _ in range(3)]
    waiting = engine.pieces(inputs, 2000)
    last = engine.pieces(inputs, 4)
    waiting.close()
    first[0].close()
    assert collected(last)[2] in ("stop", "length")
    for pieces in first[1:]:
        pieces.close()
    assert collected(engine.pieces(inputs, 4)) == collected(
        TransformersEngine(engine.model, engine.tokenizer).pieces(inputs, 4)
    )


def test_a_prompt_with_nan_fails_alone(session, engine):
    good = prepared(session, 1)
    embeds = good.arguments["inputs_embeds"].clone()
    embeds[0, 3] = torch.nan
    bad = replace(good, arguments=good.arguments | {"inputs_embeds": embeds})
    pieces = [engine.pieces(one, 8) for one in (good, bad, good)]
    with pytest.raises(ValueError, match="logits at the first token are not finite"):
        list(pieces[1])
    assert collected(pieces[0]) == collected(pieces[2])


def test_a_decoder_that_crashes_takes_the_next_request(session, engine, monkeypatch):
    inputs, forward = prepared(session, 2), engine.model.forward
    expected = collected(engine.pieces(inputs, 6))

    def crash(*args, **kwargs):
        if kwargs.get("past_key_values") is not None:
            raise RuntimeError("the device is gone")
        return forward(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(engine.model, "forward", crash)
        with pytest.raises(RuntimeError, match="the device is gone"):
            list(engine.pieces(inputs, 6))
    assert collected(engine.pieces(inputs, 6)) == expected


def test_a_prompt_for_which_there_is_no_memory_harms_no_other(monkeypatch):
    def prompt(length):
        return [SimpleNamespace(keys=torch.randn(1, 1, length, 2), values=torch.randn(1, 1, length, 2)) for _ in "ab"]

    def fail(*_):
        raise torch.OutOfMemoryError("full")

    cache, first = RowCache(torch.device("cpu")), prompt(250)
    cache.join(first)
    with monkeypatch.context() as patched:
        patched.setattr(cache.layers[1], "join", fail)
        with pytest.raises(torch.OutOfMemoryError):
            cache.join(prompt(600))
    token = torch.ones(1, 1, 1, 2)
    for length in range(251, 270):  # past the columns of the layer that did not grow
        cache.begin()
        for layer, given in zip(cache.layers, first, strict=True):
            keys, _ = layer.update(token, token)
            assert torch.equal(keys[:, :, :250], given.keys)
            assert keys.shape[2] == length
        cache.end()


def test_heads_of_a_group_read_one_cache(session, engine):
    assert engine.model.get_decoder().config._attn_implementation == row_attention.NAME
    draw, module = torch.Generator().manual_seed(0), SimpleNamespace(num_key_value_groups=3, is_causal=True)
    query = torch.randn(4, 6, 1, 8, generator=draw, dtype=torch.float64)
    key, value = torch.randn(2, 4, 2, 11, 8, generator=draw, dtype=torch.float64)
    unread = torch.arange(11) > torch.tensor([3, 10, 0, 7])[:, None]
    mask = torch.zeros(4, 11, dtype=torch.float64).masked_fill(unread, -torch.inf)[:, None, None]
    expected, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    found, _ = row_attention.row_attention(module, query, key, value, mask, scaling=0.3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_request_that_waits_alone_is_cancelled_at_once(session, monkeypatch):
    engine, inputs = TransformersEngine(session.backbone.model, session.backbone.tokenizer), prepared(session, 0)
    begun, go_on = threading.Event(), threading.Event()
    generate = engine._generate

    def slow(*args, **kwargs):
        begun.set()
        assert go_on.wait(60)
        return generate(*args, **kwargs)

    monkeypatch.setattr(engine, "_generate", slow)
    working = engine.pieces(inputs, 3)
    assert begun.wait(60)
    ended = threading.Event()
    delivered = []
    cancel = engine.submit(inputs, 3, lambda piece: (delivered.append(piece), ended.set()))
    cancel()
    try:
        assert ended.wait(5)
        assert delivered == [Piece("", (), "cancelled")]
    finally:
        go_on.set()
    assert collected(working)[2] in ("stop", "length")


def test_a_full_cache_makes_prompts_wait(session):
    engine = ContinuousEngine(session.backbone.model, session.backbone.tokenizer, places=8, cache_bytes=1)
    inputs, most = prepared(session, 0), [0]
    lock, done = threading.Semaphore(0), []
    take = engine._step

    def step(batch):
        most[0] = max(most[0], len(batch.requests))
        take(batch)

    engine._step = step

    def deliver(piece):
        if not isinstance(piece, Piece) or piece.finish is not None:
            done.append(piece)
            lock.release()

    for _ in range(4):
        engine.submit(inputs, 5, deliver)
    for _ in range(4):
        assert lock.acquire(timeout=60)
    engine.close()
    assert most == [1]
    assert all(isinstance(one, Piece) for one in done)


def test_a_closed_engine_refuses(session, engine):
    inputs = prepared(session, 0)
    running = engine.pieces(inputs, 5000)
    engine.close()
    with pytest.raises(EngineUnavailable, match="shut down"):
        list(running)
    with pytest.raises(EngineUnavailable, match="shutting down"):
        engine.pieces(inputs, 5)

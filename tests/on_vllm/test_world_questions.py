"""Fifty questions of the world: the same tokens from vLLM in this process, from `vllm serve`, and from transformers."""

import threading

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM wants an environment of its own: make test-vllm")

from aviot.budget import Budget
from aviot.engine.base import EngineUnavailable
from aviot.engine.remote import RemoteEngine
from aviot_lab.world.world import World, WorldConfig

pytestmark = pytest.mark.vllm
BUDGETS = (2.0, 4.0, 8.0)
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def asked(bundled):
    """Decoder inputs of fifty questions, open and with options, at three budgets, and their tokens by transformers."""
    world, inputs = World(WorldConfig(frames=(32,))), []
    for index in range(25):
        batch = world.batch("test", index, 1)
        session = bundled.open(batch.clips.frames[0].numpy(), source_fps=2.0)
        for question in (*batch.questions[0], *batch.questions[0])[:2]:
            text = question.open if len(inputs) % 2 else question.multiple_choice
            budget = Budget(ratio=BUDGETS[len(inputs) % 3])
            ready = session.prepare(session.prompt(text), budget=budget, max_new_tokens=NEW_TOKENS)
            inputs.append(ready.inputs)
    assert len(inputs) == 50
    return inputs, [tokens_of(bundled.engine, one) for one in inputs]


def tokens_of(engine, inputs):
    """The tokens and the reason of the end."""
    pieces = list(engine.pieces(inputs, NEW_TOKENS))
    return [token for piece in pieces for token in piece.tokens], pieces[-1].finish


def all_tokens_of(engine, inputs):
    """The tokens of all answers, asked at the same time."""
    found = [None] * len(inputs)

    def ask(number):
        found[number] = tokens_of(engine, inputs[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_answers_differ_and_end(asked):
    expected = asked[1]
    assert len({tuple(tokens) for tokens, _ in expected}) > 10
    assert {finish for _, finish in expected} == {"stop"}


def test_in_process(asked, in_process, bundled):
    inputs, expected = asked
    assert all_tokens_of(in_process, inputs) == expected
    assert in_process.problem() is None


def test_behind_an_address(asked, served, bundled):
    inputs, expected = asked
    served.wait()
    engine = RemoteEngine(bundled.backbone.model, bundled.backbone.tokenizer, served.address)
    try:
        assert all_tokens_of(engine, inputs) == expected
    finally:
        engine.close()


def test_the_session_answers_the_same(bundled, in_process):
    frames = np.random.default_rng(0).integers(0, 256, (12, 96, 96, 3), dtype=np.uint8)
    session = bundled.open(frames, source_fps=2.0)
    expected = session.ask("What colour is the circle?", budget=3)
    own, bundled.engine = bundled.engine, in_process
    try:
        assert session.ask("What colour is the circle?", budget=3).text == expected.text
        pieces = session.ask("What colour is the circle?", budget=3, stream=True)
        assert "".join(pieces).strip() == expected.text
        with pytest.raises(ValueError, match="inside the decoder, which the vllm engine does not run"):
            session.ask("What colour is the circle?", method="fastv", budget=3)
    finally:
        bundled.engine = own


def test_a_cancelled_request_frees_its_place(asked, in_process):
    pieces = in_process.pieces(asked[0][0], 500)
    next(pieces)
    pieces.close()
    assert in_process.decoder.unfinished == 0
    assert tokens_of(in_process, asked[0][0]) == asked[1][0]


def test_a_server_that_goes_away_and_returns(asked, served, bundled):
    inputs, expected = asked
    served.wait()
    engine = RemoteEngine(bundled.backbone.model, bundled.backbone.tokenizer, served.address)
    try:
        assert tokens_of(engine, inputs[0]) == expected[0]
        served.end()
        with pytest.raises(EngineUnavailable, match="does not answer"):
            tokens_of(engine, inputs[0])
        assert "does not answer" in engine.problem()
        served.start()
        assert tokens_of(engine, inputs[0]) == expected[0]
        assert engine.problem() is None
    finally:
        engine.close()

"""Continuous batches of every family: the same tokens as each prompt alone."""

import pytest
from loaded import FAMILIES, lm_of, session_of

from aviot import Budget
from aviot.engine.continuous import ContinuousEngine, batches
from aviot.engine.transformers import TransformersEngine

ALONE = {"qwen3.5"}  # has layers of linear attention
ASKED = (("Why?", 2, 5), ("What is it then?", 4, 9), ("Who came?", Budget(keep=0.9), 14), ("When?", 3, 7))


def tokens(pieces):
    return [token for piece in pieces for token in piece.tokens]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_answers_as_each_prompt_alone(family):
    lm, session = lm_of(family), session_of(family)
    model, tokenizer = lm.backbone.model, lm.backbone.tokenizer
    assert batches(model) == (family not in ALONE)
    engine, alone = ContinuousEngine(model, tokenizer, places=3), TransformersEngine(model, tokenizer)
    given = []
    for question, budget, new in ASKED:
        read = session.compress(question, budget=budget)
        given.append((session._place([session.prompt(question)], [read.video], new), new))
    running = [engine.pieces(inputs, new) for inputs, new in given]
    expected = [tokens(alone.pieces(inputs, new)) for inputs, new in given]
    assert list(map(tokens, running)) == expected
    engine.close()

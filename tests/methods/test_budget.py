"""Budgets: checked when made, and counted the same way for every method."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aviot import Budget
from aviot.budget import AutoBudget, as_budget, one_per_prompt, parse_budget
from aviot.methods.features import Structure, VideoFeatures


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ratio": 0.5}, "ratio must be a finite number above 1 .*, got 0.5"),
        ({"ratio": 1}, "ratio must be a finite number above 1"),
        ({"ratio": math.nan}, "ratio must be a finite number above 1"),
        ({"ratio": "4"}, "ratio must be a finite number above 1"),
        ({"keep": 0}, "keep must be a share above 0 and at most 1 .*, got 0"),
        ({"keep": 1.01}, "keep must be a share"),
        ({"supports": 0}, "supports must be a whole number of at least 1, got 0"),
        ({"supports": 2.5}, "supports must be a whole number"),
        ({"tokens": True}, "tokens must be a whole number"),
        ({}, "exactly one of ratio, keep, supports and tokens, got none"),
        ({"ratio": 4, "keep": 0.5}, "exactly one of ratio, keep, supports and tokens, got ratio, keep"),
    ],
)
def test_what_is_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        Budget(**given)


def test_a_number_is_a_ratio_and_auto_needs_an_answer():
    assert Budget.of(4) == Budget(ratio=4.0)
    assert Budget.of(Budget(keep=0.1)) == Budget(keep=0.1)
    for auto in ("auto", AutoBudget()):
        with pytest.raises(ValueError, match=r"'auto' is chosen by how sure an answer is, .* give a ratio"):
            Budget.of(auto)
    with pytest.raises(ValueError, match="ratio must be a finite number above 1"):
        Budget.of("4")


@pytest.mark.parametrize(
    "budget",
    [
        Budget(ratio=2.5),
        Budget(keep=0.125),
        Budget(supports=16),
        Budget(tokens=2048),
        Budget(tokens=1_000_000),
        Budget(ratio=math.pi),
        Budget(keep=1 / 3),
        AutoBudget(),
        AutoBudget(min=20, max=Budget(keep=0.9), quality=0.95),
        AutoBudget(min=Budget(tokens=100), max=Budget(tokens=1000)),
    ],
)
def test_the_text_of_a_budget_reads_back(budget):
    assert parse_budget(budget.text) == budget
    assert as_budget(budget) is budget


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("keep=much", "must be a ratio .*keep=0.25.*, got 'keep=much'"),
        ("frames=3", "must be a ratio .*keep=0.25.*, got 'frames=3'"),
        ("tokens=2.5", "a budget must be a ratio"),
        ("0.5", "ratio must be a finite number above 1"),
        ("auto:quality=high", "quality must be a probability from 0 to 1 .*, got 'high'"),
        ("auto:quality=1.5", "quality must be a probability"),
        ("auto:most=2", "is written auto, or auto:min=10,max=2,quality=0.9, got 'auto:most=2'"),
        ("auto:min=2,max=10", "goes from small to large, got ratio 2 and then ratio 10"),
        ("auto:min=keep=0.5,max=4", "goes from small to large"),
    ],
)
def test_what_texts_are_refused(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_budget(text)


@given(frames=st.integers(1, 300), per_frame=st.integers(1, 300))
def test_steps_of_an_automatic_budget_grow(frames, per_frame):
    """Budgets that a short video does not tell apart are one step."""
    auto = AutoBudget(min=Budget(ratio=20), between=(Budget(tokens=500),), max=Budget(ratio=2))
    counts = [step.count(frames, per_frame) for step in auto.steps(frames, per_frame)]
    assert counts[0] == Budget(ratio=20).count(frames, per_frame)
    assert counts == sorted(set(counts))
    assert counts[-1] == max(budget.count(frames, per_frame) for budget in auto.budgets)


@given(frames=st.integers(1, 300), per_frame=st.integers(1, 300), ratio=st.floats(1.001, 100))
def test_a_share_is_its_ratio(frames, per_frame, ratio):
    """For frames and for tokens, up to the rounding of 1 / ratio."""
    by_ratio, by_share = Budget(ratio=ratio), Budget(keep=1 / ratio)
    assert by_ratio.frames(frames, per_frame) == by_share.frames(frames, per_frame)
    assert by_ratio.count(frames, per_frame) == by_share.count(frames, per_frame)
    assert 1 <= by_ratio.frames(frames, per_frame) <= frames
    assert 1 <= by_ratio.count(frames, per_frame) <= frames * per_frame


@given(frames=st.integers(1, 300), supports=st.integers(1, 300))
def test_the_ratio_of_a_number_of_frames_gives_that_number(frames, supports):
    """T / K in floating point can land a hair above K, which is not another support."""
    if supports < frames:
        assert Budget(ratio=frames / supports).frames(frames, 1) == supports


def test_counts():
    assert Budget(tokens=500).frames(64, 210) == 2
    assert Budget(tokens=500).count(64, 196) == 500
    assert Budget(tokens=10**9).frames(64, 210) == 64
    assert Budget(supports=70).frames(64, 210) == 64
    assert Budget(supports=3).count(64, 196) == 588
    with pytest.raises(ValueError, match="a budget of 100 tokens is less than one frame's 210; give more, or choose"):
        Budget(tokens=100).frames(64, 210)


def test_words():
    budgets = [Budget(ratio=4), Budget(keep=0.1), Budget(supports=16), Budget(tokens=2048)]
    assert [str(budget) for budget in budgets] == ["ratio 4", "keep 0.1", "16 supports", "2048 tokens"]
    assert [budget.label for budget in budgets] == ["4", "keep0.1", "16supports", "2048tokens"]
    assert len({budget.sort_key for budget in budgets}) == 4


def test_one_for_all_or_one_each():
    assert one_per_prompt(4, 2) == (Budget(ratio=4),) * 2
    assert one_per_prompt([2, Budget(keep=0.5)], 2) == (Budget(ratio=2), Budget(keep=0.5))
    with pytest.raises(ValueError, match="one per prompt: got 3 ratios and 2 prompts"):
        one_per_prompt([2, 3, 4], 2)


@pytest.mark.parametrize("structure", [Structure(), Structure(1), Structure(0, 1), Structure(1, 1), Structure(3, 2)])
def test_tokens_and_their_separators_fit_wherever_the_tokens_are(structure):
    frames, cells, rows = 3, 6, 2
    tokens_per_frame = cells + (rows if structure.per_frame else 0)
    video = VideoFeatures(torch.zeros(frames, cells, 1), (rows, 3), (), tokens_per_frame, structure=structure)
    whole = frames * tokens_per_frame
    for tokens in range(1, whole + 4):
        least = 1 + structure.per_frame + structure.per_video
        if tokens < least:
            with pytest.raises(
                ValueError, match=f"a budget of {tokens} leaves no room .* give at least {least} tokens"
            ):
                video.limit(Budget(tokens=tokens))
            continue
        limit = video.limit(Budget(tokens=tokens))
        if tokens >= whole + structure.per_video:
            assert limit == frames * cells
            continue

        def total(count):
            return count + structure.per_frame * min(count, frames) + structure.per_video

        assert total(limit) <= tokens
        assert limit == frames * cells - 1 or total(limit + 1) > min(tokens, whole)
    assert video.limit(Budget(keep=1.0)) == frames * cells
    assert video.limit(Budget(ratio=2)) == video.limit(Budget(tokens=-(-whole // 2)))


def test_tokens_before_pooling_are_limited_by_those_after_it():
    pooling = torch.zeros(2, 2, 9)
    video = VideoFeatures(torch.zeros(4, 9, 1), (3, 3), (), 6, {"pooling": pooling}, Structure(1))
    assert video.cells == 4
    assert video.limit(Budget(keep=1.0)) == 16
    assert video.limit(Budget(keep=0.5)) == 12 - 4

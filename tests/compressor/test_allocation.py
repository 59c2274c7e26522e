"""Budgets: the pilot, the signals, and integers that add up."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aviot.config import TransportConfig
from aviot.methods.aviot.allocation import (
    allocation_probabilities,
    integer_budgets,
    pilot_response,
    round_robin,
    standardise,
)
from aviot.methods.aviot.segments import Segments
from aviot.ot import solve

CPU = torch.device("cpu")


def looped_budgets(probabilities, sizes, supports):
    """Repair budgets as printed: one support at a time, in order or in reverse order."""
    spare = supports - len(sizes)
    budgets = [1 + min(round(p * spare), n - 1) for p, n in zip(probabilities, sizes, strict=True)]
    order = sorted(range(len(sizes)), key=lambda m: -probabilities[m])
    while sum(budgets) != supports:
        visit = order if sum(budgets) < supports else order[::-1]
        step = 1 if sum(budgets) < supports else -1
        for m in visit:
            if sum(budgets) != supports and 1 <= budgets[m] + step <= sizes[m]:
                budgets[m] += step
    return budgets


@st.composite
def allocation_problems(draw):
    frames = draw(st.integers(1, 60))
    supports = draw(st.integers(1, frames))
    segments = Segments.of(frames, supports, draw(st.integers(1, 6)))
    logits = draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 40.0]), min_size=segments.count, max_size=segments.count)
    )
    return segments, supports, torch.tensor([logits], dtype=torch.float64).softmax(-1)


@given(allocation_problems())
def test_budgets_equal_the_loop_and_keep_their_bounds(problem):
    segments, supports, probabilities = problem
    sizes = segments.sizes(torch.device("cpu"))
    budgets = integer_budgets(probabilities, sizes, supports)[0]
    assert budgets.tolist() == looped_budgets(probabilities[0].tolist(), sizes.tolist(), supports)
    assert budgets.sum() == supports
    assert ((budgets >= 1) & (budgets <= sizes)).all()


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=2, max_size=2), st.integers(4, 40))
def test_any_signals_give_budgets_inside_their_bounds(signals, supports):
    response, relevance = torch.tensor(signals, dtype=torch.float64)[:, None]
    sizes = Segments(40, 4).sizes(torch.device("cpu"))
    budgets = integer_budgets(allocation_probabilities(response, relevance, 0.3, 0.1), sizes, supports)
    assert budgets.sum() == supports
    assert ((budgets >= 1) & (budgets <= sizes)).all()


def test_removal_goes_up_the_order_and_equal_probabilities_keep_theirs():
    equal = torch.full((1, 4), 0.25, dtype=torch.float64)
    assert integer_budgets(equal, torch.tensor([4, 4, 4, 4]), 10).tolist() == [[3, 3, 2, 2]]
    assert integer_budgets(equal, torch.tensor([4, 4, 4, 4]), 9).tolist() == [[3, 2, 2, 2]]


def test_probabilities_that_are_not_numbers_still_give_indices():
    """On a GPU the check raises after the indexing."""
    budgets = integer_budgets(torch.full((1, 4), torch.nan), torch.tensor([4, 4, 4, 4]), 10)
    assert budgets.tolist() == [[3, 3, 2, 2]]


def test_round_robin_fills_segments_with_capacity():
    order = torch.tensor([[2, 0, 1]])
    assert round_robin(torch.tensor([[5]]), torch.tensor([[1, 9, 2]]), order, 12).tolist() == [[1, 2, 2]]
    assert round_robin(torch.tensor([[0]]), torch.tensor([[1, 9, 2]]), order, 12).tolist() == [[0, 0, 0]]
    assert round_robin(torch.tensor([[12]]), torch.tensor([[1, 9, 2]]), order, 12).tolist() == [[1, 9, 2]]


def test_standardise():
    assert standardise(torch.tensor([[1.0, 3.0]])).tolist() == [[-1, 1]]
    assert standardise(torch.tensor([[2.0, 2.0]])).tolist() == [[0, 0]]
    assert standardise(torch.tensor([[0.0, 1e-7]], dtype=torch.float64)).tolist() == [[0, 0]]
    # deviation under 1e-6, largest above it: divided by the largest
    signal = torch.zeros(1, 16, dtype=torch.float64)
    signal[0, 0] = 3e-6
    assert signal.std(correction=0) < 1e-6
    assert standardise(signal)[0, 0] == pytest.approx(1.0)


def test_balanced_pilot_is_silent_and_unbalanced_is_not():
    embedded = torch.randn(2, 22, 8, generator=torch.Generator().manual_seed(0)) * 3
    segments = Segments(22, 4)
    balanced = pilot_response(embedded, segments, 0.1, TransportConfig(), "balanced")
    unbalanced = pilot_response(embedded, segments, 0.1, TransportConfig(), "unbalanced")
    assert balanced.shape == (2, 4)
    assert balanced.max() < 1e-12
    assert standardise(balanced).eq(0).all()
    assert unbalanced.min() > 1e-3
    assert standardise(unbalanced).abs().max() > 0.1


@pytest.mark.parametrize("updates", [1, 2, 20])
@pytest.mark.parametrize(("pilot", "relaxation"), [("balanced", "damped"), ("unbalanced", "relaxed")])
@pytest.mark.parametrize("spread", [0.05, 0.5, 20.0])  # the last is past the cost bound
def test_the_pilot_equals_a_one_column_solve(updates, pilot, relaxation, spread):
    config, segments = TransportConfig(updates=updates), Segments(22, 4)
    embedded = spread * torch.randn(2, 22, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    response = pilot_response(embedded, segments, 0.1, config, pilot)
    for video in range(2):
        for m, (start, n) in enumerate(zip(segments.starts(CPU).tolist(), segments.sizes(CPU).tolist(), strict=True)):
            sources = embedded[video, start : start + n]
            cost = (sources - sources[:1]).square().sum(-1, keepdim=True)
            mass = solve(cost, 0.1, config, relaxation=relaxation).source_mass
            expected = (mass / mass.sum() - 1 / n).abs().mean()
            assert response[video, m].item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-14)

"""Objective terms on cases small enough to compute by hand."""

import math

import pytest
import torch
from common import inputs, make

from aviot.config import ObjectiveConfig
from aviot.methods.aviot.objective import (
    ObjectiveTerms,
    gate_balance,
    gate_entropy_shortfall,
    gate_variation,
    over_edges,
    patch_motion,
    weighted_average,
)

CONFIG = ObjectiveConfig()


def test_weights_are_the_papers():
    one = ObjectiveTerms(*(torch.tensor(10.0**i) for i in range(6)))
    assert one.total(CONFIG).item() == pytest.approx(1 + 10 + 0.01 * 1e2 + 0.001 * 1e3 + 0.5 * 1e4 + 0.5 * 1e5)


def test_loss_is_the_weighted_sum_of_its_terms():
    out = make()(**inputs(20), ratio=4)
    t = out.terms
    expected = t.temporal + t.regional + 0.01 * t.continuity + 0.001 * t.variation + 0.5 * t.balance + 0.5 * t.entropy
    assert out.loss.item() == pytest.approx(expected.item())


def test_balance():
    gates = torch.tensor([0.8, 0.1, 0.1]).expand(1, 6, 2, 3)
    assert gate_balance(gates, CONFIG).item() == pytest.approx((0.2**2 + 0.05**2 + 0.05**2) / 3)
    assert gate_balance(torch.tensor([0.5, 0.3, 0.2]).expand(1, 6, 2, 3), CONFIG) == 0


def test_entropy_shortfall_is_finite_at_a_closed_gate():
    gates = torch.tensor([1.0, 0.0, 0.0]).repeat(1, 6, 2, 1).requires_grad_()
    shortfall = gate_entropy_shortfall(gates, 0.85)
    assert shortfall.item() == pytest.approx(0.85**2)
    shortfall.backward()
    assert torch.isfinite(gates.grad).all()
    even = torch.full((1, 6, 2, 3), 1 / 3)
    assert gate_entropy_shortfall(even, 0.85) == 0
    half = torch.tensor([0.5, 0.5, 0.0]).expand(1, 6, 2, 3)
    assert gate_entropy_shortfall(half, 0.85).item() == pytest.approx((0.85 - math.log(2) / math.log(3)) ** 2, rel=1e-5)


def test_edges_of_a_lattice():
    pairs = over_edges(lambda a, b: torch.stack((a, b), -1), (2, 3), torch.arange(6.0)[None])[0]
    found = {tuple(pair) for pair in pairs.long().tolist()}
    assert found == {(0, 3), (1, 4), (2, 5), (0, 1), (1, 2), (3, 4), (4, 5)}
    assert weighted_average(torch.ones(2, 0), torch.ones(2, 0)).tolist() == [0, 0]


def test_variation_weighs_edges_by_motion():
    gates = torch.zeros(1, 3, 1, 3)
    gates[0, 0, 0] = torch.tensor([1.0, 0, 0])
    gates[0, 1:, 0] = torch.tensor([0, 1.0, 0])
    change = torch.tensor([[0.0, 0.2, 0.2]])
    weights = torch.tensor([math.exp(-1), 1.0])
    expected = weights[0] * 2 / 3 / weights.sum()
    assert gate_variation(gates, change, (1, 3), 0.2).item() == pytest.approx(expected.item())


def test_patch_motion_of_turning_features():
    u = torch.tensor([[[1.0, 0]], [[0, 1.0]], [[0, 2.0]]])[None]  # a quarter turn, then none
    assert patch_motion(u).item() == pytest.approx(0.5)

"""The converged coupling against POT, an independent library."""

import pytest
import torch
from test_solver import CONFIG, random_cost

from aviot.config import TransportConfig
from aviot.ot import solve

pot = pytest.importorskip("ot", reason="POT is part of the dev install; the GPU machine has none")


def test_converged_damped_coupling_is_pots_balanced_coupling():
    cost = random_cost(12, 5)
    converged = solve(cost, 0.1, TransportConfig(updates=3000))
    expected = pot.sinkhorn([1 / 12] * 12, [1 / 5] * 5, cost.numpy(), 0.1, stopThr=1e-15, numItermax=100000)
    assert torch.allclose(converged.plan, torch.as_tensor(expected), atol=1e-10)


def test_converged_relaxed_coupling_is_pots_unbalanced_coupling():
    cost = random_cost(12, 5)
    converged = solve(cost, 0.1, TransportConfig(updates=3000), relaxation="relaxed")
    expected = pot.unbalanced.sinkhorn_unbalanced(
        [1 / 12] * 12,
        [1 / 5] * 5,
        cost.numpy(),
        0.1,
        (CONFIG.source_relaxation, CONFIG.target_relaxation),
        reg_type="entropy",
        stopThr=1e-15,
        numItermax=100000,
    )
    assert torch.allclose(converged.plan, torch.as_tensor(expected), atol=1e-9)

"""The batched solver against the looped float64 reference."""

import pytest
import torch
from common import relative
from hypothesis import given
from hypothesis import strategies as st

from aviot.config import TransportConfig
from aviot.ot import Coupling, scale_cost, solve
from aviot.ot import reference as ref

CONFIG = TransportConfig()
SIZES = [(1, 1), (1, 3), (7, 1), (5, 5), (13, 4), (4, 13)]


def reference_coupling(cost, epsilon, relaxed=False):
    return ref.solve(
        cost.double(),
        epsilon,
        updates=CONFIG.updates,
        source_relaxation=CONFIG.source_relaxation,
        target_relaxation=CONFIG.target_relaxation,
        relaxed=relaxed,
    )


def random_cost(n, k, seed=0, scale=1.0):
    return scale * torch.rand(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded(problems):
    """Return problems of different sizes in one tensor, with random padding, and their counts."""
    n, k = max(c.shape[0] for c in problems), max(c.shape[1] for c in problems)
    cost = torch.full((len(problems), n, k), 1e6, dtype=torch.float64)
    for i, c in enumerate(problems):
        cost[i, : c.shape[0], : c.shape[1]] = c
    sources, supports = torch.tensor([list(c.shape) for c in problems]).T
    return cost, {"source_count": sources, "support_count": supports}


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("epsilon", [0.1, 0.15])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])  # 50 is past the bound of 100 epsilon
def test_padded_problems_equal_the_reference_one_by_one(relaxed, epsilon, scale):
    problems = [random_cost(n, k, seed, scale) for seed, (n, k) in enumerate(SIZES)]
    cost, counts = padded(problems)
    coupling = solve(cost, epsilon, CONFIG, **counts, relaxation="relaxed" if relaxed else "damped")
    for i, problem in enumerate(problems):
        n, k = problem.shape
        expected = reference_coupling(problem, epsilon, relaxed)
        assert relative(coupling.plan[i, :n, :k], expected) < 1e-12
        assert coupling.plan[i, n:].eq(0).all()
        assert coupling.plan[i, :, k:].eq(0).all()
        assert relative(coupling.conditional[i, :n, :k], ref.conditional(expected)) < 1e-12
        assert relative(coupling.mass[i, :k], expected.sum(0)) < 1e-12
        assert relative(coupling.source_mass[i, :n], expected.sum(1)) < 1e-12
        entropy = -(ref.conditional(expected) * ref.conditional(expected).log()).sum(0)
        assert torch.allclose(coupling.entropy[i, :k], entropy, atol=1e-12)


def test_gradients_equal_the_reference_and_padding_has_none():
    problems = [random_cost(n, k, seed, 30.0) for seed, (n, k) in enumerate(SIZES)]
    cost, counts = padded(problems)
    cost.requires_grad_()
    weight = torch.rand(cost.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    coupling = solve(cost, 0.1, CONFIG, **counts)
    (((coupling.conditional + coupling.plan) * weight).sum() + coupling.entropy.sum()).backward()
    for i, problem in enumerate(problems):
        n, k = problem.shape
        problem.requires_grad_()
        plan = reference_coupling(problem, 0.1)
        (((ref.conditional(plan) + plan) * weight[i, :n, :k]).sum() + ref.column_entropy(plan).sum()).backward()
        assert torch.allclose(cost.grad[i, :n, :k], problem.grad, rtol=1e-9, atol=1e-13)
        assert cost.grad[i, n:].eq(0).all()
        assert cost.grad[i, :, k:].eq(0).all()


def test_barycentre():
    cost, points = random_cost(9, 4), random_cost(9, 6, seed=1)
    found = solve(cost, 0.1, CONFIG).barycentre(points, CONFIG.stabilizer)
    expected = ref.barycentre(reference_coupling(cost, 0.1), points, CONFIG.stabilizer)
    assert relative(found, expected) < 1e-12


def test_scaling_bounds_each_problem_by_itself_and_stops_the_gradient():
    cost = torch.stack((random_cost(5, 3), random_cost(5, 3, scale=1e4))).requires_grad_()
    scaled = scale_cost(cost, 0.1, CONFIG)
    assert torch.equal(scaled[0], cost[0])
    assert scaled[1].max().item() == pytest.approx(10.0, rel=1e-9)
    scaled.sum().backward()
    expected = 10.0 / (cost[1].max() + 1e-8)
    assert torch.allclose(cost.grad[1], expected.detach().expand(5, 3))


def test_one_column_gives_uniform_rows_for_any_cost():
    """The balanced pilot has no signal for this reason."""
    plan = solve(random_cost(9, 1, scale=8.0), 0.1, CONFIG).plan
    assert torch.allclose(plan, plan.mean().expand_as(plan), rtol=1e-12)


@given(st.integers(1, 9), st.integers(1, 9), st.floats(-6, 4), st.integers(0, 10**6))
def test_conditionals_are_distributions(n, k, magnitude, seed):
    coupling = solve(random_cost(n, k, seed, 10**magnitude).float(), 0.1, CONFIG)
    assert coupling.conditional.ge(0).all()
    assert torch.allclose(coupling.conditional.sum(0), torch.ones(k), atol=1e-5)
    assert torch.isfinite(coupling.plan).all()


@given(st.integers(2, 6), st.integers(0, 10**6))
def test_permuting_problems_permutes_couplings(count, seed):
    cost = torch.rand(count, 6, 4, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + 1))
    assert torch.equal(solve(cost[order], 0.1, CONFIG).plan, solve(cost, 0.1, CONFIG).plan[order])


def test_a_column_whose_mass_underflows_is_still_a_distribution():
    coupling = Coupling(torch.tensor([[-500.0, 0.0], [-501.0, 0.0]]))
    assert coupling.mass[0] == 0
    assert coupling.conditional.sum(0).tolist() == pytest.approx([1, 1])

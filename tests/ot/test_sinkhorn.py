"""The solver's kernels against plain torch in float64, on a GPU where there is one and interpreted elsewhere."""

import pytest
import torch
from common import DEVICE, relative

from aviot.config import TransportConfig
from aviot.ot import solve, solver

pytestmark = pytest.mark.usefixtures("poisoned")

CONFIG = TransportConfig()
EPSILON = 0.12
FLOATS = [(torch.float64, 1e-12, 1e-10), (torch.float32, 1e-5, 1e-5)]


def problems(n, k, dtype, count=3, spread=1.0, seed=0):
    """Return costs of problems of at most n x k: the first of that size, the second the smallest."""
    g = torch.Generator().manual_seed(seed)
    cost = spread * torch.rand(count, n, k, generator=g, dtype=torch.float64)
    sizes = [torch.randint(1, most + 1, (count,), generator=g) for most in (n, k)]
    for size, most in zip(sizes, (n, k), strict=True):
        size[:2] = torch.tensor([most, 1])
    return cost.to(DEVICE, dtype), *(size.to(DEVICE) for size in sizes)


def present(cost, sources, supports):
    rows, columns = (torch.arange(most, device=DEVICE) for most in cost.shape[-2:])
    return (rows < sources[:, None])[:, :, None] & (columns < supports[:, None])[:, None, :]


def check(scores, counts, tolerance, gradient_tolerance, config=CONFIG):
    """Return plans and gradients of the present entries; the others have finite plans and no gradient."""
    there = present(scores, *counts)
    weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1)).to(scores).masked_fill(~there, 0)
    leaf, exact = scores.clone().requires_grad_(), scores.double().requires_grad_()
    found = solver._kernel_updates(leaf, EPSILON, config, *counts)
    expected = solver._updates(exact, EPSILON, config, *counts, damped=True)
    assert found.isfinite().all()
    torch.testing.assert_close(found[there].double(), expected[there], rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        assert torch.equal(solver._kernel_updates(scores, EPSILON, config, *counts), found)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert leaf.grad[~there].eq(0).all()
    assert (leaf.grad - exact.grad).norm() < gradient_tolerance * weight.norm()


@pytest.mark.parametrize(("dtype", "tolerance", "gradient_tolerance"), FLOATS)
@pytest.mark.parametrize(("n", "k"), [(1, 3), (7, 1), (13, 5), (5, 19)])
def test_plans_and_gradients(n, k, dtype, tolerance, gradient_tolerance):
    cost, *counts = problems(n, k, dtype)
    check(cost / -EPSILON, counts, tolerance, gradient_tolerance)


@pytest.mark.parametrize(("dtype", "tolerance", "gradient_tolerance"), FLOATS)
def test_costs_at_the_bound(dtype, tolerance, gradient_tolerance):
    cost, *counts = problems(11, 6, dtype, spread=1000.0)
    scaled = solver.scale_cost(cost, EPSILON, CONFIG, source_count=counts[0], support_count=counts[1])
    scores = scaled / -EPSILON
    assert scores[0].min().item() == pytest.approx(-CONFIG.cost_bound, rel=1e-6)
    check(scores, counts, tolerance, gradient_tolerance)


@pytest.mark.parametrize("config", [TransportConfig(updates=1), TransportConfig(source_relaxation=0.06)], ids=str)
def test_other_solvers(config):
    """One update alone, and scores at the kernels' bound."""
    cost, *counts = problems(6, 4, torch.float32, spread=100 * EPSILON)
    check(cost / -EPSILON, counts, 1e-5, 1e-5, config)


def test_solve_by_kernels_broadcasts_counts_as_torch_does(monkeypatch):
    cost = torch.rand(2, 1, 4, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(DEVICE)
    sources = torch.tensor([7, 7, 6, 6], device=DEVICE)
    supports = torch.tensor([[5, 1, 2, 3], [2, 4, 4, 1]], device=DEVICE)[:, None]
    plans, config = [], TransportConfig(updates=3)
    for served in (True, False):
        monkeypatch.setattr(solver, "kernels_serve", lambda *_, served=served: served)
        plans.append(solve(cost, EPSILON, config, source_count=sources, support_count=supports).conditional)
        plans.append(solve(cost, EPSILON, config).plan)
    for found, expected in zip(plans[:2], plans[2:], strict=True):
        assert relative(found, expected) < 1e-12


def test_relaxed_transport_is_torchs(monkeypatch):
    cost, _, _ = problems(6, 3, torch.float64)
    expected = solve(cost, EPSILON, CONFIG, relaxation="relaxed").plan
    monkeypatch.setattr(solver, "kernels_serve", lambda *_: True)
    monkeypatch.setattr(solver, "_kernel_updates", lambda *_: pytest.fail("a kernel ran"))
    assert torch.equal(solve(cost, EPSILON, CONFIG, relaxation="relaxed").plan, expected)


def test_unsupported_inputs_are_refused_by_the_kernels(monkeypatch):
    assert not solver.kernels_serve(torch.zeros(2, 3), EPSILON, CONFIG)
    monkeypatch.setattr(solver, "on_gpu", lambda _: True)
    assert solver.kernels_serve(torch.zeros(128, 128), EPSILON, CONFIG)
    assert not solver.kernels_serve(torch.zeros(129, 2), EPSILON, CONFIG)
    assert not solver.kernels_serve(torch.zeros(2, 129), EPSILON, CONFIG)
    assert not solver.kernels_serve(torch.zeros(2, 3), EPSILON, TransportConfig(cost_bound=201))
    # rows whose cost is at the bound would be exp(-bound epsilon / (rho + epsilon)), nothing in float32
    assert not solver.kernels_serve(torch.zeros(2, 3), 2.0, CONFIG)
    assert not solver.kernels_serve(torch.zeros(2, 3), EPSILON, TransportConfig(target_relaxation=0.01))

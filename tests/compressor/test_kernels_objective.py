"""The objective's kernels against plain torch in float64, outputs and gradients; interpreted where there is no GPU."""

import pytest
import torch
from common import DEVICE, relative

from aviot.config import ObjectiveConfig
from aviot.methods.aviot import objective
from aviot.methods.aviot.kernels.common import PlanBuffers, shape_cache
from aviot.methods.aviot.kernels.continuity import PlanDivergence, edge_weights
from aviot.methods.aviot.kernels.distortion import Distortion
from aviot.methods.aviot.kernels.gate_terms import GateMeans
from aviot.methods.aviot.kernels.patch_motion import patch_motion
from aviot.methods.aviot.level import LevelPlan
from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout, Segments
from aviot.ot import plogp

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.untraced]

CONFIG = ObjectiveConfig()
GRID = (3, 4)
PARTITIONS = tuple(Partition(GRID, cells) for cells in ((1, 1), (1, 2), (3, 4)))
COUNTS = [each.count for each in PARTITIONS]
SPREAD = Layout(Segments(11, 3), 7, torch.tensor([[4, 1, 2], [1, 3, 3]], device=DEVICE))  # of 4, 4 and 3 sources
LONG = Layout(Segments(19, 1), 17, torch.tensor([[17]], device=DEVICE))  # more supports than one tile


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def plans(layout):
    """Return rows and masses like a plan's."""
    logits = 2 * random(len(layout.budgets), sum(COUNTS), layout.supports, layout.segments.longest, seed=1)
    absent = ~layout.segments.mask(DEVICE)[layout.segment][:, None]
    rows = logits.masked_fill(absent, -torch.inf).softmax(-1)
    rows = torch.where(layout.unchanged[:, None, :, None], layout.uniform_rows(rows.dtype), rows)
    record = PlanBuffers.empty(layout, sum(COUNTS))
    return record.rows.copy_(rows), random(*rows.shape[:3], seed=2).abs() / 10


def exactly(rows):
    rows = rows.detach().double()
    return (rows / rows.sum(-1, keepdim=True)).requires_grad_()


def through_softmax(rows, gradient):
    """Return the gradient of the logits of rows: a row's sum is always one."""
    return rows * (gradient - (rows * gradient).sum(-1, keepdim=True))


@pytest.mark.parametrize(("offset", "stabilizer"), [(0.0, 0.01), (1e3, 1e-8)])
@pytest.mark.parametrize("layout", [SPREAD, LONG], ids=["spread", "long"])
def test_distortion(layout, offset, stabilizer):
    rows, mass = (each.requires_grad_() for each in plans(layout))
    sources = (random(len(rows), sum(COUNTS), layout.segments.sources, 13) + offset).requires_grad_()
    exact, received, points = exactly(rows), mass.detach().double().requires_grad_(), sources.detach().double()
    points.requires_grad_()
    whole = LevelPlan("all", PARTITIONS[0], layout, exact, received, stabilizer, lambda: points)
    found, expected = Distortion.apply(rows, mass, sources, layout, stabilizer), objective.distortion(whole)
    assert relative(found, expected) < 1e-6
    weight = random(*found.shape, seed=3)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert rows.grad.isfinite().all()
    assert relative(through_softmax(exact, rows.grad), through_softmax(exact, exact.grad)) < 1e-5
    assert relative(mass.grad, received.grad) < 1e-5
    assert relative(sources.grad, points.grad) < 1e-5


@pytest.mark.parametrize("layout", [SPREAD, LONG], ids=["spread", "long"])
def test_continuity(layout):
    rows, exact = plans(layout)[0].requires_grad_(), exactly(plans(layout)[0])
    means = random(len(rows), sum(COUNTS), layout.segments.sources, 13) + 1
    found = (PlanDivergence.apply(rows, PARTITIONS) * edge_weights(means, PARTITIONS, CONFIG.continuity_scale)).sum(1)
    terms = []
    for partition, part, mean in zip(PARTITIONS, exact.split(COUNTS, 1), means.split(COUNTS, 1), strict=True):
        plan = LevelPlan("one", partition, layout, part, part, 1.0, lambda: None)
        terms.append(objective.continuity(plan, mean.double().mean(2), CONFIG.continuity_scale))
    expected = (terms[1] + terms[2]) / 2
    assert relative(found, expected) < 1e-5
    weight = random(len(rows), seed=3)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    assert relative(exact * rows.grad, exact * exact.grad) < 1e-5
    assert rows.grad[:, 0].eq(0).all()


@pytest.mark.parametrize(("grid", "supports"), [(GRID, 7), ((1, 5), 200), ((4, 1), 3), ((1, 1), 2)], ids=str)
def test_gates(grid, supports):
    gates = random(2, grid[0] * grid[1], supports, 3).softmax(-1)
    gates[:, 0, 0] = torch.tensor([1.0, 0.0, 0.0], device=DEVICE)  # a closed gate
    gates[0, -1, -1] = gates[0, 0, -1]
    change, exact = random(2, grid[0] * grid[1], seed=1).abs(), gates.double().requires_grad_()
    gates.requires_grad_()
    found = GateMeans.apply(gates, change, grid, CONFIG.motion_scale)
    likeness = objective.over_edges(
        lambda a, b: torch.exp(-(a - b).abs() / CONFIG.motion_scale), grid, change.double()
    ).sum(1)
    variation = objective.gate_variation(exact, change.double(), grid, CONFIG.motion_scale) * likeness
    entropy = plogp(exact).sum(-1).mean((1, 2))
    expected = torch.cat((variation[:, None], likeness[:, None], exact.mean((1, 2)), entropy[:, None]), 1)
    assert (found - expected).abs().max() < 1e-6
    weight = random(*found.shape, seed=3)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    usual = exact.detach() > 0  # at zero the slope is that of the smallest number, another one in float64
    assert relative(gates.grad * usual, exact.grad * usual) < 1e-6
    assert gates.grad.isfinite().all()


@pytest.mark.parametrize(("frames", "dtype"), [(2, torch.float32), (31, torch.float32), (5, torch.float64)])
def test_patch_motion(frames, dtype):
    u = random(2, frames, 3, 13, dtype=dtype)
    u[0, 1, 2] = 0
    expected = objective.patch_motion(u.double())
    for given in (u, u.transpose(0, 2).contiguous().transpose(0, 2)):
        assert (patch_motion(given) - expected).abs().max() < (1e-6 if dtype == torch.float32 else 1e-12)


def test_the_shape_cache_builds_once():
    calls = []

    @shape_cache
    def make(count, device):
        calls.append(count)
        return torch.zeros(count, device=device)

    assert make(3, DEVICE) is make(3, DEVICE)
    assert make(4, DEVICE).shape == (4,)
    assert calls == [3, 4]

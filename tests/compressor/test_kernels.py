"""A stage's kernels up to its plans, each against plain torch in float64; interpreted where there is no GPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from common import DEVICE, make, relative

from aviot.config import TransportConfig
from aviot.methods.aviot import regions as plain
from aviot.methods.aviot.allocation import allocation_probabilities, integer_budgets, pilot_response
from aviot.methods.aviot.finite import FiniteCheck
from aviot.methods.aviot.kernel_backend import KernelWeights
from aviot.methods.aviot.kernels.allocation import AllocationSettings, allocate
from aviot.methods.aviot.kernels.common import PlanBuffers, region_offsets, region_tables
from aviot.methods.aviot.kernels.embedding import activate, embed_sources
from aviot.methods.aviot.kernels.region_means import RegionMeans, region_means
from aviot.methods.aviot.kernels.split_half_matmul import SplitMap
from aviot.methods.aviot.kernels.transport import LevelRun, TransportInputs, transport_level
from aviot.methods.aviot.level import start_rows, transport
from aviot.methods.aviot.regions import Partition, descriptors
from aviot.methods.aviot.segments import Layout, Segments
from aviot.methods.aviot.stage import Conditioning, StageModules, partitions_of, solve_levels

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.untraced]

NESTING = ((1, 1), (1, 2), (3, 4))
CROSSING = ((1, 1), (2, 2), (3, 5))


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def partitions(cells, grid=(3, 5)):
    return tuple(Partition(grid, each) for each in cells)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cells", [NESTING, CROSSING])
def test_region_means(cells, dtype):
    x = random(1, 9, 15, 131, dtype=dtype)
    found = region_means(partitions(cells), x)
    assert found.dtype == torch.float32
    assert relative(found, torch.cat(plain.region_means(partitions(cells), x.double()), 1)) < 1e-6


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
@pytest.mark.parametrize("beside", [0.0, 1.5])
@pytest.mark.parametrize("cells", [NESTING, CROSSING])
def test_region_means_gradients(cells, beside, dtype, tolerance):
    x = random(2, 5, 15, 6, dtype=dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    (found, same), expected = (
        RegionMeans.apply(x, partitions(cells)),
        torch.cat(plain.region_means(partitions(cells), exact), 1),
    )
    assert torch.equal(same, x)
    weight = random(*found.shape, seed=1)
    ((found * weight).sum() + (same * beside).sum()).backward()
    ((expected * weight).sum() + (exact * beside).sum()).backward()
    assert x.grad.dtype == dtype
    assert relative(x.grad, exact.grad) < tolerance


class Level:
    """A small compressor's sources and their embedding, by kernels."""

    def __init__(self, means=None, offset=0.0, **config):
        self.compressor = make(**({"grid": (2, 3), "regions": ((1, 1), (2, 2)), "dim": 19, "cost_dim": 22} | config))
        self.compressor.to(DEVICE)
        self.config = self.compressor.config
        self.modules = StageModules(self.compressor.metric, self.compressor.region_position, self.compressor.gate)
        self.weights = KernelWeights.of(self.config, self.modules)
        self.partitions = partitions_of(self.config)
        self.counts = [each.count for each in self.partitions]
        self.means = random(2, sum(self.counts), 11, 19) + offset if means is None else means
        self.question = random(2, 19, seed=1)
        self.weigh = self.compressor.metric.weights(self.question).detach()

    @torch.no_grad()
    def embed(self):
        return embed_sources(self.weights.metric, self.weigh, self.means, self.weights.position)

    def transport_inputs(self, layout, relevance=None):
        lifted, placed = self.embed()
        known = region_tables(self.partitions, self.config.position.region_bands, DEVICE)
        return TransportInputs(
            levels=self.config.active_levels,
            config=self.config.transport,
            metric=self.weights.metric,
            question_weights=self.weigh,
            lifted=lifted,
            placed=placed,
            layout=layout,
            offsets=tuple(region_offsets(self.partitions)),
            parents=known.parents,
            relevance=relevance,
        )

    def exact_means(self):
        return tuple(self.means.double().split(self.counts, 1))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_embedding(offset):
    level = Level(offset=offset)
    described = [
        descriptors(mean, each, level.modules.region_position, level.config.position.region_bands)
        for mean, each in zip(level.exact_means(), level.partitions, strict=True)
    ]
    expected = level.modules.metric.lift(torch.cat(described, 1))
    placed = level.modules.metric.place(expected, level.weigh.double())
    for found, exact in zip(level.embed(), (expected, placed), strict=True):
        for part, whole in zip(found.split(level.counts, 1), exact.split(level.counts, 1), strict=True):
            assert relative(part, whole) < 1e-5


ALLOCATIONS = [(22, 9, 4), (37, 30, 5), (23, 3, 3), (21, 19, 17), (9, 5, 1)]


def budgets_of(placed, relevance, segments, supports, pilot, weight=0.3, temperature=0.1):
    """Return the kernel's budgets and torch's."""
    config = TransportConfig()
    settings = AllocationSettings(
        epsilon=0.1, transport=config, pilot=pilot, relevance_weight=weight, temperature=temperature
    )
    found = allocate(placed, relevance, segments, supports, settings)
    response = pilot_response(placed[:, 0].double(), segments, 0.1, config, pilot)
    heard = None if relevance is None else segments.mean(relevance)
    probabilities = allocation_probabilities(response, heard, weight, temperature)
    return found, integer_budgets(probabilities, segments.sizes(DEVICE), supports)


@pytest.mark.parametrize("pilot", ["balanced", "unbalanced"])
@pytest.mark.parametrize(("frames", "supports", "count"), ALLOCATIONS)
def test_budgets(frames, supports, count, pilot):
    segments = Segments.of(frames, supports, count)
    videos = 6
    placed = random(videos, 2, frames, 7) * torch.logspace(-2, 1, videos, device=DEVICE)[:, None, None, None]
    for relevance in (random(videos, frames, seed=1, dtype=torch.float64), None):
        found, expected = budgets_of(placed, relevance, segments, supports, pilot, weight=1.5)
        assert torch.equal(found, expected)


def test_equal_signals_keep_their_order():
    """Relevance in steps that sums exactly, over segments that look alike: many ties, and shares at a half."""
    segments = Segments(24, 6)
    steps = torch.randint(0, 3, (16, 6), generator=torch.Generator().manual_seed(0)).double().to(DEVICE) / 2
    placed = random(16, 1, 4, 5).repeat(1, 1, 6, 1)
    for supports, pilot in ((9, "balanced"), (15, "unbalanced")):
        found, expected = budgets_of(placed, steps.repeat_interleave(4, 1), segments, supports, pilot, 1.0, 0.7)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("asked", [True, False])
def test_nan_still_gives_budgets(asked):
    segments = Segments(22, 4)
    placed = random(3, 1, 22, 7)
    placed[0], placed[1, :, 3] = torch.nan, torch.nan
    relevance = random(3, 22, dtype=torch.float64) if asked else None
    found, _ = budgets_of(placed, relevance, segments, 9, "balanced")
    assert found.sum(-1).eq(9).all()
    assert ((found >= 1) & (found <= segments.sizes(DEVICE))).all()


SEGMENTS = Segments(11, 3)  # of 4, 4 and 3 sources
BUDGETS = [[4, 1, 2], [1, 3, 3]]  # an identity segment in both, and a single support


def lay_out():
    return Layout(SEGMENTS, 7, torch.tensor(BUDGETS, device=DEVICE))


def transported(level, layout, relevance=None):
    """Return every granularity's plans by kernels and by torch in float64, and the supports' relevance."""
    inputs = level.transport_inputs(layout, relevance)
    buffers = PlanBuffers.empty(layout, sum(level.counts))
    carried = None
    for run in inputs.runs():
        found = transport_level(inputs, run, buffers)
        carried = found if run.parents is None else carried
    with torch.no_grad():
        plans = solve_levels(
            level.config,
            level.modules,
            level.partitions,
            level.exact_means(),
            Conditioning(level.question, level.weigh.double(), relevance),
            layout,
            FiniteCheck(),
        )
    return buffers, plans, carried


def test_transport_of_frames_and_their_regions():
    level, layout = Level(rounds=(3, 2), transport={"stabilizer": 0.01}), lay_out()  # rows that miss one by far
    relevance = random(2, 11, seed=2, dtype=torch.float64)
    buffers, plans, carried = transported(level, layout, relevance)
    rows, mass = torch.cat([plan.rows for plan in plans], 1), torch.cat([plan.mass for plan in plans], 1)
    assert (buffers.rows - rows).abs().max() < 2e-5
    assert (buffers.mass - mass).abs().max() < 2e-5
    entropy = -torch.special.xlogy(rows, rows).sum(-1) / torch.tensor(11.0).log()
    assert (buffers.entropy - entropy).abs().max() < 2e-5
    unchanged = layout.unchanged[:, None, :, None].expand_as(rows)
    assert torch.equal(buffers.rows[unchanged], rows[unchanged].float())
    assert buffers.rows[rows == 0].eq(0).all()
    expected = Conditioning(relevance=relevance).carried_by(SimpleNamespace(plans=plans)).relevance
    assert (carried - expected).abs().max() < 2e-5


def test_a_constant_relevance_is_carried_exactly():
    level = Level(random(2, 1, 11, 19), rounds=(1,), granularities="global", transport={"updates": 3})
    _, _, carried = transported(level, lay_out(), torch.full((2, 11), 0.3, dtype=torch.float64, device=DEVICE))
    assert (carried - 0.3).abs().max() < 1e-15


def test_fewer_rounds_leave_the_supports_where_they_moved():
    level, layout = Level(random(2, 1, 11, 19), granularities="global"), lay_out()
    whole = replace(level.config.active_levels[0], rounds=3)
    buffers = PlanBuffers.empty(layout, 1)
    run = LevelRun(whole, offset=0, parents=None, rounds=2)
    assert transport_level(level.transport_inputs(layout), run, buffers) is None
    sources = level.means.double()
    start = start_rows(whole, layout, None, torch.float64)
    with torch.no_grad():
        coupling = transport(
            replace(whole, rounds=2),
            level.config.transport,
            level.modules.metric,
            level.weigh.double(),
            sources,
            start,
            layout,
        )
    moved = layout.pack((coupling.plan / (coupling.mass + level.config.transport.stabilizer)[..., None, :]).mT)
    unchanged = layout.unchanged[:, None, :, None]
    expected = torch.where(unchanged, layout.uniform_rows(torch.float64), moved)
    assert (buffers.rows - expected).abs().max() < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_map_in_halves_is_the_map_to_float32_precision(dtype):
    weight, bias = random(37, 70, seed=7).to(dtype), random(37, seed=8)
    weight[3] *= 1e-4  # small beside the largest
    lifted = random(19, 70, seed=9) * torch.logspace(-12, 12, 19, device=DEVICE)[:, None]
    lifted[5] = 0.0
    split, rows = SplitMap.of(weight, bias), activate(lifted)
    found = split.total(split.apply(rows), rows)
    active = torch.nn.functional.gelu(lifted.double())
    exact = active @ weight.double().T + bias.double()
    size = active.norm(dim=1, keepdim=True) * weight.double().norm(dim=1).max() + bias.abs().max()
    assert ((found - exact).abs() <= 2**-20 * size).all()  # a tensor core cuts what it adds; halves alone lose 2^-10

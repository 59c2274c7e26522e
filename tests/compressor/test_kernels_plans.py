"""All granularities' plans and their gradients by kernels, against plain torch in float64."""

import pytest
import torch
from common import DEVICE, make

from aviot.methods.aviot.kernels.common import region_offsets, region_tables
from aviot.methods.aviot.kernels.embedding import MetricWeights, embed_sources
from aviot.methods.aviot.kernels.transport import TransportInputs, TransportPlans
from aviot.methods.aviot.level import finish, start_rows, transport
from aviot.methods.aviot.segments import Layout, Segments
from aviot.methods.aviot.stage import partitions_of

pytestmark = [pytest.mark.usefixtures("poisoned"), pytest.mark.untraced]

SPREAD = Layout(Segments(11, 3), 7, torch.tensor([[4, 1, 2], [1, 3, 3]], device=DEVICE))  # of 4, 4 and 3 sources
LONG = Layout(Segments(19, 1), 17, torch.tensor([[17]], device=DEVICE))  # more than one tile of either
ONE = Layout(Segments(5, 1), 1, torch.tensor([[1], [1]], device=DEVICE))
SMALL = {"grid": (2, 3), "regions": ((1, 1), (2, 2)), "dim": 19, "cost_dim": 22}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def by_kernels(compressor, layout, means, sources, weigh):
    config, partitions = compressor.config, partitions_of(compressor.config)
    known = region_tables(partitions, config.position.region_bands, DEVICE)
    metric = MetricWeights.of(compressor.metric)
    with torch.no_grad():
        weights = torch.ones(len(means), config.cost_dim, device=DEVICE) if weigh is None else weigh
        position = compressor.region_position(known.codes)
        lifted, placed = embed_sources(metric, weights, means, position)
    inputs = TransportInputs(
        levels=config.active_levels,
        config=config.transport,
        metric=metric,
        question_weights=weights.detach(),
        lifted=lifted,
        placed=placed,
        layout=layout,
        offsets=tuple(region_offsets(partitions)),
        parents=known.parents,
        relevance=None,
    )
    return TransportPlans.apply(sources, weigh, inputs, *compressor.metric.parts)[:2]


def by_torch(compressor, layout, sources, weigh):
    config, partitions, plans = compressor.config, partitions_of(compressor.config), []
    parts = sources.split([each.count for each in partitions], 1)
    for depth, (level, partition, part) in enumerate(zip(config.active_levels, partitions, parts, strict=True)):
        parents = None if depth == 0 else partition.parents(partitions[depth - 1], DEVICE)
        parent = None if parents is None else plans[-1].rows.index_select(1, parents)
        start = start_rows(level, layout, parent, sources.dtype)
        coupling = transport(level, config.transport, compressor.metric, weigh, part, start, layout)
        plans.append(finish(level, config.transport, partition, part, coupling, layout))
    return torch.cat([plan.rows for plan in plans], 1), torch.cat([plan.mass for plan in plans], 1)


def describe(compressor, means):
    known = region_tables(partitions_of(compressor.config), compressor.config.position.region_bands, DEVICE)
    normalised = torch.nn.functional.layer_norm(means[:, 1:], means.shape[-1:], eps=1e-5)
    return torch.cat((means[:, :1], normalised + compressor.region_position(known.codes[1:])[:, None]), 1).detach()


@pytest.mark.parametrize(
    ("layout", "config", "asked"),
    [
        pytest.param(SPREAD, {"rounds": (3, 1), "transport": {"updates": 5}}, True, id="spread"),
        pytest.param(
            SPREAD,
            {"rounds": (1, 2), "transport": {"stabilizer": 0.01, "updates": 4}},
            True,
            id="misses one",
            marks=pytest.mark.untraced,  # the same lines as the first
        ),
        pytest.param(
            LONG, {"rounds": (2, 1), "granularities": "global", "transport": {"updates": 4}}, False, id="long"
        ),
        pytest.param(ONE, {"rounds": (2, 1), "transport": {"updates": 1}}, True, id="one support"),
    ],
)
def test_plans_and_their_gradients(layout, config, asked):
    compressor = make(**(SMALL | config)).to(DEVICE)
    regions = sum(each.count for each in partitions_of(compressor.config))
    means = random(len(layout.budgets), regions, layout.segments.sources, 19)
    sources = describe(compressor, means).requires_grad_()
    weigh = compressor.metric.weights(random(len(means), 19, seed=1)).detach().requires_grad_() if asked else None
    exact = sources.detach().double().requires_grad_()
    weighed = None if weigh is None else weigh.detach().double().requires_grad_()
    found = by_kernels(compressor, layout, means, sources, weigh)
    expected = by_torch(compressor, layout, exact, weighed)
    there = layout.segments.mask(DEVICE)[layout.segment][:, None]
    weights = random(*expected[0].shape, seed=2) * there, random(*expected[1].shape, seed=3)
    gradients = []
    for each in (found, expected):
        compressor.zero_grad()
        sum((value * weight).sum() for value, weight in zip(each, weights, strict=True)).backward()
        gradients.append({name: value.grad for name, value in compressor.metric.embed.named_parameters()})
    for value, other in zip(found, expected, strict=True):
        assert (value - other).abs().max() < 1e-5
    leaves = [(sources, exact)] + ([] if weigh is None else [(weigh, weighed)])
    scale = exact.grad.norm() + 1e-6
    for leaf, other in leaves:
        assert (leaf.grad - other.grad).norm() < 1e-4 * (other.grad.norm() + 1e-3 * scale)
    for name, value in gradients[1].items():
        assert (gradients[0][name] - value).norm() < 1e-4 * (value.norm() + 1e-2 * scale), name

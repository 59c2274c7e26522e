"""Statistics, gate and mixing by kernels, each against plain torch in float64; interpreted where there is no GPU."""

import pytest
import torch
from common import DEVICE, make, relative

from aviot.methods.aviot import statistics as plain
from aviot.methods.aviot.fusion import combine, gate_weights
from aviot.methods.aviot.kernels.branch_moments import branch_moments
from aviot.methods.aviot.kernels.common import PlanBuffers, region_tables
from aviot.methods.aviot.kernels.fusion import FusedFeatures, mix_sources
from aviot.methods.aviot.kernels.gate import GateInputs, Gates, gate_statistics
from aviot.methods.aviot.kernels.gram import GramMatrices
from aviot.methods.aviot.regions import Partition
from aviot.methods.aviot.segments import Layout, Segments

pytestmark = [pytest.mark.usefixtures("poisoned", "bf16_products"), pytest.mark.untraced]

PARTITIONS = (Partition((1, 3), (1, 1)), Partition((1, 3), (1, 2)), Partition((1, 3), (1, 3)))
REGIONS, PATCHES = 6, 3
SPREAD = Layout(Segments(11, 3), 7, torch.tensor([[4, 1, 2], [1, 3, 3]], device=DEVICE))  # of 4, 4 and 3 sources
WHOLE = Layout(Segments(5, 1), 3, torch.tensor([[3], [3]], device=DEVICE))
ONE = Layout(Segments(5, 1), 1, torch.tensor([[1], [1]], device=DEVICE))
LONG = Layout(Segments(19, 1), 17, torch.tensor([[17]], device=DEVICE))  # more supports than one program takes


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def features(layout, dim=13, dtype=torch.float32):
    return random(len(layout.budgets), layout.segments.sources, PATCHES, dim, dtype=dtype)


def plans(layout):
    """Return rows like a plan's: each sums to one over its own segment; the identity in identity segments."""
    logits = 2 * random(len(layout.budgets), REGIONS, layout.supports, layout.segments.longest, seed=1)
    absent = ~layout.segments.mask(DEVICE)[layout.segment][:, None]
    rows = logits.masked_fill(absent, -torch.inf).softmax(-1)
    rows = torch.where(layout.unchanged[:, None, :, None], layout.uniform_rows(rows.dtype), rows)
    record = PlanBuffers.empty(layout, REGIONS)
    return record.rows.copy_(rows)


def known(partitions=PARTITIONS):
    return region_tables(partitions, 2, DEVICE)


def table():
    return known().regions


def moments_of(layout, x, rows, question, partitions=PARTITIONS):
    question = torch.zeros_like(x[:, 0, 0]) if question is None else question.to(x.dtype)
    places = known(partitions)
    products = GramMatrices.empty(question, places.groups, layout.segments)
    products.fill(x)
    return branch_moments(products, rows, places, layout, exact=x.dtype == torch.float32)


def on_patches(values):
    return torch.stack([values[:, level.long()] for level in table()], 2)  # [B,S,L,...]


def exact_moments(layout, x, rows, question):
    here = on_patches(rows.double())
    padded = layout.pad(here.flatten(1, 2)).unflatten(1, here.shape[1:3]).transpose(2, 3)
    asked = None if question is None else question.double()
    return plain.branch_moments(layout.segments.split(x.double().transpose(1, 2)), padded, layout, asked)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize("layout", [SPREAD, WHOLE, ONE, LONG], ids=["spread", "whole", "one", "long"])
def test_moments(layout, dtype, tolerance):
    x, rows = features(layout, dtype=dtype), plans(layout)
    question = random(len(x), 13, seed=2, dtype=dtype).float()
    found = moments_of(layout, x, rows, question)
    expected = exact_moments(layout, x, rows, question)
    for column, name in enumerate(("size", "change", "spread", "question_product")):
        first = 1 if name == "change" else 0  # the first support has none
        exact = getattr(expected, name).transpose(2, 3)[:, :, first:]
        assert ((found[..., column][:, :, first:] - exact).abs() < tolerance * expected.size.max()).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_patches_are_grouped_for_uneven_partitions(dtype):
    x, rows = features(SPREAD, dtype=dtype), plans(SPREAD)
    alone = moments_of(SPREAD, x, rows, None)
    uneven = (PARTITIONS[0], PARTITIONS[1])  # two patches share their regions, one has its own
    assert known(uneven).groups.tolist() == [[0, 1], [2, -1]]
    together = moments_of(SPREAD, x, rows, None, uneven)
    for branch in range(2):  # what a branch is to itself does not depend on the others
        for moment in (0, 1):
            first = moment  # the first support has no change
            assert torch.allclose(
                together[:, :, first:, branch, moment], alone[:, :, first:, branch, moment], rtol=1e-3, atol=1e-3
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_changes_of_large_features_are_seen(dtype):
    still = 64 + random(2, 1, PATCHES, 13, seed=5)
    x = (still + random(2, 11, PATCHES, 13, seed=6)).to(dtype)
    rows = plans(SPREAD)
    found, exact = moments_of(SPREAD, x, rows, None), exact_moments(SPREAD, x, rows, None)
    change = exact.change.transpose(2, 3)[:, :, 1:]
    assert (found[..., 1][:, :, 1:] - change).abs().max() < 5e-3 * change.max()
    assert (found[..., 2] - exact.spread.transpose(2, 3)).abs().max() < 5e-3 * exact.spread.max()


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("layout", [SPREAD, ONE], ids=["spread", "one"])
def test_statistics_and_gate(layout, asked):
    x, rows, compressor = features(layout), plans(layout), make().to(DEVICE)
    gate, config = compressor.gate, compressor.config.gate
    question = random(len(x), 13, seed=2) if asked else None
    entropy = random(*rows.shape[:3], seed=3).abs()
    moments = moments_of(layout, x, rows, question)
    how = (GateInputs(moments, entropy, table(), 13, question), gate, config)
    with torch.no_grad():
        statistics, gates = gate_statistics(*how, decide=True)
        again, _ = gate_statistics(*how, decide=False)
        exact = plain.gate_statistics(
            exact_moments(layout, x, rows, question),
            on_patches(entropy.double()),
            None if question is None else question.double(),
            13,
        )
        decided = gate_weights(gate, statistics.double(), config)
    assert torch.equal(statistics, again)
    assert (statistics - exact).abs().max() < 1e-5
    assert (gates - decided).abs().max() < 1e-5
    assert (gates - gate_weights(gate, exact, config)).abs().max() < 1e-4


def test_scenes_that_stand_still_show_no_change():
    x, rows, compressor = features(SPREAD), plans(SPREAD), make().to(DEVICE)
    x = (x[:, :1] + 100).expand_as(x).contiguous()
    moments = moments_of(SPREAD, x, rows, None)
    inputs = GateInputs(moments, torch.zeros(rows.shape[:3], device=DEVICE), table(), 13, None)
    statistics, gates = gate_statistics(inputs, compressor.gate, compressor.config.gate, decide=True)
    assert statistics.isfinite().all()
    assert gates.isfinite().all()
    change, _, apart, turned, *_ = statistics.unflatten(-1, (3, 7)).unbind(-1)
    assert max(change.max(), apart.max(), turned.abs().max()) < 1e-5


def test_a_nan_in_the_statistics_reaches_the_gates():
    compressor, rows = make().to(DEVICE), plans(ONE)
    moments = moments_of(ONE, features(ONE), rows, None)
    moments[0, 1, 0, 2, 0] = torch.nan
    entropy = torch.zeros(rows.shape[:3], device=DEVICE)
    inputs = GateInputs(moments, entropy, table(), 13, None)
    _, gates = gate_statistics(inputs, compressor.gate, compressor.config.gate, decide=True)
    assert gates[0, 1].isnan().all()
    assert gates[1].isfinite().all()


def gates_of(layout):
    return random(len(layout.budgets), PATCHES, layout.supports, len(PARTITIONS), seed=4).softmax(-1)


def exact_mixture(layout, rows, gates):
    return combine(on_patches(rows.double()), gates.double(), layout.unchanged)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
@pytest.mark.parametrize(("layout", "dim"), [(SPREAD, 13), (ONE, 133), (LONG, 5)], ids=["spread", "one", "long"])
def test_mixing_plans(layout, dim, dtype, tolerance):
    x, rows, gates = features(layout, dim, dtype), plans(layout), gates_of(layout)
    found = mix_sources(x, rows, gates, table(), layout)
    mixture = exact_mixture(layout, rows, gates)
    assert found.dtype == dtype
    assert relative(found, layout.mix(mixture, x.double().transpose(1, 2)).transpose(1, 2)) < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_identity_segments_are_copied_bit_for_bit(dtype):
    x, rows, gates = features(SPREAD, dtype=dtype), plans(SPREAD), gates_of(SPREAD)
    found = mix_sources(x, rows, gates, table(), SPREAD)
    assert torch.equal(found[0, :4], x[0, :4])
    assert torch.equal(found[1, 4:], x[1, 8:])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
@pytest.mark.parametrize(("layout", "dim"), [(SPREAD, 13), (ONE, 67)], ids=["spread", "one"])
def test_mixing_and_its_gradients(layout, dim, dtype, tolerance):
    x = features(layout, dim, dtype).requires_grad_()
    rows, gates = plans(layout).requires_grad_(), gates_of(layout).requires_grad_()
    exact_x, exact_rows, exact_gates = (each.detach().double().requires_grad_() for each in (x, rows, gates))
    found = FusedFeatures.apply(x, rows, gates, PARTITIONS, table(), layout)
    mixture = exact_mixture(layout, exact_rows, exact_gates)
    expected = layout.mix(mixture, exact_x.transpose(1, 2)).transpose(1, 2)
    weight = random(*found.shape, seed=5, dtype=dtype)
    (found * weight).sum().backward()
    (expected * weight.double()).sum().backward()
    moving = (layout.segments.mask(DEVICE)[layout.segment] & ~layout.unchanged[..., None])[:, None]  # what plans decide
    assert relative(found, expected) < tolerance
    assert relative(x.grad, exact_x.grad) < tolerance
    assert relative(rows.grad * moving, exact_rows.grad * moving) < tolerance
    assert relative(gates.grad, exact_gates.grad) < tolerance
    assert rows.grad.isfinite().all()


@pytest.mark.parametrize("layout", [SPREAD, ONE], ids=["spread", "one"])
def test_gradients_of_the_gate(layout):
    x, rows, compressor = features(layout), plans(layout), make().to(DEVICE)
    gate, config = compressor.gate, compressor.config.gate
    moments, entropy = moments_of(layout, x, rows, None), random(*rows.shape[:3], seed=3).abs()
    how = (GateInputs(moments, entropy, table(), 13, None), gate, config)
    found = Gates.apply(*how, *gate.parameters())
    expected = gate_weights(gate, gate_statistics(*how, decide=False)[0].double(), config)
    weight, gradients = random(*found.shape, seed=5), []
    assert (found - expected).abs().max() < 1e-5
    for each in (found, expected):
        gate.zero_grad()
        (each * weight).sum().backward()
        gradients.append({name: value.grad for name, value in gate.named_parameters()})
    for name, value in gradients[1].items():
        assert relative(gradients[0][name], value) < 1e-5, name

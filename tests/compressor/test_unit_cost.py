"""Normalised weights of the cost: its scale is fixed, the question moves attention between coordinates alone."""

import math

import pytest
import torch
from common import inputs, make, relative

from aviot.methods.aviot.reference import compress_reference
from aviot.methods.aviot.stage import partitions_of, region_means


def unit(unit_cost=4.0, **config):
    return make(cost_normalization="unit", transport={"unit_cost": unit_cost, "updates": 6}, **config)


def used_weights(compressor, given):
    """Return the weights by which a compression of these inputs multiplies its embedding."""
    seen, place = [], type(compressor.metric).place

    def spied(self, lifted, weights):
        seen.append(weights)
        return place(self, lifted, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(compressor.metric), "place", spied)
        compressor(**given, ratio=4)
    return seen[0]


@pytest.mark.parametrize("changes", [{}, {"question": None, "relevance": None}], ids=["asked", "not asked"])
@pytest.mark.parametrize(
    "config", [{}, {"question_cost": False}, {"regions": ((1, 1),)}, {"granularities": "global"}], ids=str
)
def test_plain_torch_is_the_reference(config, changes):
    compressor, given = unit(**config), inputs(26) | changes
    given = {name: value.double() for name, value in given.items() if value is not None}
    weights = {name: value.detach().double().requires_grad_() for name, value in compressor.named_parameters()}
    exact = given["x"].clone().requires_grad_()
    expected = compress_reference(compressor.config, weights, **(given | {"x": exact}), ratio=3.3, step=300)
    (expected.features.square().mean() + expected.loss).backward()
    compressor, leaf = compressor.double(), given["x"].clone().requires_grad_()
    out = compressor(**(given | {"x": leaf}), ratio=3.3, step=300)
    (out.features.square().mean() + out.loss).backward()
    assert out.budgets == expected.budgets
    assert relative(out.features, expected.features) < 1e-10
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-9)
    assert relative(leaf.grad, exact.grad) < 1e-8
    for name, parameter in compressor.named_parameters():
        if weights[name].grad is not None:
            scale = max(1e-3, float(weights[name].grad.norm()))
            assert (parameter.grad - weights[name].grad).norm() < 1e-7 * scale, name
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients, given["x"])
    assert relative(rebuilt, out.features) < 1e-10


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("gain", [1e-4, 1.0, 1e4])
def test_weights_have_one_length_whatever_the_gain_and_the_question(asked, gain):
    compressor, given = unit(9.0), inputs(batch=(2,))
    with torch.no_grad():
        compressor.metric.embed[-1].weight.mul_(gain * torch.rand(8, generator=torch.Generator().manual_seed(0)))
    used = used_weights(compressor, given if asked else given | {"question": None, "relevance": None})
    effective = used * compressor.metric.embed[-1].weight
    assert torch.allclose(effective.square().sum(-1), torch.tensor(9.0))
    assert torch.equal(used[0], used[1]) != asked


@pytest.mark.parametrize("scale", [1e-3, 1e4, 1e20])
def test_weights_that_run_away_change_nothing(scale):
    """As printed, larger weights are larger costs until all are at the bound; normalised, only their ratio counts."""
    given = inputs(24)
    outs = []
    for factor in (1.0, scale):
        compressor = unit()
        weights = compressor.metric.weights
        compressor.metric.weights = lambda question, weights=weights, factor=factor: factor * weights(question)
        outs.append(compressor(**given, ratio=4).features.detach())
    assert torch.allclose(*outs, atol=1e-5)


def test_costs_of_a_new_compressor_differ_in_scale_from_problem_to_problem():
    """As printed with weights as large as those that training found, each has the bound for its largest cost."""
    compressor, given = unit(4.0), inputs(24)
    given["x"] = given["x"] * torch.linspace(0.01, 1, 24)[:, None, None]  # motion that grows

    def largest(config, weights):
        (mean, *_) = region_means(partitions_of(config), given["x"][None])
        placed = compressor.metric.place(compressor.metric.lift(mean), weights)[0, 0].detach()
        return [torch.cdist(part, part).square().max().item() for part in placed.split(6)]

    bound = compressor.config.transport.cost_bound * compressor.config.epsilons[0]
    own = largest(compressor.config, used_weights(compressor, given))
    assert max(own) < bound
    assert max(own) > 1.5 * min(own)
    assert min(largest(compressor.config, 136 * torch.ones(1, 8))) > bound


def test_the_question_moves_the_plan_and_its_gradient_reaches_the_weights():
    compressor, given = unit(), inputs(24)
    with torch.no_grad():
        compressor.metric.weigh[-1].weight.normal_(std=2.0)
    out = compressor(**given, ratio=4)
    other = compressor(**(given | {"question": -given["question"]}), ratio=4)
    pairs = zip(out.stages[0].plans, other.stages[0].plans, strict=True)
    assert all((one.conditional - two.conditional).abs().max() > 1e-3 for one, two in pairs)
    (out.features.square().mean() + out.loss).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in compressor.metric.weigh.parameters())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_reported(value):
    compressor, given = unit(), inputs(24)
    with torch.no_grad():
        compressor.metric.weigh[-1].bias[3] = value
    with pytest.raises(ValueError, match=r"stage 1 .* not finite"):
        compressor(**given, ratio=4)


def test_published_weights_are_used_as_they_are():
    compressor, given = make(), inputs(24)
    assert compressor.config.cost_normalization == "printed"
    used = used_weights(compressor, given)
    assert torch.equal(used, compressor.metric.weights(given["question"][None]))
    assert used_weights(compressor, given | {"question": None, "relevance": None}) is None

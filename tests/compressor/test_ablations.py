"""Every row of the component table, the no-query condition, and chains of other lengths."""

import pytest
import torch
from common import inputs, make

from aviot import Compressor, CompressorConfig


def features(out):
    return out.features.detach()


def test_question_cost_off_ignores_the_question_in_the_cost_alone():
    compressor = make(question_cost=False)
    a, b = inputs(seed=1), inputs(seed=2)
    one = compressor(**a, ratio=4)
    other = compressor(**(a | {"question": b["question"]}), ratio=4)
    for left, right in zip(one.stages[0].plans, other.stages[0].plans, strict=True):
        assert torch.equal(left.conditional, right.conditional)
    assert not torch.equal(one.stages[0].gates, other.stages[0].gates)  # the gate still hears it


def test_question_allocation_off_ignores_relevance():
    on, off = make(), make(question_allocation=False)
    given = inputs(24)
    given["relevance"] = torch.linspace(0, 1, 24)
    assert len(set(on(**given, ratio=4).budgets[0])) > 1
    blind = off(**given, ratio=4)
    assert blind.budgets == on(**(given | {"relevance": None}), ratio=4).budgets
    assert set(blind.budgets[0]) == {4}


def test_no_question_turns_every_route_off():
    compressor, given = make(), inputs(24)
    silent = compressor(given["x"], relevance=given["relevance"], motion=given["motion"], ratio=4)
    plain = make(question_cost=False, question_allocation=False)
    nothing = plain(given["x"], motion=given["motion"], ratio=4)
    assert torch.equal(features(silent), features(nothing))
    assert silent.budgets == nothing.budgets


@pytest.mark.parametrize("switch", ["global", False])
def test_global_transport_only(switch):
    compressor, given = make(granularities=switch), inputs(24)
    out = compressor(**given, ratio=4)
    assert [len(stage.plans) for stage in out.stages] == [1] * len(out.stages)
    frames = out.provenance()
    assert torch.allclose(frames.coefficients[:, :1].expand_as(frames.coefficients), frames.coefficients)
    full = make()(**given, ratio=4)
    assert out.budgets == full.budgets
    assert torch.allclose(out.stages[0].plans[0].conditional, full.stages[0].plans[0].conditional)
    for name in ("regional", "continuity", "variation", "balance", "entropy"):
        assert getattr(out.terms, name) == 0
    assert out.loss == out.terms.temporal


def test_equal_fusion_weighs_every_granularity_alike():
    out = make(fusion="equal")(**inputs(24), ratio=4)
    p = out.provenance()
    for name in ("global", "medium", "local"):
        assert torch.allclose(p.branch(name).share, torch.tensor(1 / 3))
    assert out.terms.variation == 0
    assert out.terms.balance == 0
    assert out.terms.entropy == 0


def test_full_is_none_of_the_ablations():
    given = inputs(24)
    full = features(make()(**given, ratio=4))
    for change in (
        {"question_cost": False},
        {"question_allocation": False},
        {"granularities": "global"},
        {"fusion": "equal"},
        {"pilot": "unbalanced"},
        {"allocation": {"rule": "calibrated", "evidence_threshold": 2.0, "relevance_weight": 0.3}},
        {"cost_normalization": "unit"},
    ):
        assert not torch.allclose(full, features(make(**change)(**given, ratio=4))), change


@pytest.mark.parametrize("regions", [((1, 1),), ((1, 1), (2, 3)), ((1, 1), (2, 2), (3, 3), (5, 7))])
def test_chains_of_any_length(regions):
    compressor = make(regions=regions)
    out = compressor(**inputs(24), ratio=4)
    names = [level.name for level in compressor.config.levels]
    p = out.provenance()
    assert torch.allclose(sum(p.branch(name).mass for name in names), p.coefficients, atol=1e-6)
    out.loss.backward()
    assert torch.isfinite(out.loss)


def test_step_zero_is_the_global_branch_with_even_budgets():
    out = make()(**inputs(24), ratio=4, step=0)
    assert set(out.budgets[0]) == {4}
    assert torch.equal(out.stages[0].applied[..., 0], torch.ones_like(out.stages[0].applied[..., 0]))
    assert not torch.equal(out.stages[0].gates, out.stages[0].applied)  # penalties see the gate itself


def test_gradients_reach_every_parameter():
    compressor = make()
    out = compressor(**inputs(24), ratio=4)
    (out.features.square().mean() + out.loss).backward()
    for name, parameter in compressor.named_parameters():
        assert parameter.grad is not None, name
        if name != "metric.embed.3.bias":  # cancels in every difference
            assert parameter.grad.abs().max() > 0, name


def test_new_compressors_start_regions_at_zero():
    assert Compressor(CompressorConfig(dim=6, cost_dim=8)).region_position.weight.eq(0).all()

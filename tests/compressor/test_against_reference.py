"""The fast compressor against the looped float64 reference, in outputs and gradients.

In float64 the two must agree to rounding, which is what shows that they compute the same function; in float32 and below
the difference is the precision's.
"""

import pytest
import torch
from common import inputs, make, relative

from aviot.methods.aviot.reference import compress_reference

SPREAD = {
    1: [1],
    2: [1, 2],
    3: [1, 2, 3],
    9: range(1, 10),
    37: [1, 3, 4, 5, 7, 19, 36, 37],
    63: [1, 16, 62],
    224: [1, 12, 56, 223],
}
COUNTS = [(frames, supports) for frames, counts in SPREAD.items() for supports in counts]


def reference(compressor, given, weights=None, **how):
    return compress_reference(compressor.config, weights or dict(compressor.named_parameters()), **given, **how)


def doubled(given):
    return {name: value.double() for name, value in given.items()}


@pytest.mark.parametrize(("frames", "supports"), COUNTS)
def test_outputs_in_both_precisions(frames, supports):
    compressor, given = make(), inputs(frames, seed=frames)
    with torch.no_grad():
        expected = reference(compressor, given, supports=supports)
        exact = compressor(**doubled(given), supports=supports)
        single = compressor(**given, supports=supports)
    # divergences are differences of entropies of order one, so what is truly zero comes out as a rounding of those
    for out, tolerance, rounding in ((exact, 1e-10, 1e-12), (single, 1e-4, 2e-7)):
        assert out.path == expected.path
        assert out.budgets == expected.budgets
        assert relative(out.features, expected.features) < tolerance
        assert (out.provenance().coefficients - expected.coefficients).abs().max() < tolerance
        if supports < frames:
            assert out.loss.item() == pytest.approx(expected.loss.item(), rel=tolerance)
            for name, term in out.terms._asdict().items():
                assert term.item() == pytest.approx(expected.terms[name].item(), rel=tolerance, abs=rounding), name
        else:
            assert out.loss == 0


STEPPED = [(f, k, step) for f, k in [(2, 1), (3, 2), (9, 4), (37, 7), (63, 62)] for step in (None, 140)]


@pytest.mark.parametrize(("frames", "supports", "step"), [*STEPPED, (224, 56, None)])
def test_gradients(frames, supports, step):
    compressor, given = make(), doubled(inputs(frames, seed=frames))
    weight = torch.randn(supports, 35, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def gradients(run):
        leaves = {name: given[name].clone().requires_grad_() for name in ("x", "question")}
        compressor.zero_grad()
        out = run(given | leaves)
        ((out.features * weight).sum() + 100 * out.loss).backward()
        return leaves | dict(compressor.named_parameters())

    found = gradients(lambda each: compressor(**each, supports=supports, step=step))
    found = {name: leaf.grad.clone() for name, leaf in found.items()}
    expected = gradients(lambda each: reference(compressor, each, supports=supports, step=step))
    for name, leaf in expected.items():
        # parameters are float32, so their gradients are rounded to it on the way out; with one support a segment, and
        # for the bias that cancels in every difference, the cost's true gradient is zero
        assert (found[name] - leaf.grad).norm() < 1e-6 * leaf.grad.norm() + 1e-8, name


def test_one_frame_passes_its_gradient_through():
    given = inputs(1)
    x = given["x"].requires_grad_()
    make()(**given, ratio=4).features.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_below_float64(dtype):
    compressor, given = make(), inputs(24, dtype=dtype)

    def gradients(run, given):
        leaves = {name: given[name].clone().requires_grad_() for name in ("x", "question")}
        compressor.zero_grad()
        out = run(given | leaves)
        (out.features.double().square().mean() + out.loss).backward()
        return {name: leaf.grad.clone() for name, leaf in (leaves | dict(compressor.named_parameters())).items()}

    found = gradients(lambda each: compressor(**each, ratio=3), given)
    expected = gradients(lambda each: reference(compressor, each, ratio=3), given)
    for name in expected.keys() - {"metric.embed.3.bias"}:
        assert relative(found[name], expected[name]) < max(1e-3, torch.finfo(dtype).eps), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("frames", "supports"), [(9, 4), (37, 7), (63, 16)])
def test_low_precision_features(dtype, frames, supports):
    compressor, given = make(), inputs(frames, dtype=dtype)
    out = compressor(**given, supports=supports)
    expected = reference(compressor, given, supports=supports)
    assert out.budgets == expected.budgets
    assert relative(out.features, expected.features) < torch.finfo(dtype).eps
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {"grid": (1, 1), "regions": ((1, 1),)},
        {"grid": (1, 9), "regions": ((1, 1), (1, 4))},
        {"grid": (7, 5), "regions": ((1, 1), (3, 2), (4, 5), (7, 5))},
        {"grid": (14, 13), "regions": ((1, 1), (3, 3), (9, 9))},
        {"grid": (6, 6), "regions": ((1, 1), (2, 2), (3, 3))},
        {"regions": ((1, 1),)},
        {"question_cost": False},
        {"question_allocation": False},
        {"question_cost": False, "question_allocation": False},
        {"granularities": "global"},
        {"fusion": "equal"},
        {"pilot": "unbalanced"},
        {"segments": 1},
        {"segments": 7},
        {"epsilons": (0.05, 0.2, 0.3), "rounds": (2, 3, 2), "parent_weights": (0.1, 0.9)},
    ],
    ids=str,
)
def test_other_grids_chains_and_ablations(config):
    compressor = make(**config, transport={"updates": 5})  # as many as the default's are compared above
    given = doubled(inputs(26, grid=compressor.config.grid))
    for changes in ({}, {"relevance": None}, {"question": None}):
        each = given | changes
        out = compressor(**each, ratio=3.3, step=300)
        expected = reference(compressor, {k: v for k, v in each.items() if v is not None}, ratio=3.3, step=300)
        assert out.budgets == expected.budgets
        assert relative(out.features, expected.features) < 1e-10
        assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-9)


def test_stage_records():
    compressor, given = make(), doubled(inputs(26))
    out, expected = compressor(**given, ratio=4, step=100), reference(compressor, given, ratio=4, step=100)
    for stage, record in zip(out.stages, expected.stages, strict=True):
        for plan, conditional in zip(stage.plans, record.conditionals, strict=True):
            assert torch.allclose(plan.conditional[0], conditional, atol=1e-10)
        assert torch.allclose(stage.applied[0].transpose(0, 1), record.gates, atol=1e-9)
        assert torch.allclose(stage.coefficients[0].transpose(0, 1), record.coefficients, atol=1e-9)


def test_identity_segments_are_copied_exactly():
    """Relevance that moves supports to one segment until it has one for every frame."""
    compressor, given = make(), inputs(24)
    given["relevance"] = torch.tensor([0.0, 0, 0, 1]).repeat_interleave(6)
    out = compressor(**given, supports=16)
    assert out.budgets[0][3] == 6
    assert torch.equal(out.features[-6:], given["x"][-6:])
    expected = reference(compressor, given, supports=16)
    assert out.budgets == expected.budgets
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-4)


@pytest.mark.parametrize("name", ["t24_r3_warmup_grad", "t21_r3_cap", "t64_r10"])
def test_the_reference_agrees_with_the_published_code(golden, name):
    case = golden(name)
    t = case.tensors
    expected = compress_reference(
        case.compressor.config,
        dict(case.compressor.state_dict()),
        t["x"],
        question=t["q"],
        relevance=t.get("relevance"),
        motion=t["u"],
        ratio=case.case["ratio"],
        step=case.case["step"],
    )
    assert [list(budgets) for budgets in expected.budgets] == case.case["budgets"]
    assert relative(t["output"], expected.features) < 1e-6
    assert relative(t["loss"][0], expected.loss) < 1e-5


@pytest.mark.parametrize(
    ("how", "sentence"),
    [({}, "pass exactly one"), ({"ratio": 2, "supports": 3}, "pass exactly one"), ({"supports": 0}, "at least 1")],
)
def test_the_reference_refuses_too(how, sentence):
    with pytest.raises(ValueError, match=sentence):
        reference(make(), inputs(5), **how)
    with pytest.raises(ValueError, match="one video alone"):
        reference(make(), inputs(5, batch=(2,)), ratio=2)

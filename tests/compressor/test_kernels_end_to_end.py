"""Whole compressions by kernels against the looped float64 reference, and the choice of the backend."""

from importlib import import_module

import pytest
import torch
from common import DEVICE, inputs, make, relative

from aviot.methods.aviot import backend
from aviot.methods.aviot.reference import compress_reference
from aviot.methods.aviot.stage import StageModules
from aviot.ot import solver

GRID = (2, 3)
TINY = {"grid": GRID, "regions": ((1, 1), (2, 2)), "cost_dim": 10, "segments": 3, "rounds": (2, 1)}
ONE_STAGE = {"stage_multiple": 100}
LINE = ONE_STAGE | {"grid": (1, 3), "regions": ((1, 1), (1, 2)), "segments": 2}  # what takes long otherwise
UNIT = {"cost_normalization": "unit", "allocation": {"rule": "calibrated", "evidence_threshold": 9.0}}
UNTRACED = pytest.mark.untraced  # what these run is counted in the other tests; tracing takes longer than running


@pytest.fixture
def by_kernels(monkeypatch, poisoned, bf16_products):
    for module in (backend, solver):
        monkeypatch.setattr(module, "kernels_serve", lambda *_: True)


def tiny(**config):
    return make(**(TINY | {"transport": {"updates": 4}} | config)).to(DEVICE)


def on_device(given):
    return {name: value.to(DEVICE) for name, value in given.items()}


def reference(module, given, **how):
    """Return the reference's result, and the weights that it was computed from."""
    weights = {name: value.detach().cpu().double().requires_grad_() for name, value in module.named_parameters()}
    return compress_reference(module.config, weights, **given, **how), weights


def agrees(out, expected, tolerance):
    assert out.path == expected.path
    assert out.budgets == expected.budgets
    assert relative(out.features.cpu(), expected.features) < tolerance


@UNTRACED
@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize(
    ("config", "dtype", "tolerance"),
    [
        pytest.param({"rounds": (3, 2)}, torch.float32, 1e-5, marks=pytest.mark.slow),  # as in test_gradients
        (ONE_STAGE, torch.bfloat16, 1e-2),
        (ONE_STAGE | {"granularities": "global"}, torch.float32, 1e-5),
        (ONE_STAGE | {"fusion": "equal"}, torch.float32, 1e-5),
        (ONE_STAGE | {"pilot": "unbalanced", "question_cost": False}, torch.float32, 1e-5),
        (ONE_STAGE | {"cost_normalization": "unit"}, torch.float32, 1e-5),
    ],
    ids=str,
)
def test_outputs(config, dtype, tolerance):
    module, given = tiny(**config), inputs(9, grid=GRID, dtype=dtype)
    with torch.no_grad():
        out = module(**on_device(given), supports=4, step=300)
        expected, _ = reference(module, given, supports=4, step=300)
    agrees(out, expected, tolerance)
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-4)


@pytest.mark.usefixtures("by_kernels")
def test_outputs_without_a_question():
    module, given = tiny(**ONE_STAGE), inputs(9, grid=GRID)
    given = {"x": given["x"]}
    with torch.no_grad():
        out = module(**on_device(given), supports=1)
        expected, _ = reference(module, given, supports=1)
    agrees(out, expected, 1e-5)


@UNTRACED
@pytest.mark.usefixtures("by_kernels")
def test_a_batch_of_any_strides_that_shares_its_question():
    module = tiny(**ONE_STAGE, allocation={"relevance_weight": 9.0})
    given = inputs(9, batch=(2,), grid=GRID)
    given |= {"question": given["question"][0], "relevance": torch.linspace(0, 1, 9)}
    moved = on_device(given)
    moved["x"] = moved["x"].transpose(0, 2).contiguous().transpose(0, 2)
    moved["relevance"] = torch.stack((moved["relevance"], moved["relevance"].flip(0)), -1).double()[:, 0]
    with torch.no_grad():
        out = module(**moved, supports=4)
        for video in range(2):
            alone = given | {name: given[name][video] for name in ("x", "motion")}
            agrees(out.video(video), reference(module, alone, supports=4)[0], 1e-5)


@pytest.mark.usefixtures("by_kernels")
def test_a_calibrated_allocation():
    """One question of a batch with evidence, one at the threshold, and one just below it."""
    spread = 0.25
    allocation = {"rule": "calibrated", "evidence_threshold": spread, "relevance_weight": 9.0}
    module, given = tiny(**LINE, allocation=allocation), inputs(9, batch=(3,), grid=LINE["grid"])
    given["relevance"] = torch.tensor([2 * spread, spread, spread * (1 - 1e-6)])[:, None] * torch.linspace(0, 1, 9)
    with torch.no_grad():
        out = module(**on_device(given), supports=4)
        for video in range(3):
            alone = {name: value[video] for name, value in given.items()}
            agrees(out.video(video), reference(module, alone, supports=4)[0], 1e-5)
    assert out.budgets[0] == out.budgets[1] != out.budgets[2]


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize(
    ("config", "dtype", "tolerance", "gradient_tolerance"),
    [
        pytest.param({}, torch.float32, 1e-5, 1e-4, marks=UNTRACED, id="float32"),
        pytest.param({"rounds": (3, 2)}, torch.float32, 1e-5, 1e-4, marks=pytest.mark.slow, id="more rounds"),
        pytest.param(ONE_STAGE, torch.bfloat16, 1e-2, 1e-2, id="bfloat16"),
        pytest.param(ONE_STAGE | UNIT, torch.float32, 1e-5, 1e-4, marks=UNTRACED, id="unit cost"),
    ],
)
def test_gradients(config, dtype, tolerance, gradient_tolerance):
    module, given = tiny(**config), inputs(9, grid=GRID, dtype=dtype)
    exact, leaf = given["x"].double().requires_grad_(), given["x"].to(DEVICE, copy=True).requires_grad_()
    out = module(**(on_device(given) | {"x": leaf}), supports=4)
    expected, weights = reference(module, given | {"x": exact}, supports=4)
    agrees(out, expected, tolerance)
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-4)
    weight = torch.randn(out.features.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    ((out.features * weight.to(DEVICE)).sum() + out.loss).backward()
    ((expected.features * weight).sum() + expected.loss).backward()
    assert relative(leaf.grad.cpu(), exact.grad) < gradient_tolerance
    for name, value in module.named_parameters():
        if name != "metric.embed.3.bias":  # the true gradient is zero
            assert relative(value.grad.cpu(), weights[name].grad) < gradient_tolerance, name


@UNTRACED
@pytest.mark.usefixtures("by_kernels")
def test_gradients_of_the_loss_at_large_magnitudes():
    """The gradient is a small difference of huge terms: the supports' distance from their barycentres."""
    module, given = tiny(**ONE_STAGE), {"x": 1e4 * inputs(9, grid=GRID)["x"]}
    exact, leaf = given["x"].double().requires_grad_(), given["x"].to(DEVICE, copy=True).requires_grad_()
    module(leaf, supports=4).loss.backward()
    reference(module, {"x": exact}, supports=4)[0].loss.backward()
    assert relative(leaf.grad.cpu(), exact.grad) < 1e-3


@pytest.mark.slow
@UNTRACED
@pytest.mark.usefixtures("by_kernels")
def test_a_batch_has_each_videos_gradients():
    module = tiny(**LINE, transport={"updates": 2})
    given = on_device(inputs(7, batch=(2,), grid=LINE["grid"]))
    x = given.pop("x").requires_grad_()
    out = module(x, **given, supports=3)
    (out.features.square().sum() + out.loss.sum()).backward()
    for video in range(2):
        leaf = x.detach()[video].clone().requires_grad_()
        out = module(leaf, **{name: value[video] for name, value in given.items()}, supports=3)
        (out.features.square().sum() + out.loss).backward()
        assert relative(x.grad[video], leaf.grad) < 1e-5


@pytest.mark.usefixtures("by_kernels")
def test_features_that_are_not_finite_are_reported():
    module, given = tiny(**ONE_STAGE), on_device(inputs(9, grid=GRID))
    given["x"][3, 5, 1] = torch.nan
    with torch.no_grad(), pytest.raises(ValueError, match="features x are not finite"):
        module(**given, supports=4).check()


@UNTRACED
@pytest.mark.usefixtures("by_kernels")
def test_a_graph_of_kernels_carries_its_checks_along(monkeypatch):
    monkeypatch.setattr("aviot.methods.aviot.finite._being_captured", lambda _: True)
    module, given = tiny(**LINE), on_device(inputs(9, grid=LINE["grid"]))
    with torch.no_grad():
        assert torch.isfinite(module(**given, supports=4).flags().largest).all()
        given["x"][3, 2, 1] = torch.nan
        with pytest.raises(ValueError, match="features x are not finite"):
            module(**given, supports=4).flags().raise_first()
        given["x"][3, 2, 1] = 0.0
        module.gate[1].weight[0, 0] = torch.nan
        with pytest.raises(ValueError, match=r"stage 1 .*: the fusion weights are not finite"):
            module(**given, supports=4).flags().raise_first()


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("gradients", [True, False])
def test_the_backend_is_selected_once_per_compression(monkeypatch, gradients):
    calls = []
    monkeypatch.setattr(backend, "kernels_serve", lambda *_: calls.append(1) or True)
    module = tiny(**LINE | {"stage_multiple": 2}, transport={"updates": 2})
    with torch.set_grad_enabled(gradients):
        out = module(**on_device(inputs(9, grid=LINE["grid"])), supports=2)
        assert out.loss.isfinite()
    assert len(out.stages) > 1
    assert len(calls) == 1
    kernel_stage = import_module("aviot.methods.aviot.kernels.objective").KernelStage
    assert all(isinstance(stage, kernel_stage) == gradients for stage in out.stages)


def test_the_kernels_objective_refuses_stages_of_plain_torch():
    objective = import_module("aviot.methods.aviot.kernels.objective").KernelObjective()
    out = make(**TINY)(**inputs(9, grid=GRID), supports=4)
    change = torch.zeros(1, GRID[0] * GRID[1])
    with pytest.raises(TypeError, match="expected a stage that kernels ran with gradients, got Stage"):
        objective.stage_terms(out.stages, change, make().config.objective)


def serves(module, dtype=torch.float32, path=(40, 32, 10)):
    x = torch.empty(1, path[0], module.config.patches, module.config.dim, dtype=dtype, device="meta")
    modules = StageModules(module.metric, module.region_position, module.gate)
    return backend.kernels_serve(module.config, modules, x, path)


def test_unsupported_inputs_are_refused_by_the_kernels(monkeypatch):
    assert not serves(make())
    monkeypatch.setattr(backend, "on_gpu", lambda _: True)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert serves(make(), dtype)
    assert serves(make(), path=(512, 384, 256, 128, 1))
    assert not serves(make(), torch.float64)
    assert not serves(make(), path=(513, 40))
    assert not serves(make(segments=1), path=(200, 152))
    assert not serves(make(segments=8), path=(600, 304, 1))  # the last stage has one segment
    assert not serves(make(transport={"cost_bound": 201.0}))
    assert not serves(make(epsilons=(0.1, 0.1, 3.0)))  # rows at the bound would vanish in float32
    assert not serves(make(cost_dim=258))


def test_wrapped_modules_are_called(monkeypatch):
    monkeypatch.setattr(backend, "on_gpu", lambda _: True)
    for wrap in (
        lambda module: module.metric.embed[2].register_forward_hook(lambda *_: None),
        lambda module: module.gate.register_forward_pre_hook(lambda *_: None),
        lambda module: setattr(module.gate[1], "forward", lambda x: x),
        lambda module: torch.nn.utils.parametrizations.weight_norm(module.metric.embed[0]),
        lambda module: module.gate.__setitem__(1, torch.nn.Sequential(module.gate[1], torch.nn.Identity())),
    ):
        module = make()
        assert serves(module)
        wrap(module)
        assert not serves(module)

"""Properties of every compression."""

import copy
import re
from pathlib import Path

import pytest
import torch
from common import inputs, make, relative
from hypothesis import given, settings
from hypothesis import strategies as st

import aviot
from aviot import Compressor, CompressorConfig
from aviot.methods.aviot import fusion, regions
from aviot.methods.aviot.statistics import branch_moments


@given(st.integers(1, 40), st.floats(1.01, 50), st.integers(0, 1000), st.sampled_from([None, 0, 137]))
def test_provenance_is_a_distribution_that_rebuilds_the_output(frames, ratio, seed, step):
    given_ = inputs(frames, seed=seed)
    with torch.no_grad():
        out = make()(**given_, ratio=ratio, step=step)
    p = out.provenance()
    assert p.coefficients.shape == (out.features.shape[0], 35, frames)
    assert p.coefficients.ge(0).all()
    assert torch.allclose(p.coefficients.sum(-1), torch.ones(()), atol=2e-6)
    assert relative(torch.einsum("kst,tsd->ksd", p.coefficients, given_["x"]), out.features) < 1e-6
    assert torch.allclose(p.frames(), p.coefficients.mean(1))
    for stage, budgets, size in zip(out.stages, out.budgets, out.path[1:], strict=True):
        assert sum(budgets) == size
        assert (stage.coefficients.sum(-1) - 1).abs().max() < 2e-6
    if out.stages:
        branches = [p.branch(name) for name in ("global", "medium", "local")]
        for branch in branches:
            assert branch.coefficients.ge(0).all()
            assert torch.allclose(branch.coefficients.sum(-1), torch.ones(()), atol=2e-6)
        assert relative(sum(branch.mass for branch in branches), p.coefficients) < 1e-6
        assert torch.allclose(sum(branch.share for branch in branches), torch.ones(()), atol=1e-6)


@settings(max_examples=15)
@given(st.sampled_from(["balanced", "unbalanced"]), st.integers(2, 40), st.floats(1.2, 12), st.integers(0, 1000))
def test_a_batch_equals_its_members(pilot, frames, ratio, seed):
    compressor, together = make(pilot=pilot), inputs(frames, batch=(3,), seed=seed)
    together = {name: value.double() for name, value in together.items()}
    with torch.no_grad():
        batch = compressor(**together, ratio=ratio)
        members = [compressor(**{k: v[i] for k, v in together.items()}, ratio=ratio) for i in range(3)]
    assert all(batch.path == one.path for one in members)
    assert batch.budgets == tuple(one.budgets for one in members)
    assert torch.allclose(batch.features, torch.stack([one.features for one in members]), atol=1e-9)
    assert torch.allclose(batch.loss, torch.stack([one.loss for one in members]), atol=1e-9)


@pytest.mark.parametrize("frames", [3, 21, 40])
def test_a_batch_equals_its_members_in_float32(frames):
    compressor, together = make(), inputs(frames, batch=(3,))
    batch = compressor(**together, ratio=3.3)
    provenance = batch.provenance()
    for i in range(3):
        one = compressor(**{name: value[i] for name, value in together.items()}, ratio=3.3)
        assert batch.path == one.path
        assert batch.budgets[i] == one.budgets
        assert relative(batch.features[i], one.features) < 1e-6
        assert batch.loss[i].item() == pytest.approx(one.loss.item(), rel=1e-5)
        for ours, theirs in zip(batch.terms, one.terms, strict=True):
            assert ours[i].item() == pytest.approx(theirs.item(), rel=1e-4, abs=1e-9)
        assert torch.allclose(provenance.coefficients[i], one.provenance().coefficients, atol=1e-6)
        local = provenance.branch("local")
        assert torch.allclose(local.mass[i], one.provenance().branch("local").mass, atol=1e-6)


@settings(max_examples=15)
@given(st.integers(1, 40), st.floats(1.2, 12), st.integers(0, 1000))
def test_the_same_input_gives_the_same_bits(frames, ratio, seed):
    compressor, given_ = make(), inputs(frames, seed=seed)
    first, second = (compressor(**given_, ratio=ratio) for _ in range(2))
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.loss, second.loss)
    assert torch.equal(first.provenance().coefficients, second.provenance().coefficients)


@pytest.mark.parametrize("few", [1, 8])
def test_low_precision_is_raised_a_few_frames_at_a_time(monkeypatch, few):
    monkeypatch.setattr(regions, "FRAMES_AT_ONCE", few)
    compressor, given_ = make(), inputs(30, dtype=torch.bfloat16)
    recorded = compressor(**given_, ratio=4)
    with torch.no_grad():
        out = compressor(**given_, ratio=4)
    assert torch.equal(out.features, recorded.features)
    assert out.budgets == recorded.budgets


def test_stages_overwrite_the_previous_output(monkeypatch):
    """Without a gradient, from the second stage on, no memory is allocated for outputs."""
    places = []

    def fuse(*arguments, **options):
        made = fusion.fuse(*arguments, **options)
        places.append(made[0].data_ptr())
        return made

    monkeypatch.setattr("aviot.methods.aviot.stage.fuse", fuse)
    with torch.no_grad():
        out = make()(**inputs(40), supports=5)
    assert len(places) == len(out.path) - 1 > 2
    assert len(set(places)) == 1


@settings(max_examples=25)
@given(
    st.integers(1, 40),
    st.floats(1.2, 30),
    st.integers(0, 1000),
    st.sampled_from([(), (2,)]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_without_a_gradient_the_same_comes_out(frames, ratio, seed, batch, dtype):
    """Stages overwrite the previous stage's output there, and never the inputs."""
    compressor, given_ = make(), inputs(frames, batch, seed, dtype=dtype)
    kept = {name: value.clone() for name, value in given_.items()}
    recorded = compressor(**given_, ratio=ratio)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = compressor(**given_, ratio=ratio)
            assert torch.equal(out.features, recorded.features)
            assert torch.equal(out.loss, recorded.loss)
            assert torch.equal(out.provenance().coefficients, recorded.provenance().coefficients)
            assert out.features.is_contiguous()
            assert not out.stages or out.features.untyped_storage().nbytes() == out.features.nbytes
    assert all(torch.equal(kept[name], value) for name, value in given_.items())


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_permuting_regions_permutes_plans(seed):
    """Nine medium regions without children or position: swap two columns of regions, and their plans swap."""
    compressor = make(grid=(6, 6), regions=((1, 1), (3, 3)))
    with torch.no_grad():
        compressor.region_position.weight.zero_()
    given_ = inputs(16, grid=(6, 6), seed=seed, dtype=torch.float64)
    columns = torch.arange(36).view(6, 6)[:, [2, 3, 0, 1, 4, 5]].flatten()
    regions = torch.arange(9).view(3, 3)[:, [1, 0, 2]].flatten()
    swapped = given_ | {"x": given_["x"][:, columns], "motion": given_["motion"][:, columns]}
    with torch.no_grad():
        plain, permuted = (compressor(**each, supports=8) for each in (given_, swapped))
    assert plain.budgets == permuted.budgets
    ours, theirs = (out.stages[0].plans[1].conditional for out in (plain, permuted))
    assert torch.allclose(ours[:, regions], theirs, atol=1e-9)
    assert torch.allclose(plain.features[:, columns], permuted.features, atol=1e-7)


def test_forward_stores_nothing_on_the_module():
    compressor = make()
    before = {name: set(vars(module)) for name, module in compressor.named_modules()}
    weights = copy.deepcopy(compressor.state_dict())
    compressor(**inputs(), ratio=4, step=3).loss.backward()
    assert {name: set(vars(module)) for name, module in compressor.named_modules()} == before
    assert all(torch.equal(value, weights[name]) for name, value in compressor.state_dict().items())


@pytest.mark.parametrize("dim", [2, 64])
def test_a_few_positions_at_a_time_are_few_for_narrow_features_too(monkeypatch, dim):
    """With features of a few channels it is the plans' rows that are large."""
    compressor, given = make(dim=dim), inputs(frames=24, dim=dim)
    whole, held = compressor(**given, ratio=2).features, []

    def moments(sources, rows, *others):
        held.append(max(sources.numel(), rows.numel()))
        return branch_moments(sources, rows, *others)

    monkeypatch.setattr(fusion, "CPU_ELEMENTS", 4000)
    monkeypatch.setattr(fusion, "branch_moments", moments)
    torch.testing.assert_close(compressor(**given, ratio=2).features, whole)
    assert max(held) <= 4000
    assert len(held) > 1


def test_no_value_is_read_from_the_device():
    """On the meta device there are shapes and no values: any read would raise."""
    compressor = Compressor(CompressorConfig(transport={"updates": 2})).to("meta")  # each update is like the first
    x = torch.empty(2, 224, 729, 1152, device="meta", dtype=torch.bfloat16)
    question, relevance = torch.empty(2, 1152, device="meta"), torch.empty(2, 224, device="meta")
    out = compressor(x, question=question, relevance=relevance, motion=x, ratio=10, step=7)
    assert out.path == (224, 168, 112, 56, 23)
    assert out.features.shape == (2, 23, 729, 1152)
    assert out.features.dtype == torch.bfloat16
    assert out.loss.shape == (2,)


def test_the_source_reads_nothing_either():
    package = Path(aviot.__file__).parent
    for file in [*package.glob("ot/*.py"), *package.glob("compressor/*.py")]:
        if file.name not in ("reference.py", "schedule.py"):
            assert not re.search(r"\.(item|cpu|nan_to_num)\(", file.read_text()), file


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_features_are_solved_in_float32(dtype):
    compressor, given_ = make(), inputs(30, dtype=dtype)
    low = compressor(**given_, ratio=4)
    high = compressor(**{name: value.float() for name, value in given_.items()}, ratio=4)
    assert low.features.dtype == dtype
    assert low.budgets == high.budgets
    assert torch.equal(low.features, high.features.to(dtype))
    assert torch.equal(low.loss, high.loss)


def test_low_precision_weights_and_autocast_change_only_the_weights():
    given_ = inputs(30)
    rounded = make()
    for parameter in rounded.parameters():
        parameter.data = parameter.data.bfloat16().float()
    stored_low = copy.deepcopy(rounded).to(torch.bfloat16)
    expected = rounded(**given_, ratio=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = stored_low(**given_, ratio=4)
        loss, provenance = found.loss, found.provenance()
        branch = provenance.branch("local")
    assert provenance.coefficients.dtype == branch.coefficients.dtype == torch.float32
    assert torch.equal(found.features, expected.features)
    assert torch.equal(loss, expected.loss)


def test_double_features_are_solved_in_double():
    compressor, given_ = make(), inputs(30)
    high = compressor(**{name: value.double() for name, value in given_.items()}, ratio=4)
    low = compressor(**given_, ratio=4)
    assert high.features.dtype == torch.float64
    assert high.loss.dtype == torch.float64
    assert relative(low.features, high.features) < 1e-5
    assert (high.provenance().coefficients.sum(-1) - 1).abs().max() < 1e-13


def test_layers_are_called_as_modules():
    """Hooks of offloading, quantisation and profiling tools must fire."""
    compressor, fired = make(), set()
    for name, module in compressor.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_, name=name: fired.add(name))
    compressor(**inputs(), ratio=4)
    assert fired == {name for name, module in compressor.named_modules() if not list(module.children())}


def test_the_loss_keeps_the_gradient_mode_of_the_compression():
    compressor, given_ = make(), inputs()
    out = compressor(**given_, ratio=4)
    with torch.inference_mode(), torch.no_grad():
        loss = out.loss
    loss.backward()
    with torch.no_grad():
        silent = compressor(**given_, ratio=4)
    assert not silent.loss.requires_grad


def test_motion_defaults_to_the_features():
    compressor, given_ = make(), inputs()
    without = compressor(**(given_ | {"motion": None}), ratio=4)
    itself = compressor(**(given_ | {"motion": given_["x"]}), ratio=4)
    assert torch.equal(without.loss, itself.loss)


def test_unknown_branch_is_named():
    with pytest.raises(ValueError, match="'global', 'medium', 'local', got 'tiny'"):
        make()(**inputs(), ratio=4).provenance().branch("tiny")

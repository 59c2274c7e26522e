"""Calibrated allocation: relevance counts where its range over frames reaches the model's threshold."""

import math

import pytest
import torch
from common import inputs, make, relative
from torch.utils._python_dispatch import TorchDispatchMode

from aviot.config import AllocationConfig
from aviot.methods.aviot.allocation import evidence_of, running_threshold
from aviot.methods.aviot.method import AviotMethod
from aviot.methods.aviot.reference import compress_reference

STRONG = 3.0  # a relevance weight that moves many supports


def calibrated(threshold, **config):
    allocation = {"rule": "calibrated", "evidence_threshold": threshold, "relevance_weight": STRONG}
    return make(allocation=allocation, **config)


def printed(**config):
    return make(allocation={"relevance_weight": STRONG}, **config)


def asked(frames=24, spread=0.5, **how):
    """Inputs whose relevance rises by `spread` over the video."""
    given = inputs(frames, **how)
    rising = torch.linspace(0.25, 0.25 + spread, frames, dtype=torch.float64)
    given["relevance"] = rising.expand(given["relevance"].shape).clone()
    return given


def same(a, b):
    return a.budgets == b.budgets and torch.equal(a.features, b.features) and torch.equal(a.loss, b.loss)


def reference(compressor, given, **how):
    weights = {name: value.detach().double() for name, value in compressor.named_parameters()}
    doubled = {name: value.double() for name, value in given.items()}
    return compress_reference(compressor.config, weights, **doubled, **how)


def test_without_evidence_supports_are_shared_as_without_relevance():
    given = asked()
    out = calibrated(0.6)(**given, ratio=4)
    assert same(out, make(question_allocation=False, allocation={"relevance_weight": STRONG})(**given, ratio=4))
    assert not same(out, printed()(**given, ratio=4))
    assert set(out.budgets[0]) == {4}
    assert out.evidence.item() == pytest.approx(0.5)


def test_with_evidence_the_allocation_is_the_printed_one():
    given = asked()
    out = calibrated(0.4)(**given, ratio=4)
    assert same(out, printed()(**given, ratio=4))
    assert len(set(out.budgets[0])) > 1


def test_evidence_at_the_threshold_counts():
    given = asked()
    spread = evidence_of(given["relevance"][None]).item()
    assert same(calibrated(spread)(**given, ratio=4), printed()(**given, ratio=4))
    assert not same(calibrated(math.nextafter(spread, 1))(**given, ratio=4), printed()(**given, ratio=4))


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 5.0])
@pytest.mark.parametrize("spread", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("changes", [{}, {"question": None}, {"relevance": None}], ids=str)
def test_plain_torch_is_the_reference(threshold, spread, changes):
    compressor, given = calibrated(threshold, transport={"updates": 5}), asked(26, spread)
    given = {name: value.double() for name, value in (given | changes).items() if value is not None}
    out, expected = compressor(**given, ratio=3.3, step=300), reference(compressor, given, ratio=3.3, step=300)
    assert out.budgets == expected.budgets
    assert relative(out.features, expected.features) < 1e-10
    assert out.loss.item() == pytest.approx(expected.loss.item(), rel=1e-9)
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients, given["x"])
    assert relative(rebuilt, out.features) < 1e-10


def test_each_question_of_a_batch_is_gated_by_itself():
    given = inputs(24, batch=(3,))
    given["relevance"] = torch.stack([torch.linspace(0, spread, 24) for spread in (0.1, 0.9, 0.2)])
    compressor = calibrated(0.15)
    out = compressor(**given, ratio=4)
    assert torch.allclose(out.evidence, torch.tensor([0.1, 0.9, 0.2], dtype=torch.float64))
    for video, budgets in enumerate(out.budgets):
        alone = {name: value[video] for name, value in given.items()}
        assert budgets == reference(compressor, alone, ratio=4).budgets
        assert torch.equal(out.video(video).evidence, out.evidence[video])
    assert [len(set(budgets[0])) > 1 for budgets in out.budgets] == [False, True, True]


def test_the_gradients_are_the_references():
    compressor, given = calibrated(0.6), asked(26)
    given = {name: value.double() for name, value in given.items()}
    given["x"].requires_grad_()
    weights = {name: value.detach().double().requires_grad_() for name, value in compressor.named_parameters()}
    expected = compress_reference(compressor.config, weights, **given, ratio=4)
    (expected.features.square().mean() + expected.loss).backward()
    grad, given["x"].grad = given["x"].grad, None
    compressor = compressor.double()
    out = compressor(**given, ratio=4)
    (out.features.square().mean() + out.loss).backward()
    assert relative(given["x"].grad, grad) < 1e-8
    for name, parameter in compressor.named_parameters():
        scale = max(1e-3, float(weights[name].grad.norm()))
        assert (parameter.grad - weights[name].grad).norm() < 1e-7 * scale, name


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_few_frames(frames):
    given = asked(frames, 0.0)
    out = calibrated(0.1)(**given, supports=1)
    assert out.features.isfinite().all()
    assert out.evidence == 0
    assert relative(out.features, reference(calibrated(0.1), given, supports=1).features) < 1e-6


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 100.0])
def test_relevance_that_is_not_finite_is_never_taken_for_no_evidence(value, threshold):
    given = asked()
    given["relevance"][5] = value
    with pytest.raises(ValueError, match="the relevance is not finite"):
        calibrated(threshold)(**given, ratio=4)


def test_a_printed_allocation_asks_for_no_evidence():
    given = asked()
    out = make(allocation={"evidence_threshold": 0.9, "relevance_weight": STRONG})(**given, ratio=4)
    assert same(out, printed()(**given, ratio=4))
    assert out.evidence is None


def test_without_a_threshold_it_is_refused_except_in_training():
    given = asked()
    with pytest.raises(ValueError, match="needs the model's evidence_threshold, and its config has none; train"):
        calibrated(None)(**given, ratio=4)
    calibrated(None, question_allocation=False)(**given, ratio=4)
    assert same(calibrated(None)(**given, ratio=4, step=300), printed()(**given, ratio=4, step=300))


def test_gating_reads_nothing_from_the_device():
    """A capture as a CUDA graph would fail on a value that the host reads."""

    class Reads(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    counts = []
    for compressor in (printed(), calibrated(0.6), calibrated(0.4)):
        with torch.no_grad(), Reads() as reads:
            compressor(**asked(), ratio=4)
        counts.append(reads.count)
    assert len(set(counts)) == 1


def test_another_threshold_is_another_graph():
    """A captured graph has the threshold that it was captured with, and training moves it."""
    method = AviotMethod(calibrated(0.1), torch.nn.Linear(6, 6))
    keys = [hash(method.replay_key)]
    for threshold in (0.2, 0.1):
        method.compressor.config = method.compressor.config.switched(allocation={"evidence_threshold": threshold})
        keys.append(hash(method.replay_key))
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("quantile", [0.05, 0.1, 0.5])
def test_the_running_threshold_finds_its_quantile_on_any_scale(scale, quantile):
    config = AllocationConfig(evidence_quantile=quantile, evidence_rate=0.002)
    ranges = scale * torch.rand(20_000, generator=torch.Generator().manual_seed(0)) ** 2
    found, threshold = [], None
    for value in ranges.tolist():
        threshold = running_threshold(threshold, [value], config)
        found.append(threshold)
    below = (ranges[4000:] < torch.tensor(found[4000:])).float().mean().item()
    assert below == pytest.approx(quantile, rel=0.1)


def test_the_running_threshold_goes_on_exactly_where_it_stopped():
    config, ranges = AllocationConfig(), torch.rand(100, generator=torch.Generator().manual_seed(1)).tolist()
    whole = running_threshold(None, ranges, config)
    threshold = None
    for start in range(0, len(ranges), 7):
        threshold = running_threshold(threshold, ranges[start : start + 7], config)
    assert threshold == whole


def test_odd_evidence():
    config = AllocationConfig()
    assert running_threshold(None, [], config) is None
    assert running_threshold(None, [0.0, 0.0], config) is None  # a still video tells nothing of the scale
    assert running_threshold(None, [0.0, 0.3], config) == 0.3
    assert running_threshold(0.3, [0.0], config) < 0.3 < running_threshold(0.3, [0.3], config)
    assert running_threshold(0.3, [0.1, 9.0], AllocationConfig(evidence_rate=0)) == 0.3

"""Awkward input is handled, or refused with a message that says how to fix it."""

import numpy as np
import pytest
import torch
from common import relative

from aviot import Compressor, CompressorConfig, PositionEncoder, SegmentMean, UniformKeep
from aviot.methods.aviot.reference import compress_reference

CONFIG = CompressorConfig(dim=6, cost_dim=8, grid=(5, 5), regions=((1, 1), (2, 2), (5, 5)))


def features(frames=12, scale=1.0, dtype=torch.float32, batch=()):
    shape = (*batch, frames, CONFIG.patches, CONFIG.dim)
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(1))).to(dtype)


@pytest.fixture
def compressor():
    torch.manual_seed(0)
    return Compressor(CONFIG)


ALL = pytest.mark.parametrize("make", [Compressor, UniformKeep, SegmentMean])


def assert_sound(out, x):
    assert torch.isfinite(out.features).all()
    assert torch.isfinite(out.loss)
    rows = out.provenance().coefficients
    assert rows.ge(0).all()
    assert (rows.sum(-1) - 1).abs().max() < 1e-5


def test_identical_frames_come_out_as_they_went_in(compressor):
    x = features(1).expand(12, -1, -1)
    out = compressor(x, question=torch.randn(6), relevance=torch.zeros(12), ratio=3)
    assert torch.allclose(out.features, x[:4], atol=1e-6)
    assert_sound(out, x)


@pytest.mark.parametrize("scale", [1e4, 1e-6, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_large_and_small_magnitudes(compressor, scale, dtype):
    x = features(scale=scale, dtype=dtype)
    out = compressor(x, question=torch.randn(6), relevance=torch.rand(12), ratio=4)
    assert out.features.dtype == dtype
    assert_sound(out, x)
    assert out.features.abs().max() <= x.abs().max() * 1.01


def test_gradients_stay_finite_at_coinciding_and_distant_frames(compressor):
    for x in (features(1).expand(12, -1, -1), features(scale=1e4), features(scale=1e-6), torch.zeros(12, 25, 6)):
        x = x.clone().requires_grad_()
        out = compressor(x, question=torch.randn(6), relevance=torch.rand(12), ratio=4)
        (out.features.square().mean() + out.loss).backward()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in compressor.parameters())
        compressor.zero_grad()


@ALL
@pytest.mark.parametrize("frames", [1, 2, 5])
def test_nothing_to_compress_is_returned_untouched(make, frames):
    x = features(frames)
    out = make(CONFIG)(x, question=torch.randn(6), ratio=1.0001)
    assert out.features is x
    assert out.path == (frames,)
    assert out.budgets == ()
    assert out.loss == 0
    assert torch.equal(out.provenance().coefficients, torch.eye(frames)[:, None].expand(frames, 25, frames))
    make(CONFIG)(x.clone().requires_grad_(), ratio=1.0001).loss.backward()  # a short video can be trained on
    with pytest.raises(ValueError, match="no stage was executed"):
        out.provenance().branch("global")


@ALL
def test_one_frame_survives_any_ratio(make):
    out = make(CONFIG)(features(1, batch=(2,)), ratio=50)
    assert out.features.shape == (2, 1, 25, 6)
    assert out.budgets == ((), ())


@ALL
@pytest.mark.parametrize("ratio", [1, 1.0, 0.5, 0, -3, float("nan"), float("inf"), "4", None, True, 10**400])
def test_bad_ratios(make, ratio):
    with pytest.raises(ValueError, match="ratio"):
        make(CONFIG)(features(), ratio=ratio)


@ALL
@pytest.mark.parametrize("supports", [0, -1, 2.5, True, "3"])
def test_bad_supports(make, supports):
    with pytest.raises(ValueError, match="supports must be a whole number"):
        make(CONFIG)(features(), supports=supports)


@ALL
def test_numbers_of_numpy_and_torch_are_numbers(make):
    compressor = make(CONFIG)
    for how in (
        {"ratio": np.float32(4)},
        {"ratio": torch.tensor(4.0)},
        {"ratio": np.int64(4)},
        {"supports": np.int64(3)},
    ):
        assert compressor(features(), **how).features.shape[0] == 3
    assert compressor(features(), ratio=4, step=torch.tensor(7)).features.shape[0] == 3


@ALL
@pytest.mark.parametrize("config", [{"dim": 6}, None])
def test_something_else_than_a_config(make, config):
    with pytest.raises(TypeError, match="expected a CompressorConfig, got"):
        make(config)


def test_a_constant_relevance_is_no_signal(compressor):
    x = features(40)
    plain = compressor(x, question=torch.ones(6), ratio=3).budgets
    for level in (0.3, 100.0, 1e6):
        assert compressor(x, question=torch.ones(6), relevance=torch.full((40,), level), ratio=3).budgets == plain


def test_relevance_past_the_range_is_refused(compressor):
    relevance = torch.full((12,), 1.7e308, dtype=torch.float64)
    with pytest.raises(ValueError, match="allocation probabilities are not finite"):
        compressor(features(), question=torch.ones(6), relevance=relevance, ratio=4)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_gradients_of_the_loss_at_large_magnitudes(compressor, scale):
    x = features(13, scale=scale).requires_grad_()
    compressor(x, supports=7).loss.backward()
    found = x.grad.clone()
    x.grad = None
    compress_reference(CONFIG, dict(compressor.named_parameters()), x, supports=7).loss.backward()
    assert relative(found, x.grad) < 1e-3


def test_ratio_or_supports_not_both(compressor):
    with pytest.raises(ValueError, match="either ratio"):
        compressor(features(), ratio=2, supports=3)
    assert compressor(features(), supports=3).path == compressor(features(), ratio=4).path
    assert compressor(features(), supports=99).path == (12,)


@ALL
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_not_finite(make, bad):
    x = features()
    x[7, 3, 2] = bad
    for ratio in (4, 1.0001):
        with pytest.raises(ValueError, match="features x are not finite"):
            make(CONFIG)(x, ratio=ratio)


def test_companions_that_are_not_finite(compressor):
    bad = torch.full((6,), torch.nan)
    with pytest.raises(ValueError, match="question is not finite"):
        compressor(features(), question=bad, ratio=4)
    with pytest.raises(ValueError, match="relevance is not finite"):
        compressor(features(), question=torch.ones(6), relevance=torch.full((12,), torch.inf), ratio=4)


def test_motion_that_is_not_finite_is_named_when_the_loss_is_computed(compressor):
    motion = features()
    motion[3, 4, 5] = torch.nan
    out = compressor(features(), motion=motion, ratio=4)
    for _ in range(2):
        with pytest.raises(ValueError, match="the motion features are not finite"):
            _ = out.loss


def test_weights_that_are_not_finite_are_caught_where_they_first_show(compressor):
    with torch.no_grad():
        compressor.metric.embed[0].bias.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"stage 1 \(12 to 8 frames\): the allocation probabilities are not finite"):
        compressor(features(), ratio=4)


def test_overflow_inside_names_stage_and_granularity(compressor):
    with torch.no_grad():
        compressor.region_position.weight.fill_(torch.inf)
    with pytest.raises(ValueError, match=r"stage 1 \(12 to 8 frames\): the medium plan is not finite"):
        compressor(features(), ratio=4)


@pytest.mark.parametrize("name", ["gate.3.weight", "gate.3.bias", "metric.weigh.2.weight", "metric.weigh.2.bias"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_activation_hides_an_infinite_weight(compressor, name, bad):
    """Softmax and softplus make a plain zero of minus infinity."""
    with torch.no_grad():
        compressor.get_parameter(name)[0] = bad
    with pytest.raises(ValueError, match=r"not finite \(NaN or infinity\)"):
        compressor(features(), question=torch.ones(6), relevance=torch.ones(12), ratio=4)


@pytest.fixture
def captured(monkeypatch):
    """Defer all checks, as while a CUDA graph is captured."""
    monkeypatch.setattr("aviot.methods.aviot.finite._being_captured", lambda _: True)


@ALL
@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_graph_carries_its_checks_along(make, bad):
    x = features(batch=(2,))
    assert torch.isfinite(make(CONFIG)(x, ratio=4).flags().largest).all()
    x[1, 7, 3, 2] = bad
    flags = make(CONFIG)(x, ratio=4).flags()
    with pytest.raises(ValueError, match="features x are not finite"):
        flags.raise_first()


@pytest.mark.usefixtures("captured")
def test_a_graph_names_the_failed_check(compressor):
    asks = {"question": torch.ones(6), "relevance": torch.full((12,), torch.nan, dtype=torch.float64)}
    with pytest.raises(ValueError, match="relevance is not finite"):
        compressor(features(), **asks, ratio=4).flags().raise_first()
    with torch.no_grad():
        compressor.region_position.weight.fill_(torch.inf)
    with pytest.raises(ValueError, match=r"stage 1 \(12 to 8 frames\): the medium plan is not finite"):
        compressor(features(), ratio=4).flags().raise_first()


def test_a_cpu_has_read_its_checks_already(compressor):
    assert compressor(features(), ratio=4).flags() is None


@ALL
@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.zeros(12, 24, 6), r"25 patches \(grid 5x5\), got 24; set CompressorConfig\(grid"),
        (torch.zeros(12, 25, 7), r"6 channels, got 7; set CompressorConfig\(dim"),
        (torch.zeros(25, 6), r"must be \[T,25,6\] or \[B,T,25,6\], got \(25, 6\)"),
        (torch.zeros(1, 2, 12, 25, 6), "got"),
        (torch.zeros(0, 25, 6), "at least one frame"),
        (torch.zeros(0, 12, 25, 6), "one video"),
        (torch.zeros(12, 25, 6, dtype=torch.long), r"floating point, got torch.int64; convert with .float\(\)"),
        (torch.zeros(12, 25, 6, dtype=torch.bool), "floating point"),
        (torch.zeros(12, 25, 6, dtype=torch.complex64), "floating point"),
        (torch.zeros(12, 25, 6).to(torch.float8_e4m3fn), "floating point, got torch.float8_e4m3fn"),
        (torch.zeros(12, 25, 6).to_sparse(), "must be dense"),
    ],
)
def test_features_of_the_wrong_kind(make, x, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(CONFIG)(x, ratio=4)


@ALL
def test_features_that_are_no_tensor(make):
    with pytest.raises(TypeError, match="torch tensor"):
        make(CONFIG)([[1.0]], ratio=4)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"question": torch.zeros(7)}, r"question must be \[6\] for features \(12, 25, 6\), got \(7,\)"),
        ({"question": torch.zeros(1, 6)}, "question must be"),
        ({"question": torch.zeros(6).long()}, "floating point tensor or None, got torch.int64"),
        ({"question": "why?"}, "got str"),
        ({"relevance": torch.zeros(11)}, r"relevance must be \[12\]"),
        ({"motion": torch.zeros(11, 25, 6)}, r"motion must have the features' shape \(12, 25, 6\), got \(11, 25, 6\)"),
        ({"motion": torch.zeros(12, 24, 6)}, "motion must have 25 patches"),
        ({"step": -1}, "step must be"),
        ({"step": 2.5}, "step must be"),
    ],
)
def test_companions_of_the_wrong_kind(compressor, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        compressor(features(), ratio=4, **given)


def test_mixed_devices(compressor):
    x = features()
    with pytest.raises(ValueError, match=r"question must be on the features' device cpu, got meta; move it"):
        compressor(x, question=torch.zeros(6, device="meta"), ratio=4)
    with pytest.raises(ValueError, match=r"relevance must be on the features' device"):
        compressor(x, question=torch.zeros(6), relevance=torch.zeros(12, device="meta"), ratio=4)
    with pytest.raises(ValueError, match=r"features x must be on the weights' device cpu, got meta"):
        compressor(x.to("meta"), ratio=4)
    with pytest.raises(ValueError, match=r"motion must be on the weights' device cpu, got meta"):
        compressor(x, motion=x.to("meta"), ratio=4)
    with pytest.raises(ValueError, match="weights' device"):
        PositionEncoder(CONFIG)(x.to("meta"))


def test_one_question_serves_a_batch(compressor):
    x, q = features(batch=(2,)), torch.randn(6)
    one, each = compressor(x, question=q, ratio=4), compressor(x, question=q.expand(2, 6), ratio=4)
    assert torch.equal(one.features, each.features)

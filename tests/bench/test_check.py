"""Nothing is timed if the compressor differs from the reference."""

from dataclasses import replace

import pytest
import torch
from test_bench_cli import aviot

from aviot.bench import check, run
from aviot.bench.check import CheckFailed, check_compressor
from aviot.config import CompressorConfig
from aviot.methods.aviot import Compressor
from aviot.methods.aviot.metric import Metric

SMALL = CompressorConfig(dim=8, cost_dim=8, grid=(3, 3), regions=((1, 1), (3, 3)))


@pytest.fixture
def compressor():
    torch.manual_seed(0)
    return Compressor(SMALL)


def checked(compressor, dtype=torch.float32, backward=False):
    return check_compressor(compressor, dtype, generator=torch.Generator().manual_seed(0), backward=backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_compressor_passes(compressor, dtype):
    odd, own = checked(compressor.to(dtype), dtype, backward=True)
    assert odd.path == (37, 24, 16, 10)
    assert odd.feature_error < odd.feature_limit
    assert odd.gradient_error < odd.gradient_limit
    assert own.feature_error < own.feature_limit
    assert own.gradient_error is None


def test_other_weights_than_its_own_are_found_out(compressor, monkeypatch):
    right = Metric.weights
    monkeypatch.setattr(Metric, "weights", lambda self, question: right(self, question) * 3)
    with pytest.raises(CheckFailed, match=r"nothing was timed"):
        checked(compressor)


def test_a_small_error_is_found_out(compressor, monkeypatch):
    monkeypatch.setattr(check, "compress_reference", scaled(check.compress_reference, 1 + 1e-4))
    with pytest.raises(CheckFailed, match=r"odd sizes: features must be within 1e-05 .* got 0.0001"):
        checked(compressor)


def test_what_is_not_finite_is_found_out(compressor, monkeypatch):
    monkeypatch.setattr(check, "compress_reference", scaled(check.compress_reference, float("nan")))
    with pytest.raises(CheckFailed, match="got nan"):
        checked(compressor)


def test_wrong_gradients_are_found_out(compressor, monkeypatch):
    right = Compressor._compress

    def detached(self, inputs, *how):
        features, stages = right(self, inputs, *how)
        return features.detach().requires_grad_(), stages

    monkeypatch.setattr(Compressor, "_compress", detached)
    with pytest.raises(CheckFailed, match=r"gradients must be within 0\.001"):
        checked(compressor, backward=True)


def test_a_wrong_compressor_ends_the_command(monkeypatch):
    right = Metric.weights
    monkeypatch.setattr(Metric, "weights", lambda self, question: right(self, question) * 3)
    monkeypatch.setattr(run, "copy_bandwidth", lambda *_, **__: pytest.fail("something was timed"))
    done = aviot("--compressor-only", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing was timed" in done.stderr
    assert "Traceback" not in done.stderr


def scaled(reference, factor):
    """Return the reference with its features scaled by a factor."""

    def wrong(*given, **how):
        out = reference(*given, **how)
        return replace(out, features=out.features * factor)

    return wrong

"""Positions: three small tables against the whole 96-dimensional code, and against the published encoder."""

from pathlib import Path

import pytest
import torch
from common import relative
from safetensors.torch import load_file

from aviot import CompressorConfig, PositionEncoder
from aviot.methods.aviot.position import FRAMES_AT_ONCE, add_residual

GOLDEN = Path(__file__).parents[1] / "golden" / "position.safetensors"


def encoder(weight, **config):
    encoder = PositionEncoder(CompressorConfig(dim=weight.shape[0], cost_dim=8, **config))
    encoder.load_state_dict({"proj.weight": weight})
    return encoder


def whole_code(frames, rows, columns):
    """Return [T*S, 96] by the definition, one point at a time."""

    def psi(c):
        angle = c * torch.pi * 2.0 ** torch.arange(16)
        return torch.cat((angle.sin(), angle.cos()))

    t = torch.linspace(-1, 1, frames)
    points = [
        torch.cat(
            (
                psi(t[i]),
                psi(0.5 * (torch.tensor(2.0 * h) / (rows - 1) - 1)),
                psi(0.5 * (torch.tensor(2.0 * w) / (columns - 1) - 1)),
            )
        )
        for i in range(frames)
        for h in range(rows)
        for w in range(columns)
    ]
    return torch.stack(points)


def test_published_encoder():
    golden = load_file(GOLDEN)
    u = torch.zeros(25, 729, 24)
    u[:4] = golden["vision_features"]
    found = encoder(golden["proj.weight"])(u)[:4]
    assert relative(found - u[:4], golden["positioned_features"] - u[:4]) < 1e-6


def test_tables_equal_the_whole_code():
    weight = torch.randn(6, 96)
    residual = encoder(weight, grid=(4, 5), regions=((1, 1),))(torch.zeros(3, 20, 6))
    assert relative(residual, (whole_code(3, 4, 5) @ weight.T).view(3, 20, 6)) < 1e-6


def test_starts_as_nothing_and_warms_up_linearly():
    config = CompressorConfig(dim=6, cost_dim=8, grid=(4, 5), regions=((1, 1),))
    u = torch.randn(2, 3, 20, 6)
    assert torch.equal(PositionEncoder(config)(u), u)
    warm = encoder(torch.randn(6, 96), grid=(4, 5), regions=((1, 1),))
    full = warm(u) - u
    assert torch.allclose(warm(u, step=125) - u, full / 4, atol=1e-5)
    assert torch.equal(warm(u, step=0), u)
    assert torch.equal(warm(u, step=500), warm(u))


def test_a_single_frame_or_row_has_the_position_of_the_first_of_many():
    weight = torch.randn(6, 96)
    alone = encoder(weight, grid=(1, 5), regions=((1, 1),))(torch.zeros(1, 5, 6))
    first = encoder(weight, grid=(4, 5), regions=((1, 1),))(torch.zeros(3, 20, 6))[:1, :5]
    assert torch.allclose(alone, first, atol=1e-5)


def test_autocast_does_not_reach_the_tables():
    u = torch.randn(3, 20, 6)
    warm = encoder(torch.randn(6, 96), grid=(4, 5), regions=((1, 1),))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(warm(u), warm(u.clone()))
        found = warm(u)
    assert torch.equal(found, warm(u))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_type_of_the_features_is_preserved(dtype):
    u = torch.randn(3, 20, 6)
    warm = encoder(torch.randn(6, 96), grid=(4, 5), regions=((1, 1),))
    out = warm(u.to(dtype))
    assert out.dtype == dtype
    assert torch.allclose(out, warm(u.to(dtype).float()).to(dtype), rtol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("frames", [1, FRAMES_AT_ONCE, 2 * FRAMES_AT_ONCE + 3])
def test_the_residual_is_the_plain_sum_to_the_last_bit(dtype, lead, frames):
    working = torch.promote_types(dtype, torch.float32)
    u = torch.randn(*lead, frames, 20, 6).to(dtype)
    time, place = torch.randn(frames, 6, dtype=working), torch.randn(20, 6, dtype=working)
    plain = (u.to(working) + time[:, None] + place).to(dtype)
    with_gradient = add_residual(u, time.clone().requires_grad_(), place)
    for view in (u, u.transpose(-1, -2).contiguous().transpose(-1, -2)):
        for found in (add_residual(view, time, place), with_gradient):
            assert found.dtype == dtype
            assert torch.equal(found, plain)


def test_features_of_one_video_expanded_to_a_batch_are_unchanged():
    u = torch.randn(3, 20, 6)
    before, time, place = u.clone(), torch.randn(3, 6), torch.randn(20, 6)
    found = add_residual(u.expand(2, -1, -1, -1), time, place)
    assert torch.equal(found, add_residual(u, time, place).expand_as(found))
    assert torch.equal(u, before)


def test_gradients_of_features_and_projection():
    weight = torch.randn(2, 96, dtype=torch.float64, requires_grad=True)
    u = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    small = PositionEncoder(CompressorConfig(dim=2, cost_dim=8, grid=(2, 2), regions=((1, 1),))).double()

    def positioned(u, weight):
        return torch.func.functional_call(small, {"proj.weight": weight}, (u,), {"step": 125})

    assert torch.autograd.gradcheck(positioned, (u, weight))
    half = torch.randn(3, 4, 2).bfloat16().requires_grad_()
    small.float()(half).float().sum().backward()
    assert torch.equal(half.grad, torch.ones_like(half))
    assert small.proj.weight.grad.abs().max() > 0

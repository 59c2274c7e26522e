"""Kernels of the connector: interpreted on a CPU, compiled on a GPU."""

import pytest
import torch
from common import DEVICE
from torch.nn import functional as F

from aviot.backbones.llava_video.kernels import gelu_mean, gelu_pool
from aviot.methods.aviot.kernels.position_residual import add_residual
from aviot.methods.aviot.kernels.squared_distances import squared_distances

pytestmark = pytest.mark.usefixtures("poisoned")


def test_the_activation_of_every_bfloat16_number():
    """The error is within 2e-7 and the rounding of the result's type; NaN stays NaN."""
    every = torch.arange(-(2**15), 2**15, device=DEVICE).short().view(torch.bfloat16)
    x = every.float()
    found = gelu_mean(x[None, None])[0]
    real = x.isfinite()
    error = (found.double() - F.gelu(x.double())).abs()
    assert (error <= 2e-7 + 2**-24 * x.abs().double())[real].all()
    assert found[x.isnan()].isnan().all()
    assert not found[x.isinf()].isfinite().any()


def test_the_activations_mean_over_each_frame():
    hidden = torch.randn(2, 35, 20, device=DEVICE)
    assert torch.allclose(gelu_mean(hidden), F.gelu(hidden).mean(1), atol=1e-6)


@pytest.mark.parametrize("pooled", [(5, 7), (3, 4), (2, 3), (1, 1)])
def test_the_activation_is_pooled_as_torch_interpolates(pooled):
    hidden = torch.randn(2, 35, 20, device=DEVICE)
    lattice = F.gelu(hidden).unflatten(1, (5, 7)).permute(0, 3, 1, 2)
    expected = F.interpolate(lattice, size=pooled, mode="bilinear", align_corners=False).permute(0, 2, 3, 1)
    assert torch.allclose(gelu_pool(hidden, (5, 7), pooled), F.pad(expected, (0, 0, 0, 1)), atol=2e-6)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_positions_are_added_in_the_same_order(batch):
    u, time, place = (torch.randn(shape, device=DEVICE) for shape in ((*batch, 3, 11, 20), (3, 20), (11, 20)))
    assert torch.equal(add_residual(u, time, place), u + time[:, None] + place)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_of_points_far_from_the_origin(dtype):
    a, b = (torch.randn(2, 3, count, 13, device=DEVICE, dtype=dtype) + 100 for count in (35, 5))
    expected = (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)
    assert torch.allclose(squared_distances(a, b), expected, rtol=1e-6)

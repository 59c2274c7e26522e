"""The connector against a plain implementation: project every patch, interpolate, add separators."""

import pytest
import torch
from common import relative
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from aviot.backbones.llava_video import connector as module
from aviot.backbones.llava_video.connector import Connector, pool

GRIDS = [(27, 27), (5, 8), (1, 7), (9, 2), (1, 1)]


def make(grid, stride, dtype=torch.float64):
    torch.manual_seed(0)
    connector = Connector(6, 10, grid, stride).to(dtype)
    torch.nn.init.normal_(connector.row_separator)
    return connector, torch.randn(5, grid[0] * grid[1], 6, dtype=dtype)


def plain(connector, features):
    """Project every patch, then pool in the highest precision."""
    lattice = connector.projector(features).unflatten(1, connector.grid).permute(0, 3, 1, 2)
    rows = F.interpolate(lattice.double(), size=connector.pooled, mode="bilinear", align_corners=False)
    rows = rows.to(features.dtype).permute(0, 2, 3, 1)
    return torch.cat((rows, connector.row_separator.expand(*rows.shape[:2], 1, -1)), 2).flatten(0, 2)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("grid", GRIDS)
def test_pooling_is_bilinear_interpolation(grid, stride):
    pooled = tuple(-(-side // stride) for side in grid)
    values = torch.randn(3, grid[0] * grid[1], 4, dtype=torch.float64)
    expected = F.interpolate(values.unflatten(1, grid).permute(0, 3, 1, 2), size=pooled, mode="bilinear")
    assert torch.allclose(pool(values, grid, pooled), expected.permute(0, 2, 3, 1), atol=1e-12)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-7), (torch.bfloat16, 4e-3), (torch.float16, 5e-4)])
def test_pooling_rounds_to_the_type_of_the_features(dtype, bound):
    values = torch.randn(3, 729, 16, dtype=torch.float64).to(dtype)
    found = pool(values, (27, 27), (14, 14))
    assert found.dtype == dtype
    assert relative(found, pool(values.double(), (27, 27), (14, 14))) < bound


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pooling_weights_lose_nothing(dtype):
    """Multiples of 1/28 are not exact in bfloat16, yet a constant is pooled to itself, bit for bit."""
    one = torch.ones(1, 729, 2, dtype=dtype)
    assert torch.equal(pool(one, (27, 27), (14, 14)), one[:, :196].unflatten(1, (14, 14)))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("grid", GRIDS)
def test_tokens_and_gradients_are_those_of_projecting_every_patch(grid, stride):
    connector, features = make(grid, stride)
    features.requires_grad_()
    inputs = (features, *connector.parameters())
    found, expected = connector(features), plain(connector, features)
    assert found.shape == (5 * connector.tokens_per_support, 10)
    assert torch.allclose(found, expected, atol=1e-12)
    weights = torch.randn_like(found)
    ours = torch.autograd.grad((found * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    assert all(torch.allclose(a, b, atol=1e-11) for a, b in zip(ours, theirs, strict=True))


def test_half_precision_is_as_good_as_it_was():
    torch.manual_seed(0)
    connector = Connector(64, 128, (27, 27), 2).bfloat16()
    features = torch.randn(2, 729, 64).bfloat16()
    with torch.no_grad():
        found, before = connector(features), plain(connector, features)
        expected = plain(connector.double(), features.double())
    assert found.dtype == torch.bfloat16
    assert relative(found, expected) < 1.5 * relative(before, expected) < 1e-2


def test_chunks_and_the_place_of_the_activation_change_nothing(monkeypatch):
    connector, features = make((5, 8), 2)
    recorded = connector(features).detach(), connector.projector(features).mean(1).detach()
    before = features.clone()
    monkeypatch.setattr(module, "FRAMES_AT_ONCE", 2)
    with torch.no_grad():
        assert torch.allclose(connector(features), recorded[0], atol=1e-12)
    assert torch.allclose(connector.frame_means(features), recorded[1], atol=1e-12)
    assert torch.equal(features, before)


class LargestResults(TorchDispatchMode):
    """A mode that records every operation whose result is a new tensor of at least `size` elements."""

    def __init__(self, size):
        super().__init__()
        self.size, self.names = size, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        large = isinstance(out, torch.Tensor) and out.numel() >= self.size
        if large and out.untyped_storage().data_ptr() not in given:
            self.names.append(func.__name__)
        return out


@pytest.mark.parametrize("name", ["frame_means", "forward"])
def test_a_chunk_has_one_activation_and_no_copy_of_it(monkeypatch, name):
    connector, features = make((5, 8), 2, torch.bfloat16)
    monkeypatch.setattr(module, "FRAMES_AT_ONCE", 2)
    with torch.no_grad(), LargestResults(2 * 40 * 10) as seen:
        getattr(connector, name)(features[:4])
    assert seen.names == ["addmm.default"] * 2

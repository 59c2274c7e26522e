"""Distances: values and gradients where points nearly coincide."""

import pytest
import torch
from common import relative

from aviot.methods.aviot.numerics import squared_distances


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-5])
def test_distances_keep_their_gradient_where_points_nearly_coincide(spread):
    g = torch.Generator().manual_seed(0)
    centre = torch.randn(7, 1, 32, generator=g)
    a = (centre + spread * torch.randn(7, 11, 32, generator=g)).requires_grad_()
    b = (centre + spread * torch.randn(7, 5, 32, generator=g)).requires_grad_()
    weight = torch.randn(7, 11, 5, generator=g)
    found = squared_distances(a, b)
    (found * weight).sum().backward()
    exact_a, exact_b = (t.detach().double().requires_grad_() for t in (a, b))
    exact = (exact_a[:, :, None] - exact_b[:, None]).square().sum(-1)
    (exact * weight).sum().backward()
    assert relative(found, exact) < 1e-6
    assert relative(a.grad, exact_a.grad) < 1e-5
    assert relative(b.grad, exact_b.grad) < 1e-5


def test_only_inputs_that_need_a_gradient_get_one():
    a, b = torch.randn(4, 3), torch.randn(2, 3).requires_grad_()
    squared_distances(a, b).sum().backward()
    assert a.grad is None
    assert torch.allclose(b.grad, 2 * (4 * b - a.sum(0)).detach(), atol=1e-5)

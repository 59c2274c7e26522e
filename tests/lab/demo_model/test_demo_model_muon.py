"""Matrices moved together move as torch's Muon moves them one by one."""

import torch

from aviot_lab.demo_model.optimizers import Muon, orthogonalize


def test_steps_are_those_of_torch():
    torch.manual_seed(0)
    shapes = [(16, 16), (8, 16), (8, 16), (40, 16), (16, 40)]
    starts = [torch.randn(shape) for shape in shapes]
    mine, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    ours = Muon(mine, lr=0.1, weight_decay=0.5)
    torchs = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for one, other in zip(mine, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        ours.step()
        torchs.step()
    for one, other, start in zip(mine, theirs, starts, strict=True):
        moved = (other - start).norm()
        assert (one - other).norm() < 0.01 * moved  # bfloat16, in another order


def test_what_has_no_gradient_stays():
    weight = torch.nn.Parameter(torch.ones(4, 4))
    Muon([weight], lr=1.0, weight_decay=0.5).step()
    assert (weight == 1).all()


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    found = torch.linalg.svdvals(orthogonalize(torch.randn(3, 20, 50)).float())
    assert 0.5 < found.min() < found.max() < 1.5

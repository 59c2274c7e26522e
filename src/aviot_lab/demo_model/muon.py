"""Muon for many matrices of few shapes: torch's own takes them one by one, in twenty launches each."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that drives singular values towards one
ROUNDS = 5
LENGTH = 0.2  # root mean square of a step at a rate of one, like AdamW's


class Muon(Optimizer):
    """Steps along the momentum with all its singular values made nearly one (Nesterov's momentum, decoupled decay).

    The same as `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` but for the order of its roundings.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[tuple(sorted(weight.shape))].append(weight)
            for weights in alike.values():
                self._move(weights, group["lr"], group["weight_decay"])

    def _move(self, weights: list[Tensor], lr: float, decay: float) -> None:
        for weight in weights:
            if "momentum_buffer" not in self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        wide = torch.stack([step if step.shape[0] <= step.shape[1] else step.T for step in ahead])
        length = LENGTH * lr * max(wide.shape[1:]) ** 0.5
        steps = [
            step if weight.shape[0] <= weight.shape[1] else step.T
            for weight, step in zip(weights, even(wide).to(weights[0].dtype).mul_(length), strict=True)
        ]
        torch._foreach_mul_(weights, 1 - lr * decay)
        torch._foreach_sub_(weights, steps)


def even(matrices: Float[Tensor, "B n m"]) -> Float[Tensor, "B n m"]:
    """Matrices with the same singular vectors and singular values near one, in bfloat16."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x

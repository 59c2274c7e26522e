"""Optimizers: Muon for the matrices of the decoder's layers, AdamW for everything else.

Muon is batched over matrices of the same shape: torch's own steps them one by one, in twenty kernel launches each.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from aviot_lab.demo_model.training_model import TrainingModel

DECAY = 0.01
MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that moves singular values towards one
ITERATIONS = 5
UPDATE_RMS = 0.2  # root mean square of an update at a learning rate of one, like AdamW's


class Muon(Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay.

    The same as `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` up to the order of roundings.
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[tuple(sorted(weight.shape))].append(weight)
            for weights in by_shape.values():
                self._update(weights, group["lr"], group["weight_decay"])

    def _update(self, weights: list[Tensor], lr: float, decay: float) -> None:
        for weight in weights:
            if "momentum_buffer" not in self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        wide = torch.stack([step if step.shape[0] <= step.shape[1] else step.T for step in ahead])
        scale = UPDATE_RMS * lr * max(wide.shape[1:]) ** 0.5
        steps = [
            step if weight.shape[0] <= weight.shape[1] else step.T
            for weight, step in zip(weights, orthogonalize(wide).to(weights[0].dtype).mul_(scale), strict=True)
        ]
        torch._foreach_mul_(weights, 1 - lr * decay)
        torch._foreach_sub_(weights, steps)


def orthogonalize(matrices: Float[Tensor, "B n m"]) -> Float[Tensor, "B n m"]:
    """Return matrices with the same singular vectors and singular values near one, in bfloat16 (Newton-Schulz)."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def optimizers_of(model: TrainingModel) -> tuple[Optimizer, ...]:
    """Return both optimizers, for one learning rate: Muon's updates are scaled to those of AdamW."""
    layers = model.family.decoder_layers
    matrices = [weight for layer in layers for weight in layer.parameters() if weight.ndim == 2]
    taken = {id(weight) for weight in matrices}
    rest: list[nn.Parameter] = [weight for weight in model.parameters() if id(weight) not in taken]
    return (
        Muon(matrices, weight_decay=DECAY),
        AdamW(rest, betas=(0.9, 0.98), weight_decay=DECAY, fused=rest[0].is_cuda),
    )

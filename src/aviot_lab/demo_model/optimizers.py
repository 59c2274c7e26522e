"""What moves the weights: Muon for the matrices of the decoder's layers, AdamW for everything else."""

from torch import nn
from torch.optim import AdamW, Optimizer

from aviot_lab.demo_model.muon import Muon
from aviot_lab.demo_model.pupil import Pupil

DECAY = 0.01


def optimizers_of(pupil: Pupil) -> tuple[Optimizer, ...]:
    """Both, for one learning rate: Muon's steps are made as long as AdamW's."""
    layers = pupil.model.model.language_model.layers
    matrices = [weight for weight in layers.parameters() if weight.ndim == 2]
    taken = {id(weight) for weight in matrices}
    rest: list[nn.Parameter] = [weight for weight in pupil.parameters() if id(weight) not in taken]
    return (
        Muon(matrices, weight_decay=DECAY),
        AdamW(rest, betas=(0.9, 0.98), weight_decay=DECAY, fused=rest[0].is_cuda),
    )

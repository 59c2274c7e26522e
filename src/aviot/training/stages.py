"""Which weights a stage trains."""

from torch import nn

from aviot.training.config import Stage

ENCODER = "model.vision_tower."
COMPRESSOR = ("model.compressor.", "model.position.", "model.question_projection.")
DECODER = ("model.language_model.", "lm_head.")


def is_trained(name: str, stage: Stage, *, adapters: bool = False) -> bool:
    """Whether a stage trains the weight of this name.

    "joint" is the paper's: language model, projector with the row separator, position and region projections, question
    projection, metric and gate. With adapters the decoder's own weights stay and their low-rank companions are trained.
    """
    if stage == "compressor":
        return name.startswith(COMPRESSOR)
    if adapters and name.startswith(DECODER):
        return ".lora_" in name
    return not name.startswith(ENCODER)


def choose_weights(model: nn.Module, stage: Stage, *, adapters: bool = False) -> None:
    """Freeze every weight that the stage does not train."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(is_trained(name, stage, adapters=adapters))

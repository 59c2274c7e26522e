"""Whether a checkpoint can be the paper's model, as far as a configuration tells."""

from dataclasses import dataclass
from pathlib import Path

from aviot.backbones.llava_video.checkpoint import read_source

# The paper's backbone and its table of the final configuration.
_TEXT = {"hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944}
_VISION = {"hidden_size": 1152, "image_size": 384, "patch_size": 14}
_COMPRESSOR = {"cost_dim": 256}


@dataclass(frozen=True)
class Model:
    """What figures are of: whether it may be the paper's model, and the sentence that stands over every table."""

    may_be_the_papers: bool
    sentence: str


def about_model(folder: Path) -> Model:
    """Compare a checkpoint's sizes with the paper's."""
    config = read_source(folder).config
    parts = (
        ("decoder", config.text_config, _TEXT),
        ("encoder", config.vision_config, _VISION),
        ("compressor", config.compressor, _COMPRESSOR),
    )
    unlike = [
        f"{name} {field} {getattr(part, field)} instead of {value}"
        for name, part, wanted in parts
        for field, value in wanted.items()
        if getattr(part, field) != value
    ]
    if unlike:
        return Model(
            False,
            f"This model is not the paper's ({', '.join(unlike)}): its figures are no measure of this one.",
        )
    return Model(
        True,
        "This model has the paper's sizes; whether its weights are the paper's is not known here. Their hashes are in "
        "each run's manifest.json.",
    )

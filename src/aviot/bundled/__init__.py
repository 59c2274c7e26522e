"""The bundled demo model: its directory, how to recognise it, and the videos that it knows."""

import filecmp
from pathlib import Path

FOLDER = Path(__file__).with_name("weights")
NAME = "bundled demo model"
KNOWS = f"The {NAME} knows its own world of drawn shapes alone"
FOREIGN = f"{KNOWS}: what it says about this video means nothing."


class NoDemoModelError(ValueError):
    """Raised if this copy of the package lacks the bundled demo model."""


def embedded_model() -> Path:
    """Return the directory of the bundled demo model; raise NoDemoModelError if it is not there."""
    if not (FOLDER / "config.json").is_file():
        raise NoDemoModelError("this copy of the package has no bundled demo model; name a checkpoint")
    return FOLDER


WORLD_MARK = "Drawn by AVIOT's procedural world"
"""Beginning of the comment tag of every video file that was drawn in the bundled model's world."""


def is_drawn(comment: str) -> bool:
    """Return whether a video's comment tag says that it shows the model's own world; remuxed copies keep the tag."""
    return comment.startswith(WORLD_MARK)


def is_embedded(folder: Path) -> bool:
    """Return whether a checkpoint folder is the bundled model or a copy of it.

    The weights are compared byte for byte, which takes milliseconds for 14 MB and nothing for files of another size. A
    mark in the configuration would be inherited by every model that is fine-tuned from this one.
    """
    from aviot.backbones.checkpoints.shards import SINGLE  # imports torch

    weights, bundled = folder / SINGLE, FOLDER / SINGLE
    return weights.is_file() and bundled.is_file() and filecmp.cmp(weights, bundled, shallow=False)

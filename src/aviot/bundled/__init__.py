"""The bundled demo model: where its folder is, how to recognise it, and what it can answer about."""

import filecmp
from pathlib import Path

FOLDER = Path(__file__).with_name("weights")
NAME = "bundled demo model"
KNOWS = f"The {NAME} knows its own world of drawn shapes alone"
FOREIGN = f"{KNOWS}: what it says about this video means nothing."


def embedded_model() -> Path:
    """Return the directory of the bundled demo model; a copy of the package may lack it."""
    if not (FOLDER / "config.json").is_file():
        raise ValueError("this copy of the package has no bundled demo model; name a checkpoint with --model")
    return FOLDER


WORLD_MARK = "Drawn by AVIOT's procedural world"
"""Beginning of the comment tag of every video file that was drawn in the bundled model's world."""


def is_drawn(comment: str) -> bool:
    """Return whether a video's comment tag says that it shows the model's own world; copies keep the tag."""
    return comment.startswith(WORLD_MARK)


def is_embedded(folder: Path) -> bool:
    """Return whether a checkpoint folder is the bundled model or a copy of it.

    A copy has the same weights, byte for byte: files of another size are told apart without being read, and 14 MB take
    milliseconds. A mark in the configuration would also be inherited by every model that is fine-tuned from this one.
    """
    from aviot.backbones.checkpoints.shards import SINGLE  # imports torch

    weights, bundled = folder / SINGLE, FOLDER / SINGLE
    return weights.is_file() and bundled.is_file() and filecmp.cmp(weights, bundled, shallow=False)

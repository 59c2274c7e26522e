"""Where the small model lies in the package."""

from pathlib import Path

FOLDER = Path(__file__).with_name("weights")


def embedded_model() -> Path:
    """The folder of the small model; a copy of the package may come without it."""
    if not (FOLDER / "config.json").is_file():
        raise ValueError("no small model comes with this copy of the package; name a checkpoint with --model")
    return FOLDER

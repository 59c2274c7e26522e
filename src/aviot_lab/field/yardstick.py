"""The yardstick's weights beside this code, if this copy of the package has them."""

from pathlib import Path

FOLDER = Path(__file__).with_name("weights")


def yardstick_folder() -> Path | None:
    """Return the checkpoint folder of the yardstick; None if it is not there."""
    return FOLDER if (FOLDER / "config.json").is_file() else None

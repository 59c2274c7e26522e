"""How a checkpoint's videos are read, known before torch and transformers are imported.

What is read here saves time and decides nothing: once the model is loaded, its own processor says how its videos are
read, and a video that was read otherwise is read again.
"""

import json
from pathlib import Path
from typing import Any

from aviot.video.frames import Scaling

LARGEST_SETTINGS = 2**16  # bytes; processor_config.json has about a hundred
LARGEST_SIDE = 1024  # of the square that frames are scaled to
MOST_FRAMES = 4096


def reading_ahead(folder: Path) -> dict[str, Any] | None:
    """Return the arguments of `read_video` for a checkpoint of our layout; None if they cannot be told so early."""
    path = folder / "processor_config.json"
    try:
        if path.stat().st_size > LARGEST_SETTINGS:
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        side, fps, most = (stored[name] for name in ("image_size", "fps", "max_frames"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    whole = type(side) is int and type(most) is int and 0 < side <= LARGEST_SIDE and 0 < most <= MOST_FRAMES
    if not whole or not isinstance(fps, int | float):
        return None
    return {"fps": fps, "max_frames": most, "transform": Scaling(side)}

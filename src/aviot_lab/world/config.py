"""Everything about the world that can be chosen, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass

from aviot.utils.values import as_tuple, as_whole, counts, require_positive, require_whole
from aviot_lab.world.families import FAMILIES

MIN_FRAMES = 16  # four events of two frames each, and room between them
GRID = 27  # patches along a side of the encoder's grid


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """A world: its seed, its pictures, and what happens in it.

    `size` is the side of a frame in pixels: 108 is four a patch of a 27 by 27 grid, the fewest at which stripes and
    dots of a small object can still be told apart, and what costs least to render and to encode. `frames` are the
    lengths that scenes are drawn from, at `fps` a second: two, so that sampling a written file at two a second gives
    every frame back. `families` are those asked about; a scene tells up to `plots` stories of different ones, beside up
    to `distractors` objects that nobody asks about. `noise` is the largest deviation of the sensor's noise in levels of
    255.
    """

    seed: int = 0
    size: int = 4 * GRID
    frames: Sequence[int] = (64,)
    fps: float = 2.0
    families: Sequence[str] = tuple(FAMILIES)
    plots: int = 3
    distractors: int = 2
    noise: float = 8.0

    def __post_init__(self) -> None:
        require_whole(self, "size", "plots")
        require_positive(self, "fps")
        for name, value in {"seed": self.seed, "distractors": self.distractors}.items():
            whole = as_whole(value)
            if whole is None or not 0 <= whole < 2**63:
                raise ValueError(f"{name} must be a whole number from 0 to 2**63 - 1, got {value!r}")
            object.__setattr__(self, name, whole)
        if not 0 <= self.noise <= 64:
            raise ValueError(f"noise must lie in [0, 64] levels, got {self.noise!r}")
        if self.size < 2 * GRID or self.size % 2:
            raise ValueError(
                f"size must be even and at least {2 * GRID} pixels, got {self.size}; the default is {4 * GRID}"
            )
        object.__setattr__(self, "frames", tuple(check_frames(count) for count in counts("frames", self.frames)))
        object.__setattr__(self, "families", as_tuple("families", self.families))
        unknown = [family for family in self.families if family not in FAMILIES]
        if not self.frames:
            raise ValueError(f"frames must have at least one number of frames, got {self.frames!r}")
        if unknown or not self.families:
            raise ValueError(f"families must be some of {', '.join(FAMILIES)}, got {self.families!r}")


def check_frames(count: int) -> int:
    """Refuse a video too short for what happens in it."""
    if count < MIN_FRAMES:
        raise ValueError(f"a scene must have at least {MIN_FRAMES} frames, or events run into each other; got {count}")
    return count

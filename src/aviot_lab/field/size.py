"""Sizes of a field experiment, and its settings: every method of the registry at every budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aviot import methods
from aviot.budget import Budget
from aviot.methods.registry import UNCOMPRESSED
from aviot_lab.reproduce.size import FEWEST_FULL, MOST

KEEPS = (0.5, 0.25, 0.15, 0.1, 0.05)  # shares of the tokens that may enter the decoder
MEAN_OF = (0.25, 0.15, 0.1)  # shares over which methods are compared in the mean
REFERENCES = ("aviot-free", "random-tokens")  # the default reference is the first of these that is registered


@dataclass(frozen=True, kw_only=True)
class FieldSize:
    """Questions, frames and budgets of a run."""

    questions: int  # at least; scenes are taken whole
    frames: int
    videos: int  # per batch
    keeps: tuple[float, ...] = KEEPS


SIZES: dict[str, FieldSize] = {
    "full": FieldSize(questions=FEWEST_FULL, frames=64, videos=8),
    "small": FieldSize(questions=8, frames=16, videos=2),
}


def size_named(name: str, questions: int | None, frames: int | None = None) -> FieldSize:
    """Return the size of that name, with another number of questions or frames if one is given."""
    if name not in SIZES:
        raise ValueError(f"setting must be one of {', '.join(SIZES)}, got {name!r}")
    size = SIZES[name]
    least = FEWEST_FULL if name == "full" else 1
    if questions is not None and not least <= questions <= MOST:
        raise ValueError(f"questions must be {least} to {MOST} in the {name} setting, got {questions}")
    return replace(size, questions=questions or size.questions, frames=frames or size.frames)


@dataclass(frozen=True)
class FieldSetting:
    """One method under one budget; without a share to keep, the uncompressed video."""

    method: str
    keep: float | None = None

    @property
    def key(self) -> str:
        """Name of the setting in files."""
        return "uncompressed" if self.keep is None else f"{self.method} {self.keep:g}"

    @property
    def budget(self) -> Budget:
        """The share as a budget."""
        return Budget(keep=1.0 if self.keep is None else self.keep)


def compressing_methods() -> tuple[str, ...]:
    """Return the names of all methods that reduce the number of tokens."""
    return tuple(name for name in methods.names() if name != UNCOMPRESSED and methods.get(name).compresses)


def settings_of(size: FieldSize, names: Sequence[str]) -> tuple[FieldSetting, ...]:
    """Return the uncompressed video, then every method at every share."""
    every = (FieldSetting(name, keep) for name in names for keep in size.keeps)
    return (FieldSetting(UNCOMPRESSED), *every)


def chosen_reference(name: str | None, names: Sequence[str]) -> str:
    """Return the method that all others are compared with; raise ValueError if there is none of that name."""
    if name is None:
        return next(one for one in (*REFERENCES, *names) if one in names)
    if name not in names:
        raise ValueError(f"reference must be one of {', '.join(names)}, got {name!r}")
    return name

"""All targets, by name."""

import importlib

from fuzz import planted
from fuzz.target import Target

SHARES = {"videos": 8, "configs": 3, "checkpoints": 3, "items": 4, "journals": 2, "requests": 1, "judges": 2}
"""How many of each round's cases are of each target."""


def load_target(name: str) -> Target:
    """Import a target's module, which has the target's name; `planted-BUG` is one with that bug."""
    if name.startswith(planted.PREFIX):
        return planted.target(name.removeprefix(planted.PREFIX))
    return importlib.import_module(f"fuzz.{name}").TARGET


def is_target(name: str) -> bool:
    """Return whether there is such a target."""
    return name in SHARES or name.removeprefix(planted.PREFIX) in planted.BUGS

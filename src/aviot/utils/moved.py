"""Modules that have moved, importable under their old names with a deprecation warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

MOVED = {
    "aviot.compressor": "aviot.methods.aviot",
    "aviot.deadline": "aviot.utils.deadline",
    "aviot.deferred": "aviot.utils.lazy_names",
    "aviot.files": "aviot.utils.files",
    "aviot.journal": "aviot.utils.journal",
    "aviot.launcher": "aviot.utils.launcher",
    "aviot.machine": "aviot.utils.machine",
    "aviot.printing": "aviot.utils.printing",
    "aviot.reproduce": "aviot_lab.reproduce",
    "aviot.scatter": "aviot.utils.splitmix64",
    "aviot.sending": "aviot.utils.to_device",
    "aviot.small": "aviot_lab.demo_model",
    "aviot.small.embedded": "aviot.bundled",
    "aviot.synthetic": "aviot_lab.world",
    "aviot.training.adapters": "aviot.training.model_setup",
    "aviot.training.arguments": "aviot.training.run",
    "aviot.training.ending": "aviot.training.shutdown",
    "aviot.training.engine": "aviot.training.config_files",
    "aviot.training.held_out": "aviot.training.loss",
    "aviot.training.interruption": "aviot.training.shutdown",
    "aviot.training.ledger": "aviot.training.manifest",
    "aviot.training.meters": "aviot.training.progress",
    "aviot.training.parts": "aviot.training.inspection",
    "aviot.training.reading": "aviot.training.config_files",
    "aviot.training.record": "aviot.training.identity",
    "aviot.training.reporting": "aviot.training.config",
    "aviot.training.sharding": "aviot.training.distributed",
    "aviot.training.source": "aviot.training.datasets",
    "aviot.training.stages": "aviot.training.model_setup",
    "aviot.training.start": "aviot.training.model_setup",
    "aviot.training.together": "aviot.training.distributed",
    "aviot.values": "aviot.utils.values",
}
"""Old and new names of modules and packages; modules inside a package move with it."""


def new_name(name: str) -> str | None:
    """Return where a module has moved to, or None; the longest entry of the table decides."""
    for old in sorted(MOVED, key=len, reverse=True):
        if name == old or name.startswith(f"{old}."):
            return MOVED[old] + name[len(old) :]
    return None


class MovedModules(MetaPathFinder, Loader):
    """Imports a moved module from its new place, so that both names mean the same module."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a specification for old names only."""
        return None if new_name(fullname) is None else spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module from its new place."""
        moved_to = new_name(spec.name) or spec.name
        warnings.warn(f"{spec.name} has moved to {moved_to}", DeprecationWarning, stacklevel=_importing_frame())
        module = import_module(moved_to)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own specification back, which the import system has replaced."""
        assert module.__spec__ is not None  # set by the import system
        module.__spec__ = self._specs.pop(module.__spec__.name)


def install() -> None:
    """Make old names importable; a second call does nothing."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())


def _importing_frame() -> int:
    """Return the stack level of the import statement: the first frame outside of the import system."""
    level = 2
    while sys._getframe(level).f_code.co_filename.startswith("<frozen importlib"):
        level += 1
    return level

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
    "aviot.evaluation.answers": "aviot.evaluation.options",
    "aviot.evaluation.benchmarks.folder": "aviot.evaluation.benchmarks.benchmark",
    "aviot.evaluation.benchmarks.ten": "aviot.evaluation.benchmarks.definitions",
    "aviot.evaluation.errors": "aviot.evaluation.fields",
    "aviot.evaluation.exact": "aviot.evaluation.text",
    "aviot.evaluation.export": "aviot.evaluation.report",
    "aviot.evaluation.forms": "aviot.evaluation.schema",
    "aviot.evaluation.grouping": "aviot.evaluation.measures",
    "aviot.evaluation.judging": "aviot.evaluation.judge",
    "aviot.evaluation.keys": "aviot.evaluation.fields",
    "aviot.evaluation.plan": "aviot.evaluation.batching",
    "aviot.evaluation.prompts": "aviot.evaluation.item",
    "aviot.evaluation.replies.letters": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.mention": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.numbers": "aviot.evaluation.replies.option_texts",
    "aviot.evaluation.replies.places": "aviot.evaluation.replies.references",
    "aviot.evaluation.replies.scores": "aviot.evaluation.replies.verdicts",
    "aviot.evaluation.replies.small_words": "aviot.evaluation.replies.common_words",
    "aviot.evaluation.row_checks": "aviot.evaluation.results",
    "aviot.evaluation.rows": "aviot.evaluation.results",
    "aviot.evaluation.scoring": "aviot.evaluation.results",
    "aviot.evaluation.span": "aviot.evaluation.lmms.requests",
    "aviot.evaluation.suite.files": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.markdown": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.model": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.plots": "aviot.evaluation.suite.report",
    "aviot.evaluation.suite.reference": "aviot.evaluation.suite.comparison",
    "aviot.evaluation.tables": "aviot.evaluation.reading",
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

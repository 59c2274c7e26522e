"""Packages whose public names are imported on first use (PEP 562), so that `aviot --help` never waits for torch."""

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aviot.utils.moved import RENAMED, renamed


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's `__getattr__`, `__dir__` and `__all__`, read from the `__init__.pyi` beside its file.

    The stub holds the ordinary `from module import name` lines, so type checkers and this function read the same list.
    Submodules are attributes too, as if they had been imported.
    """
    homes = _imported_names(Path(file).with_suffix(".pyi"))

    def attribute(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in RENAMED.get(package, {}):
            return renamed(package)(name)
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names = sorted(homes)
    return attribute, lambda: names, names


def _imported_names(stub: Path) -> dict[str, str]:
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(line.module) for line in lines for alias in line.names}

"""The laboratory uses public names of `aviot` only."""

import ast
from pathlib import Path

import aviot_lab

ROOT = Path(aviot_lab.__file__).parent


def private_names(source):
    """Return the names of `aviot` with a leading underscore that a module imports or reads off an imported module."""
    tree, imported, found = ast.parse(source), set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aviot":
            names = [alias.name for alias in node.names]
            found += [f"{node.module}.{name}" for name in names if _is_private(f"{node.module}.{name}")]
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "aviot":
                    found += [alias.name] if _is_private(alias.name) else []
                    imported.add(alias.asname or "aviot")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            base = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in imported:
                found.append(ast.unparse(node))
    return found


def _is_private(name):
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def test_private_names_are_found():
    assert private_names("from aviot.utils._files import x") == ["aviot.utils._files.x"]
    assert private_names("from aviot.utils.files import _x as y") == ["aviot.utils.files._x"]
    assert private_names("from aviot.utils import files\nfiles._x(1)\nself._y") == ["files._x"]
    assert private_names("import aviot.utils.files as files\nfiles.Lock._z") == ["files.Lock._z"]
    assert private_names("import numpy as np\nnp._x\nfrom aviot.utils.files import __doc__") == []


def test_the_laboratory_uses_public_names_only():
    modules = list(ROOT.rglob("*.py"))
    assert len(modules) > 30
    assert {str(module): names for module in modules if (names := private_names(module.read_text()))} == {}

"""Every kernel operation says where its plain-torch reference is and which test compares them."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

from aviot.methods.aviot import kernels

ROOT = Path(__file__).parents[2]
OPERATIONS = [module.name for module in pkgutil.iter_modules(kernels.__path__) if module.ispkg]


def test_there_are_operations():
    assert len(OPERATIONS) == 15


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_names_its_reference_and_its_test(operation):
    package = import_module(f"{kernels.__name__}.{operation}")
    assert (Path(package.__path__[0]) / "forward.py").exists()
    text = package.__doc__.split("Plain torch:")[1]
    reference, compared = text.split("Compared by")
    names = re.findall(r"`((?:aviot|torch)\.[\w.]+)`", reference)
    assert names
    for name in names:
        assert pkgutil.resolve_name(name) is not None
    (page, *others), tests = re.findall(r"`(tests/[\w/]+\.py)`", compared), re.findall(r"`(test_\w+)`", compared)
    source = "".join((ROOT / path).read_text() for path in (page, *others))
    assert tests
    for test in tests:
        assert f"def {test}(" in source

"""Old names of modules that have moved."""

import importlib
import sys

import pytest

from aviot.utils.moved import MOVED, RENAMED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_new_module_with_a_warning(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__spec__.name == module.__name__ == MOVED[old]


@pytest.mark.parametrize(("module", "old"), [(module, old) for module, names in RENAMED.items() for old in names])
def test_an_old_name_of_an_export_is_the_new_one_with_a_warning(module, old):
    home, new = importlib.import_module(module), RENAMED[module][old]
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is called {new} now"):
        found = getattr(home, old)
    assert found is getattr(home, new)
    assert old not in dir(home)
    with pytest.raises(AttributeError, match="has no attribute 'Neither'"):
        home.Neither  # noqa: B018

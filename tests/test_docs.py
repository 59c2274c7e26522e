"""The documents say what is there."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs" / "method.md").read_text()
NAMES = sorted(set(re.findall(r"`((?:ot|compressor|models|accounting)\.[\w.]+)`", METHOD)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_method_exists(name):
    parts = name.split(".")
    cut = next(i for i, part in enumerate(parts) if i and (parts[0] == "accounting" or i == 2))
    module = importlib.import_module(".".join(["aviot", *parts[:cut]]))
    reduce(getattr, parts[cut:], module)


def test_every_equation_of_the_paper_has_a_row():
    assert len(re.findall(r"^\| \d+ \| `eq:", METHOD, re.M)) == 16
    assert len(re.findall(r"^\| S\d+ \| `eq:supp_", METHOD, re.M)) == 37


def test_readme_examples_run():
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S):
        exec(compile(block, "README.md", "exec"), {})


def test_readme_says_what_its_example_gives():
    text = (ROOT / "README.md").read_text()
    names = {}
    exec(compile(re.search(r"```python\n(.*?)```", text, re.S).group(1), "README.md", "exec"), names)
    assert f"# {names['out'].path}: stages" in text
    assert f"# {list(names['out'].features.shape)}" in text
    assert f"# {list(names['p'].coefficients.shape)}: output" in text


def test_readme_tree_names_every_file():
    tree = (ROOT / "README.md").read_text().split("## Files")[1]
    for file in (ROOT / "src" / "aviot").rglob("*.py"):
        if file.name != "__init__.py":
            assert str(file.relative_to(ROOT / "src" / "aviot")) in tree, file

"""What is installed: pinned with hashes in CI, bounded where private parts of other packages are used."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"([\w.-]+)==([\w.]+)(?: ; [^\\]+?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
BUILD_TOOLS = {"editables", "hatchling", "setuptools", "trove-classifiers"}


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def locked(name):
    text = "".join(line for line in (ROOT / name).read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert PINNED.sub("", text) == "", "a line that pins nothing"
    return {package: pin for package, pin, _ in PINNED.findall(text)}


def test_every_pin_but_torchs_has_hashes():
    build, rest = locked("requirements-build.txt"), locked("requirements-ci.txt")
    wanted = pins("constraints.txt")
    assert wanted.pop("torch")
    assert build | rest == wanted, "run `make lock`"
    assert build.keys() >= BUILD_TOOLS
    assert not build.keys() & rest.keys()


def bounded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [Requirement(line) for line in (*project["dependencies"], *extras)]
    return {one.name: one.specifier for one in found if any(each.operator in ("<", "==") for each in one.specifier)}


@pytest.mark.parametrize("name", ["accelerate", "av", "deepspeed", "lmms-eval", "peft", "transformers"])
def test_packages_whose_private_parts_are_used_have_upper_bounds(name):
    constraints = pins("constraints-lmms-eval.txt" if name == "lmms-eval" else "constraints.txt")
    assert bounded()[name].contains(constraints[name])


def test_private_methods_that_the_trainer_overrides_are_there():
    """Lifting transformers' bound is not enough where a method that is overridden has gone."""
    from transformers import Trainer

    tree = ast.parse((ROOT / "src" / "aviot" / "training" / "trainer.py").read_text())
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    on_super = {call.attr for call in calls if isinstance(call, ast.Attribute) and ast.unparse(call.value) == "super()"}
    used = {name for name in on_super if not name.startswith("__")} | {"_load_from_checkpoint", "_save_checkpoint"}
    assert {name for name in used if name.startswith("_")} >= {"_get_grad_norm", "_save_optimizer_and_scheduler"}
    assert all(hasattr(Trainer, name) for name in used)


def test_the_security_policy_says_what_is_safe_and_how_to_report():
    text = (ROOT / "SECURITY.md").read_text()
    for words in ("private security advisory", "trust_remote_code", "pickle", "download=True", "adapter"):
        assert words in text
    assert "http" not in text

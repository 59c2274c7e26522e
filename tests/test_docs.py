"""The documents say what is there."""

import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest
from typer.main import get_command

from aviot.cli import app
from aviot.commands.demo import SCENE
from aviot.demo import draw_scene

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs" / "method.md").read_text()
NAMES = sorted(set(re.findall(r"`((?:ot|methods|backbones|accounting)\.[\w.]+)`", METHOD)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_method_exists(name):
    assert pkgutil.resolve_name(f"aviot.{name}") is not None


def test_every_equation_of_the_paper_has_a_row():
    assert len(re.findall(r"^\| \d+ \| `eq:", METHOD, re.M)) == 16
    assert len(re.findall(r"^\| S\d+ \| `eq:supp_", METHOD, re.M)) == 37


EXAMPLES = ["README.md", "docs/answer.md", "docs/watch.md", "docs/compress.md", "docs/index.md", "docs/methods.md"]


def run_examples(page):
    """Run a page's Python blocks one after the other; returns the names that they leave."""
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks, page
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run(page):
    run_examples(page)


def test_the_tutorial_runs_after_the_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aviot-demo").mkdir()
    draw_scene(SCENE, tmp_path / "aviot-demo")
    names, text = run_examples("docs/tutorial.md"), (ROOT / "docs" / "tutorial.md").read_text()
    printed = capsys.readouterr().out
    for said in re.findall(r"print\(.*\)  # (top right.*|TokenMixture.*|\(64.*)$", text, re.M):
        assert said in printed
    assert f"# {list(names['provenance'].frames().shape)}: each support's" in text


@pytest.mark.parametrize("page", ["README.md", "docs/compress.md"])
def test_examples_say_what_they_give(page):
    names, text = run_examples(page), (ROOT / page).read_text()
    assert f"# {list(names['out'].features.shape)}" in text
    assert f"# {list(names['p'].coefficients.shape)}: output" in text
    if "out.path" in text:
        assert f"# {names['out'].path}: stages" in text


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 155


def test_contributors_find_every_package():
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("## The code")[1]
    for package in (ROOT / "src").glob("*/*/__init__.py"):
        assert f"  {package.parent.name}/ " in tree, package


def test_readme_accuracies_are_those_of_the_report():
    lines = json.loads((ROOT / "docs" / "reproduction" / "report.json").read_text())["figures"]["controlled"]["lines"]
    measured = {line["row"]: f"{100 * line['accuracy']:.1f}" for line in lines}
    table = re.findall(r"^\| (?:ratio (\d+)|uncompressed) \|.*$", (ROOT / "README.md").read_text(), re.M)
    rows = [row for row in (ROOT / "README.md").read_text().splitlines() if re.match(r"\| (ratio|uncompressed) ", row)]
    assert table == ["", "2", "4", "10"]
    for ratio, row in zip(table, rows, strict=True):
        methods = [f"{name} r{ratio}" for name in ("aviot", "segment-mean", "uniform")] if ratio else ["uncompressed"]
        assert re.findall(r"([\d.]+) %", row) == [measured[method] for method in methods]
        tuned = f"segment-mean r{ratio} fine-tuned"
        assert not ratio or measured[tuned] in (ROOT / "README.md").read_text()


def test_every_public_name_has_a_reference_page():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    described = set(re.findall(r"^::: ([\w.]+)$", pages, re.M))
    for package in (
        "aviot",
        "aviot.methods",
        "aviot.methods.aviot",
        "aviot.data",
        "aviot.models",
        "aviot.streaming",
        "aviot.video",
    ):
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            place = getattr(value, "__module__", "")
            named = [full for full in described if full == f"{place}.{name}" or full.endswith(f".{name}")]
            assert named, f"{package}.{name} has no entry in docs/reference"
            assert any(_resolved(full) is value for full in named), f"{named} is not {package}.{name}"


def test_every_command_has_a_row_in_the_reference():
    rows = re.findall(r"^\| `aviot ([a-z]+)` \|", (ROOT / "docs" / "reference" / "commands.md").read_text(), re.M)
    assert sorted(rows) == sorted(get_command(app).commands)


def _resolved(full):
    module, _, name = full.rpartition(".")
    return getattr(importlib.import_module(module), name)

"""The example notebook runs from top to bottom; its own asserts say whether it is right."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "provenance.ipynb"


def test_the_notebook_runs(capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    names = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name} cell {number}", "exec"), names)
    pyplot.close("all")
    assert names["first"].budgets[0] != names["second"].budgets[0]  # the question did move something
    assert "temporal divergence" in capsys.readouterr().out
    assert all(cell["outputs"] == [] for cell in cells)

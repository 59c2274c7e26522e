"""The paper's accounting, digit for digit."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from aviot.accounting import Backbone, account
from aviot.cli import app


def test_the_papers_table():
    rows = account(Backbone(), 64, [2, 4, 10])
    assert [row.supports for row in rows] == [64, 32, 16, 7]
    assert [row.tokens for row in rows] == [13440, 6720, 3360, 1470]
    assert [f"{row.retention:.1%}" for row in rows] == ["100.0%", "50.0%", "25.0%", "10.9%"]
    assert [f"{row.prefill_operations / 1e12:.2f}" for row in rows] == ["106.69", "44.28", "19.87", "8.14"]
    assert [f"{row.saved:.1%}" for row in rows[1:]] == ["58.5%", "81.4%", "92.4%"]


def test_any_backbone():
    small = Backbone(layers=2, width=8, feed_forward=16, grid=(4, 6), pool_stride=1)
    assert small.tokens_per_support == 4 * 7
    assert small.prefill_operations(3) == 2 * (4 * 3 * 64 + 2 * 9 * 8 + 2 * 3 * 8 * 16)


@pytest.mark.parametrize("bad", [{"layers": 0}, {"width": -1}, {"pool_stride": 0}, {"grid": (0, 4)}])
def test_impossible_backbones(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Backbone(**bad)


def test_impossible_videos():
    with pytest.raises(ValueError, match="frames"):
        account(Backbone(), 0, [2])
    with pytest.raises(ValueError, match="ratio"):
        account(Backbone(), 64, [0.5])


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize("frames", ["64", "1000000"])
def test_the_table_fits_80_columns_and_no_cell_is_cut(columns, frames):
    """Whatever the terminal's width is, so in a pipe too."""
    done = CliRunner().invoke(app, ["account", "--frames", frames, "-r", "1.125", "-r", "20"], env={"COLUMNS": columns})
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    uncompressed, some, few = (line.split() for line in lines if "uncompressed" in line or "ratio" in line)
    assert (some[:2], few[:2]) == (["ratio", "1.125"], ["ratio", "20"])
    expected = account(Backbone(), int(frames), [1.125, 20])
    for cells, row in zip((uncompressed[1:], some[2:], few[2:]), expected, strict=True):
        operations = f"{row.prefill_operations / 1e12:,.2f}"
        assert cells == [f"{row.supports:,}", f"{row.tokens:,}", f"{row.retention:.1%}", operations, f"{row.saved:.1%}"]


def test_short_and_long_names_of_the_ratio():
    short, long = (CliRunner().invoke(app, ["account", name, "8", "--json"]) for name in ("-r", "--ratio"))
    assert [row["ratio"] for row in json.loads(short.stdout)] == [None, 8.0]
    assert short.stdout == long.stdout


def test_the_arithmetic_itself_imports_nothing_heavy():
    """Only the package around it may, until that is lazy."""
    code = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("accounting", sys.argv[1])
module = sys.modules["accounting"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert not {"torch", "numpy", "transformers"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code, sys.modules["aviot.accounting"].__file__], check=True, timeout=60)

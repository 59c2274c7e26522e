"""The progress display of a long run, in terminals of any width."""

from io import StringIO

import pytest
from rich.console import Console

from aviot.evaluation.progress import RunningScore, bar


@pytest.mark.parametrize("width", [60, 80, 200])
def test_counts_stay_where_the_line_is_short(width):
    score = RunningScore()
    for setting in ("uncompressed", "aviot r2", "uniform r2", "segment-mean r2"):
        score.add({"setting": setting, "correct": True})
    console = Console(width=width, file=StringIO(), force_terminal=True, color_system=None)
    progress = bar("sheets", console)
    progress.add_task(str(score).replace("[", r"\["), total=132, completed=30)
    console.print(progress.get_renderable())
    line = console.file.getvalue().rstrip("\n")
    assert "\n" not in line
    assert line.startswith("sheets ━")
    assert "30/132" in line
    assert "uncom" in line
    assert ("1 more" in line) == (width == 200)

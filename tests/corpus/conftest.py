import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))
from evaluation_sets import make_set, rows, run


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Videos and items about them."""
    folder = tmp_path_factory.mktemp("corpus")
    make_set(folder)
    return folder


@pytest.fixture(scope="session")
def evaluated(made):
    """The rows of `aviot evaluate` at ratio 4, by item."""
    run(made, made / "evaluated", ratios=(4.0,), methods=("aviot",))
    return {row["item"]: row for row in rows(made / "evaluated" / "results.jsonl")}

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tiny is used by the programs that tests start, too
from tiny import make_set, make_start


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A starting checkpoint and a training set, made once."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "set").mkdir()
    make_start(folder / "start")
    make_set(folder / "set")
    return folder

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the programs that tests start import tiny too
from tiny import config, make_set, make_start

from aviot.training.run import train


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return a folder with a checkpoint to start from and a training set, made once."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "set").mkdir()
    make_start(folder / "start")
    make_set(folder / "set")
    return folder


@pytest.fixture(scope="session")
def run(made):
    """Return the configuration and the last checkpoint of a finished run."""
    chosen = config(
        made, output=str(made / "plain"), logging={"report_to": ["tensorboard"]}, saving={"keep": 2, "every": 1}
    )
    return chosen, train(chosen)

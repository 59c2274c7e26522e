from pathlib import Path

import pytest
from asking import data_url, running, write_clip

from aviot import VideoLM

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.fixture(scope="session")
def lm():
    """Return a tiny model with an engine of its own for the session."""
    return VideoLM.from_pretrained(CHECKPOINT, device="cpu")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return a folder of short clips."""
    made = tmp_path_factory.mktemp("media")
    for number in range(4):
        write_clip(made / f"{number}.mp4", seed=number)
    return made


@pytest.fixture(scope="session")
def server(lm, folder):
    """Return a server that all tests share; each leaves it idle."""
    with running(lm, media_folder=folder) as made:
        yield made


@pytest.fixture(scope="session")
def clip(folder):
    """Return a video as a data address."""
    return data_url(folder / "0.mp4")

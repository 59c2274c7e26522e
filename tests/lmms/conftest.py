import pytest
from harness import make_letter_model, make_task


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """A task, its videos and a model, and the items of the task."""
    folder = tmp_path_factory.mktemp("lmms")
    make_letter_model(folder / "model")
    return folder, make_task(folder)

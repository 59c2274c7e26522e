import pytest
from evaluation_sets import make_set, run


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Videos and items about them."""
    folder = tmp_path_factory.mktemp("evaluation")
    make_set(folder)
    return folder


@pytest.fixture(scope="session")
def pairs(made):
    """An uninterrupted run with batches of two questions."""
    out = made / "pairs"
    run(made, out, batch=2)
    return out


@pytest.fixture(scope="session")
def whole(made):
    """An uninterrupted run and its summary."""
    out = made / "whole"
    return out, run(made, out)

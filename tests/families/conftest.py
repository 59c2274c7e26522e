import folders
import pytest


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """Return a family's checkpoint folder, written once."""
    made = {}

    def of(family):
        if family not in made:
            made[family] = folders.save(family, tmp_path_factory.mktemp("stored") / family)
        return made[family]

    return of

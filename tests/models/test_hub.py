"""Names that are not folders: nothing is sent over the network unless the caller asks for it."""

import pytest
from hostile import small

from aviot.backbones.checkpoints import folder
from aviot.backbones.checkpoints.shards import CheckpointError
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor

LOADED = [AviotConfig, AviotForConditionalGeneration, AviotProcessor]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Return a list of the requests to the hub, which answers each with a checkpoint."""
    names = []
    monkeypatch.chdir(tmp_path)

    def download(name, **options):
        names.append((name, options["local_files_only"]))
        return str(small(tmp_path))

    monkeypatch.setattr(folder, "snapshot_download", download)
    return names


@pytest.mark.parametrize("loaded", LOADED)
def test_a_mistyped_path_is_never_sent_to_the_hub(asked, tmp_path, loaded):
    with pytest.raises(CheckpointError, match=r"checkpoints/aviot-7b: no such folder here, .*pass download=True"):
        loaded.from_pretrained("checkpoints/aviot-7b")
    (tmp_path / "checkpoints").mkdir()
    for options in ({}, {"download": True}, {"local_files_only": True}):
        with pytest.raises(CheckpointError, match=r"no such folder, though checkpoints is a folder here"):
            loaded.from_pretrained("checkpoints/aviot-7b", **options)
    for name in ("aviot-7b", "a/b/c", "../a", "./a/b", "hub:a/b", tmp_path / "a", "a/b\n"):
        with pytest.raises(CheckpointError, match="no such folder"):
            loaded.from_pretrained(name, download=True)
    assert asked == []


@pytest.mark.parametrize("loaded", LOADED)
def test_a_name_is_fetched_when_asked_for(asked, loaded):
    assert loaded.from_pretrained("some/model", download=True) is not None
    assert asked == [("some/model", False)]


def test_the_hubs_cache_is_read_without_a_network(asked):
    AviotProcessor.from_pretrained("some/model", local_files_only=True)
    assert asked == [("some/model", True)]


def test_a_local_checkpoint_asks_nothing_of_a_network(asked, tmp_path, monkeypatch):
    folder = small(tmp_path)

    def refuse(*args, **options):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr("socket.socket.connect", refuse)
    for loaded in LOADED:
        loaded.from_pretrained(folder)
    assert asked == []

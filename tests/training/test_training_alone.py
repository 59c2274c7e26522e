"""Only one run writes into a folder, and a full disk ends it with its earlier checkpoints intact."""

import json
import os
import resource
import shutil
import socket

import pytest
from forked import run_forked
from tiny import config, settings
from transformers import TrainerCallback

from aviot.cli import app
from aviot.training import saving
from aviot.training.inspection import inspect_checkpoint
from aviot.training.resuming import find_start_point
from aviot.training.run import train
from aviot.utils.files import folder_lock


class StartOthers(TrainerCallback):
    """A callback that starts further runs in the same folder in the middle of a run, new and resumed ones."""

    def __init__(self, path):
        self.path, self.ended = path, []

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            for words in ((), ("--resume",), ("--resume=last-good",)):
                self.ended += run_forked(command, "train", "-c", self.path, *words)


def test_a_second_run_in_a_folder_is_refused(made, tmp_path):
    folder = tmp_path / "run"
    chosen = config(made, output=str(folder), optimization={"steps": 2}, saving={"every": 1})
    second = StartOthers(write(made, folder))
    train(chosen, callbacks=[second])
    for ended in second.ended:
        assert ended.returncode == 2
        printed = ended.stderr.replace("\n", "")
        assert f"another process is writing into {folder} (process {os.getpid()} on " in printed
        assert "; wait until it ends, or choose another output" in printed
    assert len(second.ended) == 3
    assert len(json.loads((folder / "run.json").read_text())) == 1
    assert [inspect_checkpoint(path).is_intact for path in saving.checkpoints(folder).values()] == [True] * 2


def write(made, folder):
    path = folder.parent / "config.yaml"
    path.write_text(json.dumps(settings(made, output=str(folder), saving={"every": 1})))
    return str(path)


def command(*words):
    app(list(words))


def test_an_error_on_rank_zero_ends_all_processes(made, tmp_path):
    """Rank 0 alone prints the error, and no rank waits for another."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    ranks = tuple(meeting | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2))
    (tmp_path / "run").mkdir()
    with folder_lock(tmp_path / "run", ""):
        first, second = run_forked(command, "train", "-c", write(made, tmp_path / "run"), environments=ranks)
    assert first.returncode == 2, first.stderr
    assert "another process is writing into" in first.stderr
    assert "Traceback" not in first.stderr + second.stderr
    assert "aviot:" not in second.stderr


def limited(size, *words):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    app(list(words))


@pytest.mark.parametrize("size", [300_000, 100_000])
def test_a_full_disk_leaves_the_earlier_checkpoint(run, made, tmp_path, size):
    """The larger limit fails in the optimizer's file, written by torch, the smaller one in safetensors' weights."""
    folder = shutil.copytree(run[1].parent, tmp_path / "run")
    shutil.rmtree(folder / "checkpoint-4")
    (ended,) = run_forked(limited, str(size), "train", "-c", write(made, folder), "--resume=last-good")
    assert ended.returncode == 2, ended.stderr
    assert f"{folder / 'checkpoint-4'} could not be written: a file was truncated, with " in ended.stderr
    assert "; free some space or make it writable, and resume" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(folder.glob(".*"))
    assert find_start_point(folder, resume=True).checkpoint == folder / "checkpoint-3"

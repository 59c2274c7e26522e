"""`aviot batch` with real workers of Ray, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from clips import encode
from evaluation_sets import rows, write_items
from typer.testing import CliRunner

from aviot.cli import app

pytest.importorskip("ray", reason="Ray is not installed")
START_SECONDS = 180


def workers_of(process):
    """The processes of Ray's actors below a process; those of its pool of idle ones are not among them."""
    try:
        return [one for one in psutil.Process(process.pid).children(recursive=True) if _is_worker(one)]
    except psutil.NoSuchProcess:
        return []


def _is_worker(process):
    try:
        return process.cmdline()[:1] != [] and process.cmdline()[0].startswith("ray::MapWorker")
    except psutil.Error:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds workers by their names")
def test_a_worker_is_killed_and_every_question_is_answered_once(made, evaluated, tmp_path):
    out = tmp_path / "answers.jsonl"
    words = [str(made / "items.jsonl"), "-o", str(out), "-m", str(made / "model"), "-r", "4", "--max-new-tokens", "3"]
    command = [sys.executable, "-m", "aviot", "batch", *words, "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    killed, deadline = 0, time.monotonic() + START_SECONDS
    while running.poll() is None and not killed and time.monotonic() < deadline:
        if out.is_file() and out.read_bytes().count(b"\n") >= 2:
            for worker in workers_of(running):
                os.kill(worker.pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.02)
    printed, said = running.communicate(timeout=START_SECONDS)
    assert running.returncode == 0, said
    assert killed == 1
    assert json.loads(printed)["answered"] == 10
    assert "2 failed, about 5 videos" in said
    found = {row["item"]: row for row in rows(out)}
    assert list(found) == list(range(12))
    assert {number: row.get("answer") for number, row in found.items()} == {
        number: row.get("prediction") for number, row in evaluated.items()
    }


def test_wrong_choices(made, tmp_path):
    words = ["batch", str(made / "items.jsonl"), "-o", str(tmp_path / "a.jsonl"), "-m", str(made / "model")]
    for more, said in (
        (["--retry"], "add --resume"),
        (["--resume"], "without --resume"),
        (["--ratio", "4", "--keep", "0.5"], "give --ratio or --keep"),
        (["--ratio", "4", "--budget", "auto"], "give one of --ratio, --keep and --budget"),
        (["--budget", "auto:quality=2"], "quality must be a probability"),
        (["--workers", "0"], "workers must be a whole number"),
        (["--method", "nothing"], "nothing"),
    ):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())


@pytest.mark.slow
def test_videos_can_be_read_at_their_keyframes(made, tmp_path):
    encode(tmp_path / "v.mp4", pictures=300, options={"g": "100", "bf": "3", "sc_threshold": "0"})
    questions = write_items(tmp_path / "questions.jsonl", [{"video": "v.mp4", "question": "What?"}])
    words = ["batch", str(questions), "-o", str(tmp_path / "a.jsonl"), "-m", str(made / "model"), "-r", "2"]
    words += ["--frames", "4", "--max-new-tokens", "2", "--device", "cpu", "--sampling"]
    done = CliRunner().invoke(app, [*words, "keyframes"])
    assert done.exit_code == 0, done.output
    (row,) = rows(tmp_path / "a.jsonl")
    assert row["frames"] == 3  # of 4 sampled times in 12 seconds with a keyframe every 4
    other = CliRunner().invoke(app, [*words, "times", "--resume"])
    assert other.exit_code == 2
    assert "sampling" in other.output

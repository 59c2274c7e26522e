"""Killed twice in the middle and resumed: the file of a run that nobody disturbed. Two processes at once: the same."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from evaluation_sets import command, environment, rows, run

from aviot.evaluation.rows import key_of


def kill_after(rows_written, made, out, *words):
    """Run the command until it has written so many rows and is killed in the middle of the next."""
    worker = [sys.executable, str(Path(__file__).with_name("killed_worker.py")), str(rows_written)]
    done = subprocess.run(
        [*worker, *command(made, out, *words)[3:]], env=environment(), capture_output=True, timeout=300
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_killed_twice_and_resumed(made, whole, tmp_path):
    out = tmp_path / "run"
    part = out / "parts" / "rows-0000.jsonl"
    kill_after(5, made, out)
    first = part.read_bytes()
    assert first.count(b"\n") == 5
    assert not first.endswith(b"\n")  # torn
    kill_after(11, made, out, "--resume")
    second = part.read_bytes()
    assert second.count(b"\n") == 16
    assert second.startswith(first[: first.rfind(b"\n") + 1])
    assert not (out / "results.jsonl").exists()
    summary = run(made, out, resume=True)
    keys = [key_of(row) for row in rows(part)]
    assert len(keys) == len(set(keys)) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()
    assert summary == whole[1]
    assert len(json.loads((out / "manifest.json").read_text())["starts"]) == 3


def test_two_processes_at_once(made, whole, tmp_path):
    out = tmp_path / "run"
    both = [
        subprocess.Popen(
            command(made, out, "--json"),
            env=environment(RANK=str(rank), WORLD_SIZE="2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    printed = [stdout for stdout, _ in said if stdout]
    assert len(printed) == 1, said
    assert json.loads(printed[0])["rows"] == 36
    parts = [{key_of(row) for row in rows(out / "parts" / f"rows-000{rank}.jsonl")} for rank in range(2)]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()

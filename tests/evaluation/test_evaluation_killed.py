"""Killed twice in the middle and resumed: the file of a run that nobody disturbed. Two processes at once: the same."""

import json
import signal
import subprocess
import time

from evaluation_sets import command, environment, rows, run

from aviot.evaluation.rows import key_of


def start(made, out, *words, **variables):
    return subprocess.Popen(
        command(made, out, *words),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_after(process, part, lines):
    """SIGKILL once there are so many rows on disk."""
    deadline = time.monotonic() + 120
    while not (part.is_file() and part.read_bytes().count(b"\n") >= lines):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    for stream in (process.stdout, process.stderr):
        stream.close()


def test_killed_twice_and_resumed(made, whole, tmp_path):
    out = tmp_path / "run"
    part = out / "parts" / "rows-0000.jsonl"
    kill_after(start(made, out), part, 3)
    between = part.read_bytes()
    assert 3 <= between.count(b"\n") < 36
    part.write_bytes(between + b'{"item": 7, "set')  # a line that was being written
    kill_after(start(made, out, "--resume"), part, between.count(b"\n") + 4)
    assert part.read_bytes().startswith(between)
    assert part.read_bytes().count(b"\n") < 36
    assert not (out / "results.jsonl").exists()
    summary = run(made, out, resume=True)
    keys = [key_of(row) for row in rows(part)]
    assert len(keys) == len(set(keys)) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()
    assert summary == whole[1]
    assert len(json.loads((out / "manifest.json").read_text())["starts"]) == 3


def test_two_processes_at_once(made, whole, tmp_path):
    out = tmp_path / "run"
    both = [start(made, out, "--json", RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    said = [process.communicate(timeout=180) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    printed = [stdout for stdout, _ in said if stdout]
    assert len(printed) == 1, said
    assert json.loads(printed[0])["rows"] == 36
    parts = [{key_of(row) for row in rows(out / "parts" / f"rows-000{rank}.jsonl")} for rank in range(2)]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()

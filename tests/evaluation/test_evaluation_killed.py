"""A run killed twice and resumed, or run by two processes, writes the same file as an undisturbed run."""

import json
import signal

from evaluation_sets import command, rows, run
from forked import run_forked
from killed_worker import aviot, aviot_killed

from aviot.evaluation.results import row_key


def kill_after(rows_written, made, out, *words):
    """Run the command until it has written so many rows and is killed in the middle of the next."""
    (done,) = run_forked(aviot_killed, str(rows_written), *command(made, out, *words))
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
    keys = [row_key(row) for row in rows(part)]
    assert len(keys) == len(set(keys)) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()
    assert summary == whole[1]
    assert len(json.loads((out / "manifest.json").read_text())["starts"]) == 3


def test_two_processes_at_once(made, whole, tmp_path):
    out = tmp_path / "run"
    environments = tuple({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2))
    both = run_forked(aviot, *command(made, out, "--json"), environments=environments)
    assert [process.returncode for process in both] == [0, 0], both
    printed = [process.stdout for process in both if process.stdout]
    assert len(printed) == 1, both
    assert json.loads(printed[0])["rows"] == 36
    parts = [{row_key(row) for row in rows(out / "parts" / f"rows-000{rank}.jsonl")} for rank in range(2)]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 36
    assert (out / "results.jsonl").read_bytes() == (whole[0] / "results.jsonl").read_bytes()

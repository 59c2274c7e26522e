"""aviot watch: answers as JSON lines, a prompt in a terminal, saved memories, and refusals before work starts."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clips import encode
from typer.testing import CliRunner

from aviot.cli import app
from aviot.commands.prompt import status_line
from aviot.commands.watch import seconds_of
from aviot.streaming import StreamStatus

MODEL = str(Path(__file__).parents[1] / "golden" / "checkpoint")
FAST = ["--speed", "inf", "--model", MODEL, "--max-new-tokens", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Twenty seconds at 5 frames per second."""
    return encode(tmp_path_factory.mktemp("watch") / "clip.mp4", pictures=100, rate=5)


def run(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)])


def said(result):
    return " ".join((result.output + result.stderr).split())


def test_answers_are_json_lines(video):
    result = run(video, *FAST, "-q", "Why?", "-q", "When?", "--ask-every", "5s", "--budget", "tokens=500")
    assert result.exit_code == 0, said(result)
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert [row["question"] for row in rows[:2]] == ["Why?", "When?"]
    times = [row["time"] for row in rows[::2]]
    assert times == sorted(set(times))
    assert times[-1] > 19
    for row in rows:
        assert row["tokens_after"] <= 500
        assert sum(source["share"] for source in row["sources"]) == pytest.approx(1, abs=0.02)
        assert all(source["seconds"][1] <= row["time"] for source in row["sources"])
        assert row["status"]["dropped"] == 0
    assert "100 frames seen, 40 encoded, 60 skipped" in said(result)


def test_answers_are_appended_to_a_file(video, tmp_path):
    output = tmp_path / "answers.jsonl"
    for _ in range(2):
        assert run(video, *FAST, "-q", "Why?", "-o", output).exit_code == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["question"] for row in rows] == ["Why?"] * 2


def test_a_memory_is_saved_and_gone_on_from(video, tmp_path):
    state = tmp_path / "memory"
    how = [*FAST, "-q", "Why?", "--state", state]
    first = run(video, *how, "--memory", "2MB")
    assert first.exit_code == 0, said(first)
    assert state.is_file()
    second = run(video, *how)
    assert "going on at 0:00:19" in said(second)
    (row,) = [json.loads(line) for line in second.stdout.splitlines() if line.startswith("{")]
    assert row["status"]["seen"] == 200
    assert row["status"]["memory_bytes"] <= 2_000_000
    assert row["time"] > 38
    third = run(video, *how, "--memory", "1MB")
    assert third.exit_code == 2
    assert "memory of its own size" in said(third)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.mp4", "-q", "Why?"], "there is no file missing.mp4"),
        (["rtsp://camera.invalid/1", "-q", "Why?"], "(--network)"),
        (["CLIP"], "questions can only be typed in a terminal"),
        (["CLIP", "-q", " "], "the question is empty"),
        (["CLIP", "-q", "Why?", "--ask-every", "soon"], "--ask-every must be a time"),
        (["CLIP", "--ask-every", "5s"], "give one"),
        (["CLIP", "-q", "Why?", "--speed", "0"], "speed must be"),
        (["CLIP", "-q", "Why?", "--memory", "much"], "--memory must be a size"),
        (["CLIP", "-q", "Why?", "--raw", "big"], "--raw must be WIDTHxHEIGHT"),
        (["CLIP", "-q", "Why?", "--raw", "64x48"], "read from standard input"),
        (["CLIP", "-q", "Why?", "--budget", "tokens=9", "--keep", "0.5"], "give one of"),
        (["CLIP", "-q", "Why?", "--method", "nothing"], "nothing"),
        (["CLIP", "-q", "Why?", "-o", "no/such/folder/x"], "not a directory"),
        (["CLIP", "-q", "Why?", "--memory", "2MB", "--memory-tokens", "9"], "not both"),
    ],
)
def test_mistakes_are_one_sentence(video, arguments, sentence):
    given = [str(video) if each == "CLIP" else each for each in arguments]
    result = run(*given, "--model", MODEL, "--device", "cpu")
    assert result.exit_code == 2
    assert sentence in said(result)


def test_last_frames_that_cannot_be_encoded_are_an_error(tmp_path):
    short = encode(tmp_path / "short.mp4", pictures=1, rate=5)
    result = run(short, *FAST, "-q", "Why?", "--memory-tokens", 1)
    assert result.exit_code == 1
    assert "give room for at least 4" in said(result)


def test_times():
    assert [seconds_of("x", text) for text in ("10s", "2m", "1.5h", "30")] == [10, 120, 5400, 30]


def test_the_status_line():
    assert status_line(StreamStatus(time=3725, seen=1234, dropped=5)) == "1:02:05  1,234 seen  5 dropped"
    full = StreamStatus(supports=3, capacity=8, memory_bytes=2_000_000, damaged=1)
    assert status_line(full) == "0:00:00  memory 3/8 (2 MB)  0 seen  0 dropped  1 damaged"


def test_a_question_is_typed_while_the_stream_runs(video, tmp_path):
    """In a real terminal; Ctrl-C saves the memory and ends."""
    terminal, other = pty.openpty()
    state = tmp_path / "memory"
    command = [sys.executable, "-m", "aviot", "watch", str(video), "--model", MODEL, "--max-new-tokens", "2"]
    with subprocess.Popen(
        [*command, "--speed", "20", "--device", "cpu", "--state", str(state)],
        stdin=other,
        stdout=subprocess.PIPE,
        stderr=other,
        start_new_session=True,
    ) as process:
        os.close(other)
        seen = b""

        def until(text, seconds=60):
            nonlocal seen
            ends = time.monotonic() + seconds
            while text not in seen and time.monotonic() < ends:
                if select.select([terminal], [], [], 0.1)[0]:
                    seen += os.read(terminal, 4096)
            assert text in seen, seen.decode(errors="replace")[-800:]

        try:
            until(b"seen")
            until(b"memory")
            os.write(terminal, b"Why?\n")
            until(b"tokens,")
            until(b"ended")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stdout.read().strip()
        finally:
            process.kill()
            os.close(terminal)
    assert state.is_file()

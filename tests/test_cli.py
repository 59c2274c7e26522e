"""The command line as a user meets it: a real process, its streams and exit codes."""

import json
import os
import subprocess
import sys

import pytest


def aviot(*arguments):
    command = [sys.executable, "-c", "from aviot.cli import app; app()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "120"})


def test_account_prints_the_papers_table():
    done = aviot("account")
    assert done.returncode == 0
    for value in ("13,440", "6,720", "3,360", "1,470", "106.69", "44.28", "19.87", "8.14", "10.9%"):
        assert value in done.stdout


def test_account_json():
    done = aviot("account", "--frames", "224", "--ratio", "20", "--json")
    rows = json.loads(done.stdout)
    assert [row["supports"] for row in rows] == [224, 12]
    assert rows[0]["ratio"] is None


def test_demo_shows_both_questions():
    done = aviot("demo", "--json")
    report = json.loads(done.stdout)
    assert (report["tokens_before"], report["tokens_after"]) == (13440, 3360)
    kitchen, office = report["answers"]
    assert kitchen["budgets"] != office["budgets"]
    assert kitchen["frame_share"]["kitchen"] > office["frame_share"]["kitchen"]
    assert kitchen["rebuilt_error"] < 1e-6
    assert "untrained" in aviot("demo", "--frames", "16").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("account", "--ratio", "0.5"), "ratio must be a finite number above 1"),
        (("account", "--ratio", "nan"), "ratio must be"),
        (("account", "--frames", "0"), "frames must be at least 1"),
        (("account", "--width", "0"), "width must be at least 1"),
        (("demo", "--ratio", "1"), "ratio must be"),
        (("demo", "--frames", "0"), "frames must be"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, sentence):
    done = aviot(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_help_without_arguments_and_unknown_commands():
    assert "account" in aviot("--help").stdout
    assert aviot("fly").returncode == 2

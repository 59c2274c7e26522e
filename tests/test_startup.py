"""The first second of a command: what is imported, what is refused by then, and how Ctrl-C ends it."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest

import aviot

HEAVY = ("torch", "transformers", "av", "PIL", "matplotlib", "pyarrow")
PROBE = """
import sys
from aviot.cli import app
try:
    app({arguments!r}, prog_name="aviot")
except SystemExit as ended:
    found = [name for name in {heavy!r} if name in sys.modules]
    print("code", ended.code, "imported", found, file=sys.stderr)
"""


def run(*arguments, **options):
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=environment, **options
    )


def probe(*arguments):
    """Run a command in a fresh interpreter and report on stderr which heavy packages it imported."""
    return run("-c", PROBE.format(arguments=list(arguments), heavy=HEAVY))


def test_help_and_version_import_nothing_heavy():
    for arguments in (["--help"], ["--version"], ["evaluate", "--help"]):
        assert "code 0 imported []" in probe(*arguments).stderr


def test_help_takes_at_most_three_tenths_of_a_second_of_cpu():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("-c", "import time; import typer, rich.console, rich.table, dataclasses, json")
    between = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("-m", "aviot", "--version")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    libraries, whole = (end.ru_utime + end.ru_stime for end in (between, after))
    start = before.ru_utime + before.ru_stime
    # Compared with the libraries that draw the help, so that a busy machine slows both: torch alone is ten times that.
    assert whole - libraries < 2.5 * (libraries - start) + 0.1


@pytest.fixture
def clip(tmp_path):
    from PIL import Image

    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "change", "sentence"),
    [
        ("answer", {"video": "/nowhere.mp4"}, "there is no file /nowhere.mp4"),
        ("answer", {"-r": "0.5"}, "ratio must be a finite number above 1"),
        ("compress", {"--compressor": "magic"}, "compressor must be one of"),
        ("explain", {"-q": " "}, "the question is empty"),
    ],
)
def test_mistakes_are_found_before_anything_heavy_is_imported(clip, tmp_path, command, change, sentence):
    given = {"video": str(clip), "-q": "Why?"} | change
    if command != "answer":
        given["-o"] = str(tmp_path / "out")
    done = probe(command, given.pop("video"), *(word for pair in given.items() for word in pair))
    assert sentence in done.stderr
    assert "code 2 imported []" in done.stderr


@pytest.mark.parametrize("seconds", [0.15, 0.6])
def test_interrupted_in_the_first_second(clip, seconds):
    process = subprocess.Popen(
        [sys.executable, "-m", "aviot", "answer", str(clip), "-q", "Why?"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_cpu(process.pid, seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert "aviot: interrupted" in err


def _wait_for_cpu(pid, seconds):
    """Wait until a process has worked for so long: on a busy machine the clock says nothing."""
    ticks = os.sysconf("SC_CLK_TCK")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / ticks >= seconds:
            return
        time.sleep(0.01)


def test_a_full_disk_under_stdout_is_a_sentence():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "aviot", "account"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert "the output cannot be written (No space left on device)" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_an_attribute():
    from importlib.metadata import version

    assert aviot.__version__ == version("aviot")


def test_submodules_are_attributes_and_other_names_are_not():
    assert aviot.config.CompressorConfig is aviot.CompressorConfig
    assert "Compressor" in dir(aviot)
    with pytest.raises(AttributeError, match="'aviot' has no attribute 'Compresor'"):
        _ = aviot.Compresor


def test_completion_is_offered():
    environment = {**os.environ, "_AVIOT_COMPLETE": "complete_bash", "COMP_WORDS": "aviot ", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from aviot.cli import app; app(prog_name='aviot')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert {"answer", "evaluate", "train"} <= set(done.stdout.split())

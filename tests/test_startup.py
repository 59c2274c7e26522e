"""The first second of a command: its imports, early errors, and Ctrl-C."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from bombs import gif, many_samples

import aviot

HEAVY = ("torch", "transformers", "av", "PIL", "matplotlib", "pyarrow")
PROBE = """
import json, sys
from aviot.cli import app
for line in sys.stdin:
    try:
        app(json.loads(line), prog_name="aviot")
    except SystemExit as ended:
        imported = [name for name in {heavy!r} if name in sys.modules]
        print("code", ended.code, "imported", imported, file=sys.stderr)
"""


def run(*arguments, **options):
    environment = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=environment, **options
    )


def probe(*commands):
    """Run commands in one fresh interpreter; after each, stderr has its exit code and the heavy packages so far."""
    return run("-c", PROBE.format(heavy=HEAVY), input="\n".join(map(json.dumps, commands))).stderr


def test_help_and_version_import_nothing_heavy():
    assert probe(["--version"], ["--help"], ["evaluate", "--help"]).count("code 0 imported []") == 3


def test_help_costs_little_more_than_the_libraries_that_draw_it():
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


def test_mistakes_are_found_before_anything_heavy_is_imported(clip, tmp_path):
    video, question, output = str(clip), ("-q", "Why?"), ("-o", str(tmp_path / "out"))
    items, misspelt = tmp_path / "items.jsonl", tmp_path / "misspelt.jsonl"
    items.write_text('{"video": "v.mp4", "question": "Why?", "options": ["x", "y"], "answer": "A"}')
    misspelt.write_text('{"video": "v.mp4", "question": "Why?", "optoins": ["x", "y"], "answer": "A"}')
    silent = tmp_path / "silent.jsonl"
    silent.write_text('{"video": "v.mp4", "question": " "}')
    mistakes = {
        "nowhere is not a directory": ["evaluate", str(items), "--videos", "nowhere"],
        "no item has the column 'nothing'": ["evaluate", str(items), "--by", "nothing"],
        "did you mean 'options'?": ["evaluate", str(misspelt)],
        "frames must be a whole number of at least 1, got 0": ["evaluate", str(items), "--frames", "0"],
        "got 0.125": ["evaluate", str(items), "-r", "0.125"],
        "got 'kettle'": ["demo", "--device", "kettle"],
        "at most 4 questions at a time": ["explain", video, *question * 5, *output],
        "--support counts from 0, got -1": ["explain", video, *question, *output, "--support", "-1"],
        "--frame chooses what figures show": ["explain", video, *question, *output, "--frame", "1"],
        "got 'huge'": ["bench", "--size", "huge"],
        "repeats must be whole numbers": ["bench", "--repeats", "0"],
        "there is no file /nowhere.mp4": ["answer", "/nowhere.mp4", *question],
        "got 0.5": ["answer", video, *question, "-r", "0.5"],
        "got 'magic'": ["compress", video, *question, *output, "--compressor", "magic"],
        "the question is empty": ["explain", video, "-q", " ", *output],
        "nothing can be written in /proc": ["explain", video, *question, "-o", "/proc/page.html"],
        "got 0.25": ["demo", "-r", "0.25"],
        "/nowhere.jsonl: no such file": ["evaluate", "/nowhere.jsonl"],
        "got 'toaster'": ["evaluate", video, "--device", "toaster"],
        "got 'wizard'": ["evaluate", video, "--compressor", "wizard"],
        "/nowhere.yaml: no such file": ["train", "-c", "/nowhere.yaml"],
        "there is no file /missing.mp4": ["bench", "/missing.mp4"],
        "/nowhere: no such folder": ["app", "-m", "/nowhere"],
        "/unpublished: no such folder": ["convert", "/unpublished", str(tmp_path / "ours")],
        "got 'vast'": ["reproduce", "--setting", "vast"],
        "got 'lottery'": ["compare", video, *question, "--method", "lottery"],
        "got 'lantern'": ["watch", str(tmp_path / "0.png"), *question, "--method", "lantern"],
        "got 'ladder'": ["serve", "--method", "ladder"],
        "got 0.625": ["serve", "--ratio", "0.625"],
        "give one of --ratio, --keep and --budget": ["serve", "--ratio", "4", "--budget", "auto"],
        "got 'token'": ["batch", str(items), *output, "--method", "token"],
        "line 1: question must be text": ["batch", str(silent), *output],
        "got 0.375": ["watch", str(tmp_path / "0.png"), *question, "--budget", "0.375"],
    }
    said = probe(*mistakes.values())
    assert [sentence for sentence in mistakes if sentence not in said] == []
    assert said.count("code 2 imported []") == len(mistakes)
    assert "bundled demo model" not in said  # who would answer is said where there is something to answer


@pytest.mark.parametrize("command", [("compress", "-q", "Why?"), ("explain", "-q", "Why?"), ("bench",)])
def test_no_output_takes_the_place_of_the_video(clip, command):
    picture = clip / "0.png"
    before, (verb, *words) = picture.read_bytes(), command
    said = probe([verb, str(picture), *words, "-o", str(picture)])
    assert f"{picture} is the video itself; name another file" in said
    assert "code 2 imported []" in said
    assert picture.read_bytes() == before


def test_a_file_that_is_not_a_video_or_a_bomb_is_found_before_the_model_is_loaded(tmp_path):
    """Of what is heavy, only PyAV is imported; the whole command stays far below 500 MB."""
    files = {"text.mp4": b"no video" * 99, "large.gif": gif(8192, 4352, 2000), "claims.mp4": many_samples()}
    sentences = ("is not a video that FFmpeg can read", "unpacks to more than", "claims 30,000,000 samples")
    for (name, data), sentence in zip(files.items(), sentences, strict=True):
        (tmp_path / name).write_bytes(data)
        said = probe(["answer", str(tmp_path / name), "-q", "Why?"])
        assert sentence in said
        assert "code 2 imported ['av']" in said


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
    """Wait until a process has used this CPU time: on a busy machine, wall-clock time says nothing."""
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

"""The command line: streams and exit codes."""

import itertools
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner

from aviot.cli import app


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def aviot(*arguments):
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def test_the_installed_command_runs():
    command = [sys.executable, "-c", "from aviot.cli import app; app()", "account", "--ratio", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 2
    assert done.stderr == (
        "aviot: ratio must be a finite number above 1 (4.0 keeps a quarter of the frames), got 0.5\n"
    )


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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("account", "--ratio", "0.5"), "ratio must be a finite number above 1"),
        (("account", "--ratio", "nan"), "ratio must be"),
        (("account", "--frames", "0"), "frames must be at least 1"),
        (("account", "--width", "0"), "width must be at least 1"),
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


@pytest.mark.parametrize("command", ["answer", "evaluate", "bench", "train", "demo"])
def test_help_breaks_lines_where_the_terminal_does(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    lines = [line.strip() for line in shown.partition("\u256d")[0].splitlines()]
    for line, following in itertools.pairwise(lines):  # 78 characters wide: the next word would not have fitted
        assert not (line and following) or len(f"{line} {following.split()[0]}") > 78, line


GOLDEN = str(Path(__file__).parent / "golden" / "checkpoint")
SHORT = ("--max-new-tokens", "2")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Return a folder of twenty images, a video that needs no video codec."""
    folder = tmp_path_factory.mktemp("clip")
    for i in range(20):
        Image.fromarray(np.full((20, 30, 3), 10 * i, np.uint8)).save(folder / f"frame{i}.png")
    return str(folder)


def test_answer_prints_the_answer_and_says_what_it_did(clip):
    done = aviot("answer", clip, "-q", "What happens?", "--model", GOLDEN, "--max-new-tokens", "4")
    assert done.returncode == 0
    assert len(done.stdout.strip().splitlines()) == 1
    assert "20 frames, 5 supports (20 → 16 → 8 → 5)" in done.stderr
    assert "4,200 visual tokens before, 1,050 after" in done.stderr
    for part in ("decode", "encode", "compress", "prefill", "generate"):
        assert part in done.stderr


def test_answer_json(clip):
    done = aviot(
        "answer", clip, "-q", "What happens?", "-m", GOLDEN, "--max-new-tokens", "4", "--ratio", "10", "--json"
    )
    report = json.loads(done.stdout)
    assert (report["frames"], report["supports"], report["path"]) == (20, 2, [20, 16, 8, 2])
    assert set(report["milliseconds"]) == {"decode", "encode", "compress", "prefill", "generate"}


def test_answer_json_says_what_answered_about_what(clip):
    report = json.loads(aviot("answer", clip, "-q", "Why?", "-m", GOLDEN, "--max-new-tokens", "2", "--json").stdout)
    assert (report["model_path"], report["video"], report["aviot"]) == (GOLDEN, clip, version("aviot"))
    assert (report["ratio"], report["compressor"], report["question"]) == (4.0, "aviot", "Why?")
    assert report["times"] == [0.5 * number for number in range(20)]
    assert report["answers"][0]["text"] == report["text"]
    assert (report["model"], report["notice"], report["damage"]) == ("checkpoint", None, None)


def test_several_questions_are_all_answered_from_one_encoding(clip):
    asked = ("What happens?", "Why?")
    alone = [json.loads(aviot("answer", clip, "-q", one, "-m", GOLDEN, *SHORT, "--json").stdout) for one in asked]
    both = [word for one in asked for word in ("-q", one)]
    report = json.loads(aviot("answer", clip, *both, "-m", GOLDEN, *SHORT, "--json").stdout)
    assert [(given["question"], given["text"]) for given in report["answers"]] == [
        (question, one["text"]) for question, one in zip(asked, alone, strict=True)
    ]
    assert "text" not in report
    assert [set(given["milliseconds"]) >= {"decode", "encode"} for given in report["answers"]] == [True, False]


def test_each_of_several_answers_follows_its_question(clip):
    done = aviot("answer", clip, "-q", "What happens?", "-q", "Why?", "-m", GOLDEN, *SHORT)
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == ["What happens?", "Why?"]
    assert len(done.stdout.splitlines()) >= 4


def test_one_empty_question_of_several_is_refused(clip):
    done = aviot("answer", clip, "-q", "Why?", "-q", "", "-m", GOLDEN)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the question is empty" in done.stderr


def test_compress_json(clip, tmp_path):
    output = tmp_path / "out.safetensors"
    report = json.loads(aviot("compress", clip, "-q", "Why?", "-m", GOLDEN, "-o", str(output), "--json").stdout)
    assert (report["file"], report["features"], report["path"]) == (str(output), [5, 729, 24], [20, 16, 8, 5])
    assert (report["question"], report["video"], len(report["times"])) == ("Why?", clip, 20)


@pytest.fixture
def small_disk():
    """Limit this process's files to 100 kB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize(("command", "name"), [("compress", "out.safetensors"), ("explain", "out.html")])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(clip, tmp_path, command, name):
    done = aviot(command, clip, "-q", "Why?", "-m", GOLDEN, "-o", str(tmp_path / name))
    assert done.returncode == 2
    assert f"{name} could not be written" in " ".join(done.stderr.split())
    assert "free some space" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_under_the_demo_names_its_video(tmp_path):
    done = aviot("demo", "-o", str(tmp_path))
    assert done.returncode == 2
    assert "scene.mp4 could not be written" in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("/proc/out.safetensors", "nothing can be written in /proc"),
        ("/dev/null", "is a device, pipe or socket"),
        ("x" * 300, "File name too long"),
    ],
)
def test_an_output_that_cannot_be_written_is_found_before_the_model_is_loaded(clip, output, sentence):
    done = aviot("compress", clip, "-q", "Why?", "-m", GOLDEN, "-o", output)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.split())
    assert "load" not in done.stderr


def test_compress_writes_features_and_provenance(clip, tmp_path):
    output = tmp_path / "out.safetensors"
    assert aviot("compress", clip, "-q", "Why?", "-m", GOLDEN, "-o", str(output)).returncode == 0
    with safe_open(output, "np") as file:
        assert file.get_slice("features").get_shape() == [5, 729, 24]
        rows = file.get_tensor("coefficients").sum(-1)
        metadata = json.loads(file.metadata()["aviot"])
    assert abs(rows - 1).max() < 1e-5
    assert metadata["question"] == "Why?"
    assert len(metadata["times"]) == 20


def test_convert(tmp_path):
    assert aviot("convert", GOLDEN, str(tmp_path / "ours")).returncode == 0
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == "aviot"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"-q": " "}, "the question is empty"),
        ({"--ratio": "0.5"}, "ratio must be a finite number above 1"),
        ({"--device": "cuda"}, "no GPU can be used here"),
        ({"--device": "toaster"}, "device must be auto, cpu, cuda"),
        ({"--device": "mps"}, "device must be auto, cpu, cuda"),
        ({"--device": "cuda:7"}, "no GPU can be used here as cuda:7"),
        ({"--frames": "0"}, "frames"),
        ({"--compressor": "magic"}, "method must be one of"),
        ({"--fps": "0"}, "fps"),
        ({"-m": "/nowhere"}, "no such folder"),
        ({"video": "/nowhere.mp4"}, "no file"),
    ],
)
def test_mistakes_in_answering(clip, change, sentence):
    arguments = {"video": clip, "-q": "Why?", "-m": GOLDEN} | change
    done = aviot("answer", arguments.pop("video"), *(word for pair in arguments.items() for word in pair))
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_version():
    assert aviot("--version").stdout.strip() == version("aviot")


def test_written_files_have_ordinary_permissions(tmp_path):
    aviot("convert", GOLDEN, str(tmp_path / "ours"))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "ours").iterdir()}
    (tmp_path / "plain").touch()
    assert modes == {(tmp_path / "plain").stat().st_mode & 0o777}


def test_a_folder_is_no_output(clip, tmp_path):
    done = aviot("compress", clip, "-q", "Why?", "-m", GOLDEN, "-o", str(tmp_path))
    assert done.returncode == 2
    assert "is a folder; name the file to write" in done.stderr


def test_a_refused_compression_writes_nothing(clip, tmp_path):
    done = aviot("compress", clip, "-q", "Why?", "-m", GOLDEN, "-o", str(tmp_path / "no" / "out.safetensors"))
    assert done.returncode == 2
    assert "is not a directory; make it first" in done.stderr
    assert not list(tmp_path.iterdir())

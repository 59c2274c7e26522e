"""The `aviot bench` command: tables, JSON, plots, and error messages."""

import errno
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from aviot.bench import check, compressor, plot
from aviot.bench.check import Checked
from aviot.bench.pipeline import Pipeline
from aviot.bench.report import write_outputs
from aviot.bench.result import MethodResult, Result, ScalingPoint
from aviot.bench.timing import Measurement, NotMeasured
from aviot.bench.workload import WITHOUT_PYAV, random_lm
from aviot.cli import app
from aviot.config import TransportConfig
from aviot.utils.machine import commit

PICTURES = 30
GOLDEN = str(Path(__file__).parents[1] / "golden" / "checkpoint")
PARTS = {"encode", "compress", "project", "to_tokens", "decoder_input", "prefill", "next_token"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def aviot(*arguments):
    result = CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module", autouse=True)
def quick_check():
    """Shorten the check before the timing to few updates and frames; `test_check.py` runs it in full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "ODD", replace(check.ODD, transport=TransportConfig(updates=2)))
        patch.setattr(check, "ODD_FRAMES", 5)
        patch.setattr(check, "OWN_FRAMES", 5)
        yield


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A file with 30 pictures."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(PICTURES):
            picture = np.full((48, 64, 3), 8 * number, dtype=np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Measure the tiny model once; return the printed and the written report."""
    file = tmp_path_factory.mktemp("bench") / "out.json"
    quick = ("--size", "tiny", "--device", "cpu", "--repeats", "1", "--frames", "9", "--ratio", "3")
    done = aviot(*quick, "--batch", "1", "--batch", "2", "--backward", "--output", str(file))
    assert done.returncode == 0, done.stderr
    return done, json.loads(file.read_text())


def test_json_holds_every_method_and_part(whole):
    _, report = whole
    settings = [(row["method"], row["ratio"], row["batch"], row["supports"]) for row in report["rows"]]
    one = [("none", None, 1, 9), ("uniform", 3.0, 1, 3), ("random", 3.0, 1, 3), ("aviot", 3.0, 1, 3)]
    assert settings == one + [(method, ratio, 2, kept) for method, ratio, _, kept in one]
    for row in report["rows"]:
        extra = {"backward"} if row["method"] == "aviot" else set()
        assert set(row["parts"]) == (PARTS | extra) - ({"compress"} if row["method"] == "none" else set())
        for part in row["parts"].values():
            assert part["median_ms"] > 0
            assert part["spread_ms"] >= 0
            assert part["peak_extra_mib"] is None
        assert row["tokens"] == row["supports"] * 30  # 5 rows of 5 pooled patches and a separator


def test_json_figures_follow_from_the_parts(whole):
    _, report = whole
    first = {}
    for row in report["rows"]:
        total = sum(row["parts"][name]["median_ms"] for name in report["first_token"])
        assert row["first_token_ms"] == pytest.approx(total)
        assert row["videos_per_second"] == pytest.approx(1000 * row["batch"] / total)
        assert row["factor"] == pytest.approx(first.setdefault(row["batch"], total) / total)
        assert (row["bandwidth_share"] is not None) == (row["method"] == "aviot")


def test_json_says_where_it_comes_from(whole):
    _, report = whole
    assert {"python", "torch", "aviot", "transformers"} <= set(report["versions"])
    assert report["machine"]["device"] == "cpu"
    assert report["commit"] == commit()
    assert report["seed"] == 0
    assert report["command"]
    assert report["bandwidth_gb_per_s"] > 0
    assert [each["feature_error"] < each["feature_limit"] for each in report["checks"]] == [True, True]
    assert report["decoding"][0]["part"]["median_ms"] > 0


@pytest.fixture(scope="module")
def timed(tmp_path_factory, clip):
    """Measure the way from a file of 30 pictures to the first token; return the printed and the written report."""
    file = tmp_path_factory.mktemp("timeline") / "out.json"
    quick = ("--size", "tiny", "--device", "cpu", "--repeats", "1", "--frames", "9", "--ratio", "3")
    done = aviot(
        str(clip), *quick, "--method", "uniform", "--output", str(file), "--plot", str(file.with_suffix(".png"))
    )
    assert done.returncode == 0, done.stderr
    return done, json.loads(file.read_text()), file.with_suffix(".png")


def test_a_videos_timeline_has_every_part_and_its_limits(timed):
    _, report, picture = timed
    timeline = report["timeline"]
    assert (timeline["frames"], timeline["pictures"], timeline["method"]) == (9, PICTURES, "uniform")
    assert [name for name, *_ in timeline["spans"]] == ["decode", "encode", "compress", "prefill"]
    assert all(0 <= start <= end for _, start, end in timeline["spans"])
    ends = [end for _, _, end in timeline["spans"]]
    assert ends == sorted(ends)
    medians = {name: part["median_ms"] for name, part in timeline["parts"].items()}
    assert set(medians) == {"overlapped", "in turn", "decode", "model"}
    assert timeline["limit_ms"] == max(medians["decode"], medians["model"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_operations_and_bytes_of_a_timeline_are_the_models(timed):
    """Products of the encoder alone are a lower bound that follows from its shape."""
    _, report, _ = timed
    light = report["timeline"]["light"]
    lm = random_lm("tiny", torch.device("cpu"), torch.float32, 0)
    assert light["weight_bytes"] == sum(4 * weight.numel() for weight in lm.backbone.model.parameters())
    tower = lm.backbone.model.model.vision_tower
    patches = (tower.config.image_size // tower.config.patch_size) ** 2
    width, inner, layers = tower.config.hidden_size, tower.config.intermediate_size, len(tower.encoder.layers)
    products = 2 * 9 * patches * width * (4 * width + 2 * inner) * layers
    attention = 4 * 9 * patches**2 * width * layers
    embedding = 2 * 9 * patches * width * 3 * tower.config.patch_size**2
    assert products + embedding <= light["operations"]["encode"] <= products + embedding + attention
    assert light["operations_per_second"] > 0
    assert light["bytes_per_second"] == pytest.approx(1e9 * report["bandwidth_gb_per_s"])


def test_a_printed_timeline_fits_a_terminal(timed):
    done, _, _ = timed
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if "#" in line] == ["decode", "encode", "compress", "prefill"]
    assert any("9 of 30 pictures, Uniform Keep at 3" in line for line in lines)
    assert max(len(line) for line in lines if "#" in line) <= 80


def test_a_method_that_refuses_leaves_a_note_in_place_of_a_timeline(clip):
    done = aviot(
        str(clip),
        "--size",
        "tiny",
        "--device",
        "cpu",
        "--repeats",
        "1",
        "--frames",
        "9",
        "--ratio",
        "10",
        "--method",
        "dycoke",
    )
    assert done.returncode == 0
    assert "no timeline from the file to the first token: method 'dycoke' keeps at least" in " ".join(
        done.stdout.split()
    )


def test_the_table_fits_a_terminal(whole):
    done, _ = whole
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    for word in (
        "uncompressed",
        "Uniform Keep",
        "random drop",
        "AVIOT",
        "to tokens",
        "prefill",
        "bandwidth",
        "checked",
    ):
        assert word in done.stdout
    assert "No memory figures" in done.stdout


def test_tiny_weights_on_a_cpu_say_what_they_are_worth(whole):
    done, report = whole
    slow = [row for row in report["rows"] if row["factor"] < 1]
    assert len(report["notes"]) == len(slow) + 1
    for row, note in zip(slow, report["notes"], strict=False):
        assert note.startswith(f"9 frames, batch {row['batch']}, ")
        assert f" {row['factor']:.2f} times as fast" in note
    assert report["notes"][-1].startswith("Tiny random weights on a CPU show that everything runs")
    printed = " ".join(done.stdout.split())
    assert all(note in printed for note in report["notes"])


def test_a_checkpoint_and_json_on_stdout(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    done = aviot("--model", GOLDEN, "--device", "cpu", "--repeats", "1", "--frames", "5", "--ratio", "2", "--json")
    report = json.loads(done.stdout)
    assert report["dtype"] == "float32"
    assert report["decoding"][0]["part"] == {"not_measured": WITHOUT_PYAV}
    assert len(report["rows"]) == 4


def test_the_compressor_alone_needs_no_transformers():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "from aviot.bench import check; check.ODD_FRAMES = check.OWN_FRAMES = 5\n"  # as `quick_check`
        "from aviot.cli import app\n"
        "app(['bench', '--compressor-only', '--device', 'cpu', '--repeats', '1', '--frames', '8', '--json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["ratio"] for row in rows] == [4.0] * 3 + [10.0] * 3
    assert all(set(row["parts"]) == {"position", "compress"} for row in rows)


def test_scaling_moves_one_size_at_a_time():
    done = aviot("--scaling", "--device", "cpu", "--repeats", "1", "--frames", "16", "--json")
    points = json.loads(done.stdout)["scaling"]
    sizes = ("frames", "supports", "patches", "dim")
    for axis, moving in zip("TKSD", sizes, strict=True):
        mine = [point for point in points if point["axis"] == axis]
        values = [point[moving] for point in mine]
        assert len(values) == 4
        assert values == sorted(set(values))
        fixed = set(sizes) - {moving} - ({"supports"} if axis == "T" else set())
        assert all(len({point[size] for point in mine}) == 1 for size in fixed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--frames", "0"), "frames must be whole numbers of at least 1"),
        (("--batch", "-1"), "batches must be whole numbers of at least 1"),
        (("--repeats", "0"), "repeats must be"),
        (("--ratio", "1"), "ratio must be a finite number above 1"),
        (("--size", "huge"), "size must be one of tiny, small, 7b"),
        (("--dtype", "int8"), "dtype must be auto, float32 or bfloat16"),
        (("--device", "toaster"), "device must be auto, cpu, cuda"),
        (("--model", "/nowhere"), "no such folder"),
        (("--model", GOLDEN, "--size", "tiny"), "not both"),
        (("--model", GOLDEN, "--scaling"), "leave the model out"),
        (("--scaling", "--compressor-only"), "not both"),
        (("/nowhere.mp4",), "no file"),
        ((GOLDEN, "--scaling"), "whole model only"),
        (("--output", "/nowhere/out.json"), "is not a directory"),
        (("--output", "/dev/full"), "/dev/full is a device, pipe or socket"),
        (("-o", GOLDEN), "is a folder"),
        (("--plot", "out.mp3"), "out.mp3: a plot's name must end in one of"),
        (("--json", "-"), "- is not a video: --json prints JSON on stdout by itself, so leave the - out"),
        (("-",), "leave the - out"),
        (("--json", "out.json"), "to write the report to a file, use --output out.json"),
        (("out.JSON",), "use --output out.JSON"),
        (("--json", "report"), "use --output report"),
        (("clip.mp4", "--json", "out.json"), "use --output out.json"),
        (("--json", "out.json", "clip.mp4"), "use --output out.json"),
        (("one.mp4", "two.mp4"), "expected at most one video, got 2: one.mp4, two.mp4"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence):
    done = aviot(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plot_without_matplotlib_is_refused_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    done = aviot("--plot", str(tmp_path / "out.png"))
    assert done.returncode == 2
    assert "a plot needs matplotlib" in done.stderr
    assert "[plot]" in done.stderr


def example_result(**found):
    setup = {"model": "example", "dtype": "float32", "machine": {"device": "cpu"}, "versions": {"torch": "2"}}
    figures = {"commit": None, "command": "", "seed": 0, "warmup": 1, "repeats": 1, "bandwidth_gb_per_s": 1.0}
    checks = (Checked("odd sizes", (9, 3), 1e-7, 1e-5, None, None),)
    return Result(**setup, **figures, checks=checks, **found)


PART = Measurement(3.0, 1.0, 5)
POINT_SIZE = {"frames": 8, "supports": 2, "path": (8, 2)}
POINTS = tuple(
    ScalingPoint(axis=axis, patches=81, dim=64, bandwidth_share=None, parts={"compress": PART}, **POINT_SIZE)
    for axis in "TKSD"
)


def test_plots_are_pictures(tmp_path):
    parts = {"encode": PART, "decoder_input": PART, "prefill": NotMeasured("out of memory"), "compress": PART}
    rows = tuple(
        MethodResult(method="aviot", batch=batch, ratio=4.0, tokens=tokens, parts=parts, **POINT_SIZE)
        for batch, tokens in ((1, 60), (2, None))
    )
    for name, result in (("rows", example_result(rows=rows)), ("scaling", example_result(scaling=POINTS))):
        write_outputs(result, None, tmp_path / f"{name}.png", as_json=True)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_json_goes_to_stdout_the_file_or_both(tmp_path, capsys):
    file = tmp_path / "out.json"
    write_outputs(example_result(), None, None, as_json=True)
    assert json.loads(capsys.readouterr().out)["model"] == "example"
    write_outputs(example_result(), file, None, as_json=True)
    assert file.read_text() == capsys.readouterr().out
    write_outputs(example_result(), file, None, as_json=False)
    assert capsys.readouterr().out.startswith("example; float32 on cpu")


@pytest.mark.parametrize("name", ["out.json", "out.png"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, name):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("aviot.utils.files.os.fsync", full)
    given = {name: tmp_path / name}
    with pytest.raises(OSError, match=rf"{name} could not be written: No space left on device; free some space, or"):
        write_outputs(example_result(scaling=POINTS), given.get("out.json"), given.get("out.png"), as_json=True)
    assert not list(tmp_path.iterdir())


def test_a_run_that_measured_nothing_draws_nothing(tmp_path, capsys):
    with pytest.raises(ValueError, match="nothing was measured, so there is nothing to draw"):
        write_outputs(example_result(), None, tmp_path / "out.png", as_json=False)
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_long_times_fit_a_terminal_too(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    part = Measurement(123_456.7, 98_765.4, 5)
    parts = dict.fromkeys(PARTS, part)
    figures = {"factor": 0.25, "first_token_ms": 370_370.1, "videos_per_second": 0.01, "bandwidth_share": 0.001}
    rows = [
        MethodResult(
            method=method, frames=224, batch=16, ratio=4.0, supports=56, tokens=47_040, path=(), parts=parts, **figures
        )
        for method in ("none", "uniform", "aviot")
    ]
    write_outputs(example_result(rows=tuple(rows)), None, None, as_json=False)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert printed.count("123,457") == 3 * len(PARTS)
    assert printed.count("uncompressed") == 2  # in one piece, as all cells


def full(*_, **__):
    raise torch.OutOfMemoryError


def test_a_part_that_does_not_fit_leaves_the_others(monkeypatch):
    monkeypatch.setattr(Pipeline, "prefill", full)
    done = aviot("--device", "cpu", "--repeats", "1", "--frames", "8", "--ratio", "4", "--json")
    for row in json.loads(done.stdout)["rows"]:
        assert row["parts"]["to_tokens"]["median_ms"] > 0
        assert row["parts"]["prefill"] == row["parts"]["next_token"] == {"not_measured": "out of memory"}
        assert row["first_token_ms"] is row["factor"] is row["videos_per_second"] is None


@pytest.mark.parametrize("mode", ["--compressor-only", "--scaling"])
def test_features_that_do_not_fit_are_noted(monkeypatch, mode):
    monkeypatch.setattr(compressor, "random_features", full)
    done = aviot(mode, "--device", "cpu", "--repeats", "1", "--frames", "8")
    assert done.returncode == 0
    assert "not measured: " in done.stdout
    assert "out of memory" in done.stdout

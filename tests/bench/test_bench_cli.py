"""`aviot bench` as a user meets it: tables, JSON, pictures, mistakes."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from aviot.bench import alone, check, decoding, plot, scaling
from aviot.bench.pipeline import Pipeline
from aviot.bench.result import Point, Result, Row
from aviot.bench.timing import Measurement, NotMeasured
from aviot.cli import app
from aviot.config import TransportConfig
from aviot.machine import commit

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
    """The check before anything is timed, of few updates; `test_check.py` has it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "ODD", replace(check.ODD, transport=TransportConfig(updates=2)))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The tiny model, measured once: what was printed and what was written."""
    file = tmp_path_factory.mktemp("bench") / "out.json"
    quick = ("--size", "tiny", "--device", "cpu", "--repeats", "1", "--frames", "9", "--ratio", "3")
    done = aviot(*quick, "--batch", "1", "--batch", "2", "--backward", "--json", str(file))
    assert done.returncode == 0, done.stderr
    return done, json.loads(file.read_text())


def test_json_holds_every_method_and_part(whole):
    _, report = whole
    settings = [(row["method"], row["ratio"], row["batch"], row["supports"]) for row in report["rows"]]
    one = [("none", None, 1, 9), ("uniform", 3.0, 1, 3), ("random-drop", 3.0, 1, 3), ("aviot", 3.0, 1, 3)]
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


def test_a_checkpoint_and_json_on_stdout(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    done = aviot("--model", GOLDEN, "--device", "cpu", "--repeats", "1", "--frames", "5", "--ratio", "2", "--json", "-")
    report = json.loads(done.stdout)
    assert report["dtype"] == "float32"
    assert report["decoding"][0]["part"] == {"not_measured": decoding.WITHOUT_PYAV}
    assert len(report["rows"]) == 4


def test_the_compressor_alone_needs_no_transformers():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "from aviot.cli import app\n"
        "app(['bench', '--compressor-only', '--device', 'cpu', '--repeats', '1', '--frames', '8', '--json', '-'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["ratio"] for row in rows] == [4.0] * 3 + [10.0] * 3
    assert all(set(row["parts"]) == {"position", "compress"} for row in rows)


def test_scaling_moves_one_size_at_a_time():
    done = aviot("--scaling", "--device", "cpu", "--repeats", "1", "--frames", "16", "--json", "-")
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
        (("--model", GOLDEN, "--scaling"), "leave --model out"),
        (("--scaling", "--compressor-only"), "not both"),
        (("/nowhere.mp4",), "no file"),
        ((GOLDEN, "--scaling"), "whole model only"),
        (("--json", "/nowhere/out.json"), "is no folder"),
        (("--json", GOLDEN), "is a folder"),
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
    assert "--plot needs matplotlib" in done.stderr
    assert "[plot]" in done.stderr


def made_up(**found):
    told = {"model": "made up", "dtype": "float32", "machine": {"device": "cpu"}, "versions": {"torch": "2"}}
    figures = {"commit": None, "command": "", "seed": 0, "warmup": 1, "repeats": 1, "bandwidth_gb_per_s": 1.0}
    return Result(**told, **figures, checks=(), **found)


def test_plots_are_pictures(tmp_path):
    part = Measurement(3.0, 1.0, 5)
    parts = {"encode": part, "decoder_input": part, "prefill": NotMeasured("out of memory"), "compress": part}
    size = {"frames": 8, "supports": 2, "path": (8, 2), "parts": parts}
    rows = tuple(
        Row(method="aviot", batch=batch, ratio=4.0, tokens=tokens, **size) for batch, tokens in ((1, 60), (2, None))
    )
    points = tuple(
        Point(axis=axis, patches=81, dim=64, bandwidth_share=None, **(size | {"parts": {"compress": part}}))
        for axis in "TKSD"
    )
    for name, result in (("rows", made_up(rows=rows)), ("scaling", made_up(scaling=points))):
        plot.save_plot(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def full(*_, **__):
    raise torch.OutOfMemoryError


def test_a_part_that_does_not_fit_leaves_the_others(monkeypatch):
    monkeypatch.setattr(Pipeline, "prefill", full)
    done = aviot("--device", "cpu", "--repeats", "1", "--frames", "8", "--ratio", "4", "--json", "-")
    for row in json.loads(done.stdout)["rows"]:
        assert row["parts"]["to_tokens"]["median_ms"] > 0
        assert row["parts"]["prefill"] == row["parts"]["next_token"] == {"not_measured": "out of memory"}
        assert row["first_token_ms"] is row["factor"] is row["videos_per_second"] is None


@pytest.mark.parametrize(("mode", "module"), [("--compressor-only", alone), ("--scaling", scaling)])
def test_features_that_do_not_fit_are_a_remark(monkeypatch, mode, module):
    monkeypatch.setattr(module, "random_features", full)
    done = aviot(mode, "--device", "cpu", "--repeats", "1", "--frames", "8")
    assert done.returncode == 0
    assert "not measured: " in done.stdout
    assert "out of memory" in done.stdout

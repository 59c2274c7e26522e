"""`aviot bench --method`: every method on the same tokens, by itself and in a model."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from aviot import Budget
from aviot.bench import check
from aviot.bench.compressor import Setup
from aviot.bench.inside_steps import inside_steps
from aviot.bench.methods import INPUTS, MethodBench, measure_methods
from aviot.bench.sizes import SIZES
from aviot.bench.synthetic import Shape, synthetic_video
from aviot.bench.timing import CPU, Measurement, measure_on
from aviot.cli import app
from aviot.commands.bench import _chosen_methods
from aviot.config import TransportConfig
from aviot.methods import get, names

SHAPE = Shape(frames=12, grid=(5, 6), unpooled=(9, 9), dim=16)
SETUP = Setup(CPU, torch.float32, warmup=1, repeats=1, bandwidth=1.0, backward=False, seed=0)
COMPRESSING = tuple(name for name in names() if name != "none")


@pytest.fixture(scope="module", autouse=True)
def quick_check():
    """Shorten the check before the timing, as `test_bench_cli.py` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "ODD", replace(check.ODD, transport=TransportConfig(updates=2)))
        patch.setattr(check, "ODD_FRAMES", 5)
        patch.setattr(check, "OWN_FRAMES", 5)
        yield


def aviot(*arguments):
    done = CliRunner().invoke(app, ["bench", "--device", "cpu", "--repeats", "1", *arguments], env={"COLUMNS": "80"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_every_method_has_a_row_with_a_time_or_a_refusal():
    rows = measure_methods(COMPRESSING, SIZES["tiny"], SETUP, (12,), (3.0, 4.0), lambda _: None)
    assert [row.method for row in rows] == list(COMPRESSING) * 2
    refused = {(row.method, row.ratio) for row in rows if row.refusal}
    assert refused == {("dycoke", 4.0)}  # at ratio 3 none is
    for row in rows:
        if row.refusal:
            assert "keeps at least" in row.refusal
            assert row.tokens is None
            continue
        assert 1 <= row.tokens <= 12 * 30 / row.ratio
        found, inside = get(row.method), {"inside"} if get(row.method).inside else set()
        assert set(row.parts) == inside | (set() if found.inside is found else {"compress"})
        assert all(isinstance(part, Measurement) and part.median_ms > 0 for part in row.parts.values())


@pytest.mark.parametrize("before_pooling", [False, True])
def test_all_methods_get_what_they_need_and_no_more(before_pooling):
    made = synthetic_video(SHAPE, CPU, torch.bfloat16, 0, before_pooling=before_pooling)
    assert made.features.shape == (12, 81 if before_pooling else 30, 16)
    assert made.features.dtype == torch.bfloat16
    assert made.cells == made.tokens_per_frame == 30
    bench = MethodBench(SHAPE, SETUP, {}, Budget(ratio=4))
    for name in COMPRESSING:
        method = get(name)
        if method.before_pooling == before_pooling:
            videos = bench.videos(method)
            assert len(videos) == INPUTS
            expected = method.needs | ({"pooling"} if before_pooling else set())
            assert set(videos[0].extras) == expected
            assert not torch.equal(videos[0].features, videos[1].features)


def test_synthetic_frames_are_alike_within_a_scene():
    made = synthetic_video(Shape(frames=32, grid=(5, 6), unpooled=(9, 9), dim=64), CPU, torch.float32, 0)
    likeness = torch.cosine_similarity(made.features[:-1], made.features[1:], dim=-1).mean(1)
    assert (likeness > 0.8).tolist() == [frame != 15 for frame in range(31)]


@pytest.mark.parametrize("name", ["fastv", "framefusion", "flashvid-full"])
def test_steps_inside_a_decoder_leave_what_the_budget_says(name):
    method = get(name)
    video = synthetic_video(SHAPE, CPU, torch.float32, 0)
    made = method.compress(video, question=None, budget=Budget(keep=0.5))
    limit = 90 if method.inside is method else None
    run = inside_steps(method.inside, made, limit, 0)
    assert run() == run()
    if name == "framefusion":  # its budget is the mean over layers, so no more are left in the end
        assert run() <= 90
    else:
        assert run() == (90 if limit else -(-3 * len(made) // 10))


def test_inputs_take_turns():
    seen = []
    part = measure_on("abc", seen.append, CPU, warmup=1, repeats=5)
    assert seen == list("abcabcab")  # one untimed run of each
    assert part.repeats == 5
    assert part.peak_extra_mib is None


@pytest.mark.gpu
def test_events_time_a_gpu_and_count_its_memory():
    device = torch.device("cuda")
    inputs = [torch.randn(1000, 1000, device=device) for _ in range(2)]
    part = measure_on(inputs, lambda x: x @ x, device, warmup=3, repeats=5)
    assert 0 < part.median_ms < 100
    assert part.peak_extra_mib >= 3.8


def test_all_stands_for_every_method_that_compresses():
    assert _chosen_methods(["all"]) == COMPRESSING
    assert _chosen_methods(["evs", "all"]) == ("evs", *(name for name in COMPRESSING if name != "evs"))
    assert _chosen_methods(["evs", "none", "evs"]) == ("evs", "none")
    with pytest.raises(ValueError, match="method must be one of"):
        _chosen_methods(["all", "nothing"])


def test_methods_alone_need_no_transformers_and_fit_a_terminal():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "from aviot.bench import check; check.ODD_FRAMES = check.OWN_FRAMES = 5\n"
        "from aviot.cli import app\n"
        "app(['bench', '--compressor-only', '--method', 'all', '--device', 'cpu', '--repeats', '1', '--frames', '8'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    for words in ("30 per frame", "FlashVID", "the same tokens", "dycoke, ratio 4: method 'dycoke' keeps at least"):
        assert words in done.stdout


def test_methods_in_a_model_have_a_first_token_also_inside_the_decoder():
    chosen = ("framefusion", "semvid", "dycoke", "flashvid-full")
    options = [word for name in chosen for word in ("--method", name)]
    done = aviot("--frames", "8", "--ratio", "4", "--json", *options)
    rows = {row["method"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["none", *chosen]
    for name in ("framefusion", "semvid"):
        assert rows[name]["first_token_ms"] > 0
        assert 1 <= rows[name]["tokens"] <= 60
    assert "compress" not in rows["framefusion"]["parts"]
    assert "next_token" not in rows["framefusion"]["parts"]
    for name, reason in (("dycoke", "keeps at least"), ("flashvid-full", "before layer 20, and this decoder has 2")):
        assert rows[name]["parts"]["compress"] == {"not_measured": "refused"}
        assert reason in rows[name]["refusal"]
        assert rows[name]["tokens"] is rows[name]["first_token_ms"] is None


def test_a_batch_is_refused_inside_the_decoder():
    done = aviot("--frames", "4", "--ratio", "4", "--batch", "2", "--method", "framefusion", "--json")
    (row,) = (row for row in json.loads(done.stdout)["rows"] if row["method"] == "framefusion")
    assert "on one prompt at a time; give one video" in row["refusal"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--scaling", "--method", "all"), "scaling has none"),
        (("--compressor-only", "--method", "evs", "--batch", "2"), "one video at a time"),
        (("--compressor-only", "--method", "evs", "--backward"), "one video at a time"),
        (("--method", "nothing"), "method must be one of"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence):
    done = aviot(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_methods_alone_are_plotted(tmp_path):
    done = aviot("--compressor-only", "--method", "evs", "--frames", "4", "--plot", str(tmp_path / "out.png"))
    assert done.exit_code == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")

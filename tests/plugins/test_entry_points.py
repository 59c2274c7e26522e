"""A method and a backbone of other packages, added by entry points alone, in every command."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "video"))
from clips import encode
from typer.testing import CliRunner

import aviot
from aviot.cli import app
from aviot.methods import registry

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "checkpoint"
ENTRY_POINTS = """[aviot.methods]
every-nth = outside_method:EveryNth
broken = outside_method:Missing

[aviot.backbones]
mosaic = outside_backbone:Mosaic
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """Put both files on the path with a distribution's metadata, as an installation does."""
    site = tmp_path_factory.mktemp("site")
    for file in (HERE / "outside").glob("*.py"):
        (site / file.name).write_text(file.read_text())
    about = site / "outside-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    sys.path.insert(0, str(site))
    registry._installed.cache_clear()
    yield
    sys.path.remove(str(site))
    registry._installed.cache_clear()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return encode(tmp_path_factory.mktemp("clips") / "clip.mp4", pictures=24, rate=4)


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory, installed):
    from outside_backbone import make_checkpoint

    return make_checkpoint(tmp_path_factory.mktemp("models") / "mosaic")


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done


def test_a_method_is_one_short_file():
    assert len((HERE / "outside" / "outside_method.py").read_text().splitlines()) <= 40


def test_names_list_it_and_nothing_is_imported_for_that(monkeypatch):
    monkeypatch.delitem(sys.modules, "outside_method", raising=False)
    assert aviot.methods.names()[-2:] == ("broken", "every-nth")
    registry.check_name("every-nth")
    assert "outside_method" not in sys.modules
    with pytest.raises(ValueError, match=r"method must be one of .*'every-nth', got 'every-mth'"):
        aviot.methods.get("every-mth")
    with pytest.raises(ValueError, match=r"'broken' of the package outside cannot be loaded .*update or uninstall"):
        aviot.methods.get("broken")


@pytest.mark.parametrize(
    ("model", "method"),
    [(GOLDEN, "every-nth"), ("mosaic", "every-nth"), ("mosaic", "segment-mean"), ("mosaic", "none")],
)
def test_answer(clip, mosaic, model, method):
    folder = mosaic if model == "mosaic" else model
    words = ("answer", clip, "-q", "What is it?", "-m", folder, "-r", "4", "--method", method, "--device", "cpu")
    found = json.loads(run(*words, "--max-new-tokens", "3", "--json").stdout)
    assert found["method"] == method
    assert found["frames"] == 12
    per_frame = found["tokens_before"] // 12
    kept = {"every-nth": 48, "segment-mean": 48, "none": 192}[method] if model == "mosaic" else None
    assert found["tokens_after"] == kept if kept else found["tokens_after"] < 12 * per_frame


@pytest.mark.parametrize("model", [GOLDEN, "mosaic"])
def test_explain(clip, mosaic, model, tmp_path):
    folder = mosaic if model == "mosaic" else model
    page, data = tmp_path / "page.html", tmp_path / "data.safetensors"
    words = ("explain", clip, "-q", "What is it?", "-m", folder, "-r", "4", "--method", "every-nth", "--device", "cpu")
    run(*words, "-o", page, "--export", data, "--max-new-tokens", "2")
    assert page.stat().st_size > 10_000
    from safetensors.torch import load_file

    coefficients = load_file(data)["none.coefficients"]
    torch.testing.assert_close(coefficients.mean(1).sum(-1), torch.ones(len(coefficients)))


def test_compress(clip, mosaic, tmp_path):
    out = tmp_path / "out.safetensors"
    words = ("compress", clip, "-q", "What?", "-m", mosaic, "--keep", "0.1", "--method", "every-nth", "-o", out)
    run(*words, "--device", "cpu")
    from safetensors.torch import load_file

    found = load_file(out)
    assert found["tokens"].shape == (20, 32)  # a tenth of 12 x 16, rounded up
    assert found["weights"].sum(1).tolist() == [1.0] * 20
    assert found["positions"][:, 0].max() <= 6


@pytest.mark.parametrize("model", [GOLDEN, "mosaic"])
def test_evaluate(clip, mosaic, model, tmp_path):
    folder = mosaic if model == "mosaic" else model
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"video": str(clip), "question": "Which?", "options": ["x", "y"], "answer": "A"}))
    words = (
        "evaluate",
        items,
        "-m",
        folder,
        "-r",
        "4",
        "--method",
        "every-nth",
        "--method",
        "uniform",
        "--device",
        "cpu",
    )
    run(*words, "-o", tmp_path / "run", "--max-new-tokens", "2", "--json")
    rows = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()]
    assert [row["setting"] for row in rows] == ["every-nth@4", "uniform@4"]
    assert {row["status"] for row in rows} == {"answered"}
    assert all(row["tokens_after"] < row["tokens_before"] for row in rows)


@pytest.mark.parametrize("model", [GOLDEN, "mosaic"])
def test_bench(mosaic, model):
    folder = mosaic if model == "mosaic" else model
    words = ("bench", "-m", folder, "--frames", "8", "-r", "4", "--method", "every-nth", "--repeats", "1")
    found = json.loads(run(*words, "--device", "cpu", "--json").stdout)
    assert [row["method"] for row in found["rows"]] == ["none", "every-nth"]
    assert all(part["median_ms"] > 0 for row in found["rows"] for part in row["parts"].values())


def test_a_batch_is_its_members_and_provenance_rebuilds_the_tokens(clip, mosaic):
    session = aviot.VideoLM.from_pretrained(mosaic, device="cpu").open(clip)
    questions = ["What?", "Which of the two colours is it?"]
    together = session.answer_all([session.prompt(each) for each in questions], budget=4, method="every-nth")
    alone = [session.ask(each, budget=4, method="every-nth") for each in questions]
    assert [each.text for each in together] == [each.text for each in alone]
    read = session.compress("What?", budget=4, method="low-resolution")
    rebuilt = read.made.mixture.rebuild(session.sources("low-resolution").flatten(0, 1))
    torch.testing.assert_close(rebuilt, read.made.tokens)


def test_a_model_without_trained_parts_runs_aviot_training_free(clip, mosaic):
    session = aviot.VideoLM.from_pretrained(mosaic, device="cpu").open(clip)
    assert session.ask("What?", budget=4).method == "aviot-free"
    with pytest.raises(ValueError, match="'aviot' needs a model that was trained with it, and this one has no"):
        aviot.methods.get("aviot").bind({})


def test_the_command_says_what_ran(mosaic, tmp_path):
    clip = encode(tmp_path / "clip.mp4", pictures=4, rate=4)
    done = CliRunner().invoke(app, ["answer", str(clip), "-q", "What?", "-m", str(mosaic), "--device", "cpu"])
    assert done.exit_code == 0
    assert "aviot-free: 2 frames" in done.stderr


def test_a_method_that_makes_nothing_is_refused(clip, mosaic):
    from outside_method import EveryNth

    class Nothing(EveryNth):
        def compress(self, video, *, question, budget):
            return super().compress(video, question=question, budget=budget).subset(torch.arange(0))

    session = aviot.VideoLM.from_pretrained(mosaic, device="cpu").open(clip)
    with pytest.raises(ValueError, match="'every-nth' made no tokens"):
        session.ask("What?", budget=4, method=Nothing())


def test_an_unknown_family_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ValueError, match=r'model_type "gpt2", .*llava-video, qwen2-vl.*, mosaic') as refused:
        aviot.VideoLM.from_pretrained(tmp_path)
    assert "docs/backbones.md" in str(refused.value)

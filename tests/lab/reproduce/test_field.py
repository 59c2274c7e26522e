"""The field experiment with an untrained model: every method has its row, and a killed run goes on."""

import json
import re

import pytest
import torch
from typer.testing import CliRunner

from aviot import VideoLM
from aviot.cli import app
from aviot.methods.registry import names
from aviot_lab.demo_model.accuracy import accuracy
from aviot_lab.field import evaluator as evaluating
from aviot_lab.field.evaluator import FieldEvaluator
from aviot_lab.field.plots import pareto_front
from aviot_lab.field.run import UNTRAINED, FieldOptions, measure_field, named_folders, was_trained
from aviot_lab.field.size import FieldSetting, FieldSize, chosen_reference, compressing_methods, settings_of, size_named
from aviot_lab.field.summary import FieldSummary
from aviot_lab.reproduce.journaling import JOURNAL
from aviot_lab.world import World, WorldConfig

SIZE = FieldSize(questions=4, frames=16, videos=1, keeps=(0.25, 0.1))


def load(folder):
    return VideoLM.from_pretrained(folder, device="cpu")


def options(folder, out, **changed):
    given = {"folders": {"one": folder, "two": folder.parent / "tuned"}, "setting": "small", "size": SIZE}
    given |= {"reference": "random-tokens", "seed": 0, "out": out, "device": torch.device("cpu")}
    return FieldOptions(**(given | changed))


@pytest.fixture(scope="module")
def few():
    """A few methods of each kind, so that a run takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        chosen = ("uniform", "random-tokens", "low-resolution", "evs", "semvid", "fastv", "aviot")
        patch.setattr("aviot_lab.field.run.compressing_methods", lambda: chosen)
        yield chosen


@pytest.fixture(scope="module")
def finished(folder, few, tmp_path_factory):
    out = tmp_path_factory.mktemp("field")
    return out, measure_field(options(folder, out), load)


def test_every_method_of_the_registry_is_asked_at_every_budget():
    settings = settings_of(size_named("full", None), compressing_methods())
    assert settings[0].key == "uncompressed"
    assert {setting.method for setting in settings[1:]} == set(names()) - {"none"}
    assert {setting.keep for setting in settings[1:]} == {0.5, 0.25, 0.15, 0.1, 0.05}
    assert size_named("full", None).questions == 2000
    with pytest.raises(ValueError, match="questions must be 2000 to 100000 in the full setting, got 100"):
        size_named("full", 100)
    assert chosen_reference(None, ["tome", "random-tokens"]) == "random-tokens"
    assert chosen_reference(None, ["random-tokens", "aviot-free"]) == "aviot-free"
    with pytest.raises(ValueError, match="reference must be one of tome, got 'evs'"):
        chosen_reference("evs", ["tome"])


def test_answers_are_those_of_teacher_forcing(bundled_model):
    """On the bundled model, whose answers differ: of uncompressed videos and of random tokens."""
    world = World(WorldConfig())
    settings = [FieldSetting("none"), FieldSetting("random-tokens", 0.1)]
    scenes = [world.scene("validation", number, 16) for number in range(2)]
    record = FieldEvaluator(bundled_model, settings).answer(world, scenes)
    model, tokenizer = bundled_model.backbone.model, bundled_model.backbone.tokenizer
    forced = [("none", None), ("random-tokens", 10.0)]
    expected = accuracy(model, tokenizer, world, split="validation", scenes=range(2), frames=16, settings=forced)
    for setting, other in zip(settings, forced, strict=True):
        by_family: dict[str, list[bool]] = {}
        for family, good in zip(record["families"], record["right"][setting.key], strict=True):
            by_family.setdefault(family, []).append(good == 1)
        assert by_family == dict(expected[other])
    assert sum(record["right"]["uncompressed"]) > sum(record["right"]["random-tokens 0.1"])
    assert set(record["entered"]["uncompressed"]) == {16 * 90}
    assert 0.05 * 1440 < max(record["entered"]["random-tokens 0.1"]) <= 144


@pytest.fixture(scope="module")
def bundled_model():
    from aviot.bundled import embedded_model

    lm = load(embedded_model())
    lm.backbone.model.to(torch.float32)
    return lm


def test_rows_have_tokens_times_and_reasons(finished, few):
    _, report = finished
    figures = report["figures"]["one"]
    lines = {line["row"]: line for line in figures["lines"]}
    assert len(lines) == len(few) * 2
    whole = 16 * 90
    assert figures["uncompressed"]["entered"] == whole
    assert "a decoder of at least" in lines["fastv 0.1"]["refused"] or "layer" in lines["fastv 0.1"]["refused"]
    assert all(line["entered"] <= line["keep"] * whole for line in lines.values() if line["method"] == "random-tokens")
    assert lines["random-tokens 0.25"]["milliseconds"]["method"] > 0
    assert lines["aviot 0.25"]["milliseconds"]["first token"] > 0
    apart = {(one["method"], one["keep"]) for one in figures["differences"]}
    answered = {(line["method"], line["keep"]) for line in lines.values() if "refused" not in line}
    assert apart == {one for one in answered if one[0] != "random-tokens"}
    assert {line["method"] for line in figures["means"]} == {name for name, keep in answered if keep == 0.1}


def test_a_killed_run_goes_on_and_reports_the_same(folder, few, finished, tmp_path, monkeypatch):
    out, whole = finished
    journal = (out / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_bytes(b"".join(journal[:3]) + journal[3][:50])
    calls = []
    own = FieldEvaluator.answer
    monkeypatch.setattr(FieldEvaluator, "answer", lambda *given: calls.append(1) or own(*given))
    again = measure_field(options(folder, tmp_path), load)
    assert len(calls) == len(journal) - 3
    ours, theirs = (
        [(line["row"], line.get("right"), line.get("refused")) for line in report["figures"]["two"]["lines"]]
        for report in (again, whole)
    )
    assert ours == theirs
    with pytest.raises(ValueError, match="was started with other settings: seed was 0, is 1"):
        measure_field(options(folder, tmp_path, seed=1), load)
    rows = (tmp_path / JOURNAL).read_bytes().splitlines()
    changed = json.loads(rows[1])
    changed["right"]["uncompressed"][0] = 0.5
    (tmp_path / JOURNAL).write_bytes(b"\n".join((rows[0], json.dumps(changed).encode(), *rows[2:], b"")))
    with pytest.raises(
        ValueError, match=r"journal\.jsonl, line 2 is not the run's batch 1 of \d; the file was changed"
    ):
        measure_field(options(folder, tmp_path), load)


def test_the_report_reads_like_the_figures(finished):
    out, report = finished
    assert json.loads((out / "report.json").read_text()) == json.loads(json.dumps(report))
    markdown, page = ((out / name).read_text() for name in ("report.md", "report.html"))
    for line in report["figures"]["two"]["lines"]:
        if "refused" in line:
            assert line["refused"] in markdown
        else:
            low, high = line["interval"]
            keep = f"{100 * line['keep']:g}"
            cells = (
                f"| {line['method']} | {keep} | {100 * line['accuracy']:.1f} | {100 * low:.1f} to {100 * high:.1f} |"
            )
            assert cells in markdown
    assert page.count("data:image/svg+xml;base64,") == 4
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    for name in re.findall(r"\]\((\S+)\)", markdown):
        assert (out / name).is_file()


def test_nothing_is_refused_that_was_not_finite(model, tokenizer, monkeypatch):
    from aviot_lab.demo_model.architecture import small_processor

    lm, world = VideoLM(model, small_processor(tokenizer)), World(WorldConfig())
    evaluator = FieldEvaluator(lm, [FieldSetting("none")])

    def spoilt(*given):
        raise ValueError("the decoder's logits at the first token are not finite (NaN or infinity)")

    monkeypatch.setattr(lm.engine, "generate", spoilt)
    with pytest.raises(ValueError, match="not finite"):
        evaluator.answer(world, [world.scene("test", 0, 16)])


def test_trained_methods_are_left_out_where_nothing_was_trained(folder, model, tokenizer, tmp_path):
    lm = load(folder)
    assert was_trained(lm, folder)
    lines = {"began": 0, "compressor": "none", "curriculum": "yardstick"}, {"ended": 40, "seconds": 1.0}
    (tmp_path / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not was_trained(lm, tmp_path)
    adapted = lines[0] | {"weights": "ab"}, lines[1]
    (tmp_path / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in adapted))
    assert was_trained(lm, tmp_path)
    world = World(WorldConfig())
    settings = [FieldSetting("aviot", 0.25), FieldSetting("uniform", 0.25)]
    record = FieldEvaluator(lm, settings, UNTRAINED).answer(world, [world.scene("test", 0, 16)])
    assert record["refused"] == {"aviot 0.25": UNTRAINED}
    assert set(record["right"]) == {"uniform 0.25"}


def test_a_mean_pairs_the_same_questions():
    """Of two budgets out of three that a method took; one that refused a budget has no mean."""
    size = FieldSize(questions=4, frames=16, videos=1, keeps=(0.25, 0.1))
    times = {"method": 1.0, "first token": 2.0}
    right = {
        "uncompressed": [1, 1, 1, 1],
        "random-tokens 0.25": [1, 1, 1, 0],
        "random-tokens 0.1": [1, 0, 1, 0],
        "uniform 0.25": [1, 0, 0, 0],
        "uniform 0.1": [0, 0, 0, 1],
        "evs 0.25": [1, 1, 1, 1],
    }
    record = {
        "scenes": [0, 0, 1, 2],
        "families": ["count"] * 4,
        "right": right,
        "entered": {key: [9] * 4 for key in right},
        "left": {key: [9] * 4 for key in right},
        "milliseconds": dict.fromkeys(right, times),
        "refused": {"evs 0.1": "too few"},
    }
    figures = FieldSummary([record], size, "random-tokens", 0).figures(("uniform", "random-tokens", "evs"))
    means = {line["method"]: line for line in figures["means"]}
    assert list(means) == ["random-tokens", "uniform"]
    assert (means["random-tokens"]["mean"], means["uniform"]["mean"]) == (5 / 8, 2 / 8)
    assert means["uniform"]["difference"]["mean"] == 3 / 8
    assert [line["refused"] for line in figures["lines"] if "refused" in line] == ["too few"]
    apart = {(one["method"], one["keep"]): one["difference"] for one in figures["differences"]}
    assert apart == {("uniform", 0.25): 0.5, ("uniform", 0.1): 0.25, ("evs", 0.25): -0.25}


def test_the_front_has_what_nothing_beats():
    points = [(10.0, 50.0), (20.0, 40.0), (20.0, 60.0), (30.0, 60.0), (5.0, 20.0), (40.0, 70.0)]
    assert pareto_front(points) == [(5.0, 20.0), (10.0, 50.0), (20.0, 60.0), (40.0, 70.0)]


def test_models_of_one_name_get_numbers(tmp_path):
    folders = [tmp_path / name / "my model" for name in "abc"]
    assert list(named_folders(folders)) == ["my-model", "my-model-2", "my-model-3"]


def test_the_command_measures_and_refuses_options_of_the_other_experiment(folder, few, tmp_path, monkeypatch):
    monkeypatch.setattr("aviot_lab.field.size.SIZES", {"small": SIZE})
    monkeypatch.setattr("aviot_lab.field.size.compressing_methods", lambda: few)
    monkeypatch.setattr(evaluating, "LONGEST_ANSWER", 2)
    given = ["reproduce", "--model", str(folder), "--device", "cpu", "-o", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*given, "--experiment", "field", "--questions", "1"])
    assert done.exit_code == 0, done.output
    assert "model: uniform, mean: " in done.stdout
    assert (tmp_path / "run" / "report.html").is_file()
    for wrong, said in (
        (["--experiment", "field", "--uniform", str(folder)], "are options of --experiment paper"),
        (["--reference", "evs"], "is an option of --experiment field"),
        (["--model", str(folder)], "takes one --model, got 2"),
        (["--experiment", "field", "--reference", "magic"], "reference must be one of"),
        (["--experiment", "field", "--frames", "3"], "at least 16 frames"),
    ):
        refused = CliRunner().invoke(app, [*given, *wrong])
        assert refused.exit_code == 2
        assert said in " ".join(refused.stderr.split())

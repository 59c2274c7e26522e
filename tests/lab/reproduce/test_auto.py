"""Automatic budgets in the world: answers as the engine gives them, the package's calibration, curves, and resuming."""

import json

import pytest
import torch

from aviot import VideoLM
from aviot.auto_budget import Calibration
from aviot.bundled import embedded_model
from aviot_lab.auto.decoding import LONGEST_ANSWER, decode
from aviot_lab.auto.run import AutoOptions, measure_auto
from aviot_lab.auto.size import AutoSize, size_named
from aviot_lab.auto.summary import AutoSummary, best_calibration
from aviot_lab.demo_model.accuracy import question_batch
from aviot_lab.demo_model.architecture import small_processor
from aviot_lab.demo_model.batches import BatchWriter
from aviot_lab.demo_model.learning import answer, compressed_prompts, encode
from aviot_lab.reproduce.journaling import JOURNAL
from aviot_lab.world import World, WorldConfig, render

SIZE = AutoSize(calibration=3, questions=3, frames=16, videos=1, ratios=(20.0, 10.0, 2.0, 1.0))


def load(folder):
    lm = VideoLM.from_pretrained(folder, device="cpu")
    lm.backbone.model.to(torch.float32)
    return lm


@pytest.mark.parametrize("trained", [True, False])
def test_passes_over_whole_answers_give_what_the_engine_generates(trained, model, tokenizer):
    """The bundled model's right and wrong answers, and an untrained one's, which do not end."""
    lm = load(embedded_model()) if trained else VideoLM(model, small_processor(tokenizer))
    world, net = World(WorldConfig()), lm.backbone.model
    batch = question_batch(BatchWriter(lm.backbone.tokenizer), world, "validation", [5], 16)
    features = encode(net, batch.conversations.plans, batch.conversations.videos)
    ready = compressed_prompts(net, features, batch.conversations, ratio=20)
    found = decode(net, ready.sequences, batch.conversations, lm.backbone.tokenizer)
    assert [one.right for one in found] == answer(net, features, batch.conversations, ratio=20).right.tolist()
    if trained:
        assert {one.right for one in found} == {True, False}
    else:
        assert {len(one.answer.probabilities) for one in found} == {LONGEST_ANSWER}
    sessions = {}
    for (scene, turns), one in zip(batch.asked, found, strict=True):
        if scene.index not in sessions:
            shown = render([scene], lm.backbone.device).frames[0].numpy()
            sessions[scene.index] = lm.open(shown, source_fps=scene.fps, fps=scene.fps, max_frames=len(shown))
        theirs = sessions[scene.index].ask(turns[0][0], budget=20, max_new_tokens=LONGEST_ANSWER)
        assert one.answer.text == theirs.text
        assert one.answer.probability == pytest.approx(theirs.probability, abs=1e-4)


def options(folder, out, **changed):
    given = {"folder": folder, "setting": "small", "size": SIZE, "seed": 0, "out": out, "device": torch.device("cpu")}
    return AutoOptions(**(given | changed))


def test_a_killed_run_goes_on_and_reports_the_same(folder, tmp_path):
    whole = measure_auto(options(folder, tmp_path / "whole"), load)
    journal = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / JOURNAL).write_bytes(b"".join(journal[:2]) + journal[2][:50])
    again = measure_auto(options(folder, tmp_path / "again"), load)
    assert json.dumps(again["figures"]) == json.dumps(whole["figures"])
    assert {one["split"] for one in map(json.loads, journal[1:])} == {"validation", "test"}
    reports = ((tmp_path / run / "report.json").read_text() for run in ("again", "whole"))
    assert len({json.dumps(json.loads(text)["figures"]) for text in reports}) == 1
    assert "cannot show a loss of half a point" in (tmp_path / "again" / "report.md").read_text()
    assert not (tmp_path / "again" / "auto_budget.json").exists()
    damaged = json.loads(journal[1])
    damaged["probability"]["20"][0] = 1.5
    (tmp_path / "again" / JOURNAL).write_bytes(journal[0] + json.dumps(damaged).encode() + b"\n")
    with pytest.raises(ValueError, match=r"line 2 is not the run's batch 1 of \d; the file was changed"):
        measure_auto(options(folder, tmp_path / "again"), load)


def made(videos, wrong_at):
    """Return records of four questions per video; `wrong_at` says at which ratios a question's answers are wrong."""
    size = AutoSize(calibration=1, questions=1, frames=64, videos=1)
    keys = [f"{ratio:g}" for ratio in size.ratios]
    records = []
    for video in range(videos):
        wrong = [wrong_at(4 * video + place) for place in range(4)]
        right = {key: [float(key not in each) for each in wrong] for key in keys}
        records.append(
            {
                "scenes": [video] * 4,
                "families": ["count", "order"] * 2,
                "right": right,
                "probability": {key: [0.99 if good else 0.6 for good in each] for key, each in right.items()},
                "tokens": dict.fromkeys(keys, 90),
            }
        )
    return size, records


def test_figures_follow_from_answers_and_probabilities():
    """A quarter of the questions needs ratio 2, and the probability at ratio 10 always tells."""
    size, records = made(800, lambda number: ("20", "10", "6", "4", "3") if number % 4 == 0 else ())
    figures = AutoSummary(size, records, records, seed=0).figures()
    default, calibrated = figures["auto"][:2]
    assert default["title"] == "auto default"
    assert default["quality"] == 0.9
    assert default["accuracy"] == 1.0
    assert default["supports"] == 7 + 32 / 4
    assert default["families_again"] == {"count": 0.5, "order": 0.0}
    assert default["above_fixed"]["between"] == ["6", "4"]
    assert default["above_fixed"]["mean"] == pytest.approx(0.25)
    assert {one["against"]: one["difference"] for one in default["against"]}["2"] == 0
    assert calibrated["quality"] == best_calibration(figures).quality <= 0.61
    assert best_calibration(figures).questions == 3200
    assert figures["oracle"]["supports_at_reference"] == pytest.approx(4 * 3 / 4 + 32 / 4)
    assert [one["supports"] for one in figures["fixed"]] == [4, 7, 11, 16, 22, 32, 64]


def test_a_calibration_is_read_back_beside_the_weights(tmp_path):
    size, records = made(800, lambda number: ("20", "10") if number % 4 == 0 else ())
    found = best_calibration(AutoSummary(size, records, records, seed=0).figures())
    found.save(tmp_path)
    assert Calibration.of(tmp_path) == found
    few = AutoSummary(size, records[:10], records[:10], seed=0).figures()
    assert best_calibration(few) is None
    assert "cannot show a loss of half a point" in few["calibrations"][0]["refused"]


def test_sizes_are_checked():
    assert size_named("full", None).questions == 4000
    assert size_named("small", 7).calibration == 11
    with pytest.raises(ValueError, match="questions must be 2000 to 100000 in the full setting, got 100"):
        size_named("full", 100)
    with pytest.raises(ValueError, match="setting must be one of full, small"):
        size_named("big", None)

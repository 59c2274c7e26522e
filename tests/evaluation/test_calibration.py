"""`aviot calibrate`, and evaluations under budgets that are not ratios."""

import json

import numpy as np
import pytest
from evaluation_sets import rows
from typer.testing import CliRunner

from aviot.cli import app
from aviot.evaluation.calibration import QUALITIES, calibrate
from aviot.evaluation.config import Setting

SMALL, LARGE = Setting("aviot", 10.0), Setting("aviot", 2.0)


def invented(questions: int, seed: int = 0) -> list[dict]:
    """Rows of a model whose small-budget answers are right as often as they are probable, and the large ones 0.95."""
    draws = np.random.default_rng(seed)
    found = []
    for item in range(questions):
        sure = 1 - 0.6 * draws.random() ** 4
        for setting, share, tokens in ((SMALL, sure, 100), (LARGE, max(sure, 0.95), 500)):
            found.append(
                {
                    "item": item,
                    "id": str(item),
                    "video": f"v{item // 3}.mp4",
                    "setting": setting.name,
                    "status": "answered",
                    "correct": bool(draws.random() < share),
                    "probability": round(sure, 3),
                    "tokens_after": tokens,
                }
            )
    return found


def test_the_quality_is_the_smallest_whose_loss_is_bounded():
    made = invented(4000)
    found, curve = calibrate(made, SMALL, LARGE, 0.01)
    assert found.questions == 4000
    assert [point.quality for point in curve] == list(QUALITIES[: len(curve)])
    assert curve[-1].most > 0.01 >= curve[-2].most
    assert found.quality == curve[-2].quality
    at = curve[-2]
    small = {row["item"]: row for row in made if row["setting"] == SMALL.name}
    large = {row["item"]: row for row in made if row["setting"] == LARGE.name}
    taken = [small[i] if small[i]["probability"] >= found.quality else large[i] for i in small]
    right = np.mean([row["correct"] for row in taken])
    assert at.accuracy == pytest.approx(right)
    assert at.loss == pytest.approx(np.mean([row["correct"] for row in large.values()]) - right)
    read = np.mean([100 + 500 * (small[i]["probability"] < found.quality) for i in small])
    assert at.tokens == pytest.approx(read)
    assert found.loss <= 0.01


def test_the_bound_holds_on_new_questions():
    """In 97.5 % of calibrations; here in at least 17 of 20, each checked on 20,000 new questions."""
    fresh = invented(20_000, seed=99)
    held = 0
    for seed in range(20):
        found, _ = calibrate(invented(1200, seed), SMALL, LARGE, 0.02)
        (small, large) = ([row for row in fresh if row["setting"] == one.name] for one in (SMALL, LARGE))
        kept = [one if one["probability"] >= found.quality else two for one, two in zip(small, large, strict=True)]
        held += np.mean([row["correct"] for row in large]) - np.mean([row["correct"] for row in kept]) <= 0.02
    assert held >= 17


@pytest.mark.parametrize(
    ("change", "target", "sentence"),
    [
        (lambda made: made[:200], 0.01, "100 questions have a score under both budgets"),
        (lambda made: [row for row in made if row["setting"] == "aviot@2"], 0.01, "and not aviot@10; evaluate that"),
        (lambda made: [{k: v for k, v in row.items() if k != "probability"} for row in made], 0.01, "no probabilities"),
        (lambda made: made[:800], 0.0001, "could lose up to .* evaluate more questions"),
        (lambda made: made, 2, "the target is the largest loss as a share"),
    ],
)
def test_runs_that_cannot_be_calibrated(change, target, sentence):
    with pytest.raises(ValueError, match=sentence):
        calibrate(change(invented(1000)), SMALL, LARGE, target)


def aviot(*words):
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "140"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_evaluating_any_budget(made, tmp_path):
    """Rows say which budget the automatic one took; a run is resumed, grown and verified with such settings."""
    out = tmp_path / "run"
    words = (made / "items.jsonl", "-m", made / "model", "--max-new-tokens", 2, "-o", out, "--json", "--limit", 4)
    chosen = ("--budget", "auto:min=4,max=2,quality=1", "--budget", "keep=0.5", "--method", "uniform")
    done = aviot("evaluate", *words, *chosen)
    assert done.exit_code == 0, done.output
    answered = [row for row in rows(out / "results.jsonl") if row["status"] == "answered"]
    auto = [row for row in answered if row["setting"] == "uniform@auto-min4-quality1"]
    kept = [row for row in answered if row["setting"] == "uniform@keep0.5"]
    assert len(auto) == len(kept) > 0
    assert all(row["budget"] == "ratio 2" and row["tokens_read"] > row["tokens_after"] for row in auto)
    assert all("tokens_read" not in row and 0 <= row["probability"] <= 1 for row in kept)
    tokens = {each["setting"]: each for each in json.loads(done.stdout)["tokens"]}
    assert tokens["uniform@auto-min4-quality1"]["read"] > tokens["uniform@auto-min4-quality1"]["after"]
    before = (out / "results.jsonl").read_bytes()
    assert aviot("evaluate", *words, *chosen, "--resume").exit_code == 0
    assert (out / "results.jsonl").read_bytes() == before
    assert aviot("evaluate", *words, *chosen, "-r", 3, "--resume").exit_code == 0
    assert {row["setting"] for row in rows(out / "results.jsonl")} == {*tokens, "uniform@3"}
    assert aviot("evaluate", "--verify", out, "--sample", 4).exit_code == 0


def test_the_command_says_what_is_missing(made, tmp_path, whole):
    assert "has no results.jsonl" in aviot("calibrate", tmp_path).stderr
    assert "fewer than 200" in aviot("calibrate", whole[0], "--min", 4, "--max", 2).stderr
    assert "has no config.json" in aviot("calibrate", whole[0], "-o", tmp_path).stderr
    assert "a budget must be a ratio" in aviot("calibrate", whole[0], "--min", "auto").stderr


def test_the_command_stores_what_answer_uses(made, tmp_path, monkeypatch):
    run, model = tmp_path / "run", tmp_path / "model"
    run.mkdir()
    model.mkdir()
    (model / "config.json").write_text("{}")
    kind = {"video": "v", "method": "aviot", "kind": "choice", "answer": "A", "prediction": "A", "frames": 4}
    complete = [
        {**row, **kind, "video": row["video"], "supports": 1, "read_as": "A", "how": "letter", "tokens_before": 1000}
        | {"ratio": 10.0 if row["setting"] == SMALL.name else 2.0}
        for row in invented(2000)
    ]
    (run / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in complete))
    done = aviot("calibrate", run, "--target", 0.02, "-o", model, "--json")
    assert done.exit_code == 0, done.output
    stored = json.loads((model / "auto_budget.json").read_text())
    assert stored == json.loads(done.stdout)["calibration"]

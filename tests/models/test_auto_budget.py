"""Automatic budgets: few tokens first, more where an answer is not sure enough; their calibration."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from aviot import AutoBudget, Budget, VideoLM
from aviot.auto_budget import CALIBRATION_FILE, Calibration, Chosen, escalate
from aviot.budget import DEFAULT_QUALITY
from aviot.engine.base import Stopwatch
from aviot.methods.peers.fastv import FastV
from aviot.models import AviotForConditionalGeneration, AviotProcessor

CHECKPOINT = Path(__file__).parents[1] / "golden" / "checkpoint"
QUESTIONS = ("What is it?", "Which colour does it have, and where does it go?", "Why?")


@pytest.fixture(scope="module")
def session():
    model = AviotForConditionalGeneration.from_pretrained(CHECKPOINT).eval()
    frames = np.random.default_rng(0).integers(0, 255, (12, 30, 40, 3), dtype=np.uint8)
    return VideoLM(model, AviotProcessor.from_pretrained(CHECKPOINT)).open(frames, source_fps=2)


@dataclass(frozen=True)
class Reply:
    """An answer to a question under a budget, of a rule instead of a model."""

    question: str
    budget: Budget
    probability: float | None


COSTS = {Budget(ratio=10): 10, Budget(ratio=4): 25, Budget(ratio=2): 50}


def replies(sureness: dict[str, float]):
    """Return a function that answers with probabilities by question, the same under every budget."""
    calls = []

    def ask(questions, budget):
        calls.append((tuple(questions), budget))
        return [Reply(question, budget, sureness[question]) for question in questions]

    return ask, calls


def test_only_unsure_questions_are_asked_again_and_together():
    ask, calls = replies({"a": 0.95, "b": 0.2, "c": 0.5})
    found = escalate(ask, ["a", "b", "c"], COSTS, 0.9)
    assert [len(tries) for tries in found] == [1, 3, 3]
    assert calls == [(("a", "b", "c"), Budget(ratio=10)), (("b", "c"), Budget(ratio=4)), (("b", "c"), Budget(ratio=2))]


def test_a_total_goes_to_the_least_sure_questions():
    ask, calls = replies({"a": 0.3, "b": 0.6, "c": 0.1})
    found = escalate(ask, ["a", "b", "c"], COSTS, 0.9, total=30 + 50 + 10)
    assert [questions for questions, _ in calls] == [("a", "b", "c"), ("a", "c")], "two of 25 fit, none of 50"
    assert [len(tries) for tries in found] == [2, 1, 2]


def test_an_engine_that_does_not_tell_probabilities_is_refused():
    ask, _ = replies({"a": None})
    with pytest.raises(ValueError, match=r"does not tell how probable .* give a ratio"):
        escalate(ask, ["a"], COSTS, 0.9)


def test_the_probability_is_that_of_the_decoded_tokens(session):
    """Computed anew by one forward pass per token, with a temperature of one."""
    prompt = session.prompt(QUESTIONS[0])
    answer = session.ask(QUESTIONS[0], budget=4, max_new_tokens=5)
    read = session.compress(QUESTIONS[0], budget=4)
    inputs = session.backbone.place([prompt], [read.video])
    model = session.backbone.model
    embeds = inputs.arguments["inputs_embeds"]
    logs = []
    with torch.inference_mode():
        for _ in range(5):
            scores = model(inputs_embeds=embeds).logits[0, -1].double().log_softmax(-1)
            token = int(scores.argmax())
            if token in session.lm.engine.ends:
                break
            logs.append(float(scores.max()))
            embeds = torch.cat([embeds, model.get_input_embeddings()(torch.tensor([[token]]))], 1)
    assert answer.probability == pytest.approx(math.exp(sum(logs) / len(logs)), rel=1e-4)
    batch = session.ask_all(QUESTIONS, budget=4, max_new_tokens=5)
    assert batch[0].probability == pytest.approx(answer.probability, rel=1e-3)


def test_steps_are_the_fixed_budgets_asked_one_after_the_other(session):
    (cheap,), (dear,) = ([session.ask(QUESTIONS[0], budget=ratio, max_new_tokens=4)] for ratio in (10, 2))
    sure = session.ask(QUESTIONS[0], budget=AutoBudget(quality=0.0), max_new_tokens=4)
    unsure = session.ask(QUESTIONS[0], budget=AutoBudget(quality=1.0), max_new_tokens=4)
    assert (sure.text, sure.tokens_read, len(sure.steps)) == (cheap.text, cheap.tokens_after, 1)
    assert (unsure.text, unsure.tokens_after) == (dear.text, dear.tokens_after)
    assert unsure.tokens_read == cheap.tokens_after + dear.tokens_after == unsure.as_dict()["tokens_read"]
    assert [step.budget for step in unsure.steps] == ["ratio 10", "ratio 2"]
    assert torch.equal(unsure.provenance.weights, dear.provenance.weights)
    assert "largest budget" in unsure.reason
    assert "as requested" in sure.reason
    assert unsure.milliseconds["prefill"] > 0
    text = "".join(session.ask(QUESTIONS[0], budget=AutoBudget(quality=1.0), max_new_tokens=4, stream=True))
    assert text == unsure.text


@pytest.mark.parametrize("method", ["aviot", "low-resolution", FastV(layer=1), "none"])
def test_every_kind_of_method_takes_an_automatic_budget(session, method):
    answer = session.ask(QUESTIONS[1], budget="auto", method=method, max_new_tokens=3)
    assert 1 <= len(answer.steps) <= 2
    assert answer.tokens_read == sum(step.tokens for step in answer.steps)


def test_questions_share_a_total(session):
    each = session.ask(QUESTIONS[0], budget=10, max_new_tokens=1).tokens_after
    more = session.ask(QUESTIONS[0], budget=2, max_new_tokens=1).tokens_after
    auto = AutoBudget(quality=1.0)
    answers = session.ask_all(QUESTIONS, budget=auto, total=3 * each + more, max_new_tokens=3)
    assert sorted(len(answer.steps) for answer in answers) == [1, 1, 2]
    assert sum(answer.tokens_read for answer in answers) <= 3 * each + more
    least = min(answers, key=lambda answer: answer.steps[0].probability)
    assert len(least.steps) == 2, "the least sure one is asked again"
    assert any("total of tokens" in answer.reason for answer in answers)
    with pytest.raises(ValueError, match=r"less than the .* of all questions at the smallest budget"):
        session.ask_all(QUESTIONS, budget=auto, total=each)
    with pytest.raises(ValueError, match="give it with the budget 'auto'"):
        session.ask_all(QUESTIONS, budget=4, total=1000)
    with pytest.raises(ValueError, match="the question is empty"):
        session.ask_all(["What?", " "], budget=4)


def test_nothing_that_does_not_answer_takes_it(session):
    with pytest.raises(ValueError, match="chosen by how sure an answer is"):
        session.compress(QUESTIONS[0], budget="auto")


def test_generate_and_its_scores_are_one_answer(session):
    prompts = [session.prompt(question) for question in QUESTIONS[:2]]
    videos = [session.compress(question, budget=4).video for question in QUESTIONS[:2]]
    inputs = session.backbone.place(prompts, videos)
    watch = Stopwatch(session.backbone.device)
    scored = session.lm.engine.generate_scored(inputs, 4, watch)
    assert session.lm.engine.generate(inputs, 4, watch) == [answer.text for answer in scored]
    assert all(0 < one <= 1 for answer in scored for one in answer.probabilities)


STORED = Calibration(0.93, "10", "2", 0.005, 0.975, 0.0041, 2000)


def test_a_calibration_is_found_beside_the_weights(tmp_path):
    assert Calibration.of(tmp_path) is None
    STORED.save(tmp_path)
    assert Calibration.of(tmp_path) == STORED
    assert Chosen.of(AutoBudget(), STORED) == Chosen(0.93, "calibrated on 2,000 questions")
    assert Chosen.of(AutoBudget(quality=0.5), STORED).quality == 0.5
    assert Chosen.of(AutoBudget(min=20), STORED).quality == DEFAULT_QUALITY
    assert "for other budgets, 10 and 2" in Chosen.of(AutoBudget(min=20), STORED).reason
    assert "no calibration" in Chosen.of(AutoBudget(), None).reason


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: {**stored, "quality": 2},
        lambda stored: {**stored, "min": "much"},
        lambda stored: {**stored, "questions": 0},
        lambda stored: {**stored, "more": 1},
        lambda stored: {name: value for name, value in stored.items() if name != "loss"},
        lambda stored: [stored],
        lambda stored: {**stored, "loss": "x" * 2**17},
    ],
)
def test_a_damaged_calibration_is_refused_by_name(tmp_path, damage):
    STORED.save(tmp_path)
    path = tmp_path / CALIBRATION_FILE
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=f"{CALIBRATION_FILE} is not a calibration"):
        Calibration.of(tmp_path)

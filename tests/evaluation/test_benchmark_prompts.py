"""Our prompts and question spans equal those of lmms-eval for the same records (`made_by` in the file says how)."""

import json
import random
from pathlib import Path

import pytest

from aviot.evaluation.benchmarks.definitions import BENCHMARKS
from aviot.evaluation.fields import ItemError
from aviot.evaluation.lmms.requests import question_span

RECORDED = json.loads((Path(__file__).parent / "task_prompts.json").read_text())
PROMPTS = RECORDED["prompts"]
PARTS = {part.task: (benchmark, part) for benchmark in BENCHMARKS for part in benchmark.parts}


def named(entry):
    return entry["task"]


def test_every_benchmark_is_recorded():
    recorded = {PARTS[entry["task"]][0].name for entry in PROMPTS if entry["task"] in PARTS}
    assert recorded == {benchmark.name for benchmark in BENCHMARKS}
    assert len(BENCHMARKS) == 10
    assert RECORDED["made_by"]["lmms-eval"] == "0.7.3"


@pytest.mark.parametrize("entry", PROMPTS, ids=named)
def test_the_span_found_in_a_prompt_is_what_asks(entry):
    low, high = question_span(entry["prompt"], entry["record"])
    assert entry["prompt"][low:high] == entry["asks"]


@pytest.mark.parametrize("entry", [entry for entry in PROMPTS if entry["task"] in PARTS], ids=named)
def test_our_prompt_is_the_harness_own(entry):
    benchmark, part = PARTS[entry["task"]]
    item = benchmark.item(entry["record"], part, "1")
    assert item.prompt.text == entry["prompt"]
    assert item.prompt.text[slice(*item.prompt.span)] == entry["asks"]
    assert item.has_answer, item.problem


def test_answers_are_the_right_ones():
    answers = {}
    for entry in PROMPTS:
        if entry["task"] in PARTS:
            benchmark, part = PARTS[entry["task"]]
            item = benchmark.item(entry["record"], part, "1")
            answers.setdefault(entry["task"], []).append(item.right if item.is_choice else item.answers[0])
    assert answers["videomme"] == [1, 0, 0]
    assert answers["mvbench_moving_count"] == [1]
    assert answers["nextqa_mc_test"] == [2]
    assert answers["perceptiontest_val_mc"] == [0, 2]
    assert answers["longvideobench_val_v"] == [1, 1]
    assert answers["video_mmmu_adaptation"] == [2, 2, "12.5"]
    assert answers["tempcompass_multi_choice"] == [0]
    assert answers["tempcompass_yes_no"] == [0]
    assert answers["activitynetqa"] == ["yes", "go", "go"]
    assert answers["lvbench"] == [0, 0]


def test_a_record_of_another_benchmark_is_refused():
    benchmark, part = PARTS["nextqa_mc_test"]
    with pytest.raises(ItemError, match="it is not a record of nextqa_mc_test: KeyError 'a0'"):
        benchmark.item({"video": "x", "question": "What?", "options": ["a", "b"]}, part, "1")


WORDS = (
    "the video answer A B (A) A. B. option letter question Question: Option: Select best only give 1 2 What is ? . you "
    "directly. choices given Answer with the option's letter yes no"
)


def drawn(draw, name):
    """A record whose question and options are made of the words that prompts are made of."""
    options = [" ".join(draw.choices(WORDS.split(), k=draw.randint(1, 4))) for _ in range(3)]
    labelled = [f"{letter}. {option}" for letter, option in zip("ABC", options, strict=True)]
    record = {"question": " ".join(draw.choices(WORDS.split(), k=draw.randint(2, 6))), "answer": "A"}
    record |= dict.fromkeys(("video", "videoID", "video_idx", "video_name", "video_path", "id", "video_id"), "v")
    record |= {"options": labelled if name == "videomme" else options, "option": labelled, "candidates": options}
    if name in ("nextqa", "longvideobench"):
        for column in ("options", "option", "candidates"):
            del record[column]
        filled = [*options, *(["x", "y"] if name == "nextqa" else ["N/A"] * 2)]
        record |= {f"{'a' if name == 'nextqa' else 'option'}{place}": option for place, option in enumerate(filled)}
    return {key: value for key, value in record.items() if name != "egoschema" or key not in ("options", "candidates")}


@pytest.mark.parametrize(
    "benchmark", [each for each in BENCHMARKS if each.name not in ("activitynetqa", "tempcompass")]
)
def test_the_span_that_is_found_is_the_one_the_prompt_was_made_with(benchmark):
    draw = random.Random(0)
    for _ in range(100):
        record = drawn(draw, benchmark.name)
        asked = benchmark.item(record, draw.choice(benchmark.parts), "1").prompt
        assert question_span(asked.text, record) == asked.span, asked.text


@pytest.mark.parametrize(
    ("text", "record", "asks"),
    [
        ("Hint: be brief.\nWhat?  Answer briefly.", {"question": "What?"}, "What?"),
        ("Look: why so? (a) x (b) y. Thanks.", {"question": "Why so?", "options": ["x", "y"]}, "why so? (a) x (b) y"),
        ("x or y?\nA. y\nB. x\nGo.", {"question": "x or y?", "choices": {"A": "y", "B": "x"}}, "x or y?\nA. y\nB. x"),
        ("Pick.\n1. Who?\nWho?\nA. me\nB. you", {"question": "Who?", "options": ["me", "you"]}, "Who?\nA. me\nB. you"),
        ("Wie?\nAnswer with the option's letter from the given choices directly.", {"question": "Wo?"}, "Wie?"),
        ("What is shown?\nAnswer the question using a single word or phrase.", {}, "What is shown?"),
        ("看视频。图中有什么请直接回答", {"question": "图中有什么"}, "图中有什么"),
        ("Watch.\nwatch", {"question": "watch", "options": []}, "watch"),
        ("Say it.\nSay the word.", {"question": "Say", "options": ["the", "it"]}, "Say"),
        (
            "Who\n\nOptions:\n\nA) me\nB) us\nSay.",
            {"question": "Who\n", "options": ["me", "us"]},
            "Who\n\nOptions:\n\nA) me\nB) us",
        ),
        ("Q?\n(A) 3\n(B) 3\nOnly give the best option.", {"question": "Q?", "options": [3, 3]}, "Q?\n(A) 3\n(B) 3"),
    ],
)
def test_spans_of_other_prompts(text, record, asks):
    low, high = question_span(text, record)
    assert text[low:high] == asks

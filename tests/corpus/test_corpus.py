"""Questions over a corpus: the answers of an evaluation, each once, whatever is interrupted; no Ray here."""

import json
import threading

import pytest
from evaluation_sets import load, rows, write_items

from aviot.budget import AutoBudget, Budget
from aviot.corpus.answers import AnswersExistError, NoAnswersError, about_path
from aviot.corpus.config import CorpusConfig
from aviot.corpus.run import NOT_ANSWERED, answer_corpus
from aviot.corpus.work import VideoWork, WorkerPlan, answers
from aviot.utils.journal import JournalError


def config(made, out, **changes):
    places = {"questions": made / "items.jsonl", "model": made / "model", "out": out}
    return CorpusConfig(**places | {"budget": Budget(ratio=4), "max_new_tokens": 3} | changes)


def here(stop_after=None, encoded=None):
    """Workers in this process, which get their work as a worker of another process does."""

    def workers(chosen, work):
        plan, count = WorkerPlan.of(chosen, "cpu"), 0
        for one in work:
            again = VideoWork.from_json(one.to_json())
            if encoded is not None:
                encoded.append(again.name)
            for number, row in answers(load(chosen.model), again, chosen.setting, plan, threading.Lock()):
                yield number, json.loads(json.dumps(row))
                count += 1
                if count == stop_after:
                    raise KeyboardInterrupt

    return workers


def same_answers(out, evaluated):
    """Whether the file has the evaluation's answers, in its order."""
    found = rows(out)
    assert [row["item"] for row in found] == sorted(evaluated)
    for row in found:
        expected = evaluated[row["item"]]
        assert row["id"] == expected["id"]
        assert row.get("answer") == expected.get("prediction")
        assert row.get("failed") == expected.get("reason")
        counts = ("frames", "supports", "tokens_before", "tokens_after")
        assert {name: row[name] for name in counts if name in row} == {
            name: expected[name] for name in counts if name in expected
        }
    return True


def test_the_answers_of_an_evaluation_from_one_encoding_of_each_video(made, evaluated, tmp_path):
    encoded = []
    result = answer_corpus(config(made, tmp_path / "a.jsonl"), workers=here(encoded=encoded))
    assert same_answers(tmp_path / "a.jsonl", evaluated)
    assert sorted(encoded) == ["broken.mp4", "nowhere.mp4", "v0.mp4", "v1.mp4", "v2.mp4"]
    assert {row["id"] for row in result.failed} == {"broken", "missing"}
    assert result.as_dict() | {"failed": 2} == {"questions": 12, "videos": 5, "answered": 10, "failed": 2}


@pytest.mark.parametrize("together", [1, 2])
def test_interrupted_and_resumed_twice(made, tmp_path, together):
    whole = config(made, tmp_path / "whole.jsonl", together=together)
    answer_corpus(whole, workers=here())
    out = tmp_path / "a.jsonl"
    chosen, asked = config(made, out, together=together), []
    for turn, stop in enumerate((2, 5)):
        with pytest.raises(KeyboardInterrupt):
            answer_corpus(chosen, resume=turn > 0, workers=here(stop, asked))
        with out.open("ab") as file:
            file.write(b'{"item": 7, "id": "to')  # torn by a kill
    answer_corpus(chosen, resume=True, workers=here(None, asked))
    assert out.read_bytes() == whole.out.read_bytes()
    assert asked.count("v2.mp4") == 1


def test_a_finished_batch_asks_nothing(made, tmp_path):
    chosen = config(made, tmp_path / "a.jsonl")
    answer_corpus(chosen, workers=here())
    before = chosen.out.read_bytes()
    asked = []
    result = answer_corpus(chosen, resume=True, workers=here(encoded=asked))
    assert not asked
    assert len(result.failed) == 2
    assert chosen.out.read_bytes() == before


def test_failed_questions_are_asked_again(made, tmp_path):
    (tmp_path / "late.mp4").write_bytes(b"no video" * 99)
    items = [{"id": "a", "video": str(made / "v0.mp4"), "question": "What?"}]
    items += [{"id": "b", "video": str(tmp_path / "late.mp4"), "question": "What?"}]
    chosen = config(made, tmp_path / "a.jsonl", questions=write_items(tmp_path / "q.jsonl", items))
    assert [row["id"] for row in answer_corpus(chosen, workers=here()).failed] == ["b"]
    (tmp_path / "late.mp4").write_bytes((made / "v0.mp4").read_bytes())
    assert len(answer_corpus(chosen, resume=True, workers=here()).failed) == 1
    asked = []
    assert not answer_corpus(chosen, resume=True, retry=True, workers=here(encoded=asked)).failed
    assert len(asked) == 1
    first, second = rows(chosen.out)
    assert first["answer"] == second["answer"]


def test_rows_that_come_twice_are_written_once_and_missing_ones_fail(made, evaluated, tmp_path):
    def forgetful(chosen, work):
        for number, row in here()(chosen, work):
            if number != 6:
                yield number, row
                yield number, row

    out = tmp_path / "a.jsonl"
    result = answer_corpus(config(made, out), workers=forgetful)
    found = rows(out)
    assert [row["item"] for row in found] == list(range(12))
    assert found[6]["failed"] == NOT_ANSWERED
    assert len(result.failed) == 3


def test_other_batches_are_refused(made, tmp_path):
    chosen = config(made, tmp_path / "a.jsonl")
    with pytest.raises(NoAnswersError, match="holds no batch to resume"):
        answer_corpus(chosen, resume=True, workers=here())
    answer_corpus(chosen, workers=here())
    with pytest.raises(AnswersExistError, match="already holds answers"):
        answer_corpus(chosen, workers=here())
    other = config(made, chosen.out, budget=Budget(keep=0.5))
    with pytest.raises(ValueError, match=r"another batch: budget was '4', is 'keep=0.5'"):
        answer_corpus(other, resume=True, workers=here())
    lines = chosen.out.read_bytes().splitlines(keepends=True)
    chosen.out.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(JournalError, match="line 13 is not an answer of this batch, or its second one"):
        answer_corpus(chosen, resume=True, workers=here())
    about_path(chosen.out).write_text("{")
    with pytest.raises(JournalError, match="is damaged"):
        answer_corpus(chosen, resume=True, workers=here())


def test_choices_are_checked_before_anything_is_read(made, tmp_path):
    with pytest.raises(ValueError, match="workers must be a whole number"):
        config(made, tmp_path / "a.jsonl", workers=0)
    with pytest.raises(ValueError, match="has the questions"):
        config(made, made / "items.jsonl")
    with pytest.raises(ValueError, match="not a directory"):
        config(made, tmp_path / "no" / "a.jsonl")


def test_an_automatic_budget_asks_again_and_says_so(made, evaluated, tmp_path):
    auto = AutoBudget(min=Budget(ratio=8), max=Budget(ratio=4), quality=1.0)
    chosen = config(made, tmp_path / "a.jsonl", budget=auto)
    answer_corpus(chosen, workers=here())
    assert same_answers(tmp_path / "a.jsonl", evaluated)  # those of ratio 4
    answered = [row for row in rows(chosen.out) if "answer" in row]
    assert all(row["budget"] == "ratio 4" and row["tokens_read"] > row["tokens_after"] for row in answered)
    assert json.loads(about_path(chosen.out).read_text())["budget"] == auto.text

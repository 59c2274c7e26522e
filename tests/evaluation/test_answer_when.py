"""`ask(..., grounding=True)` and `aviot answer --when`, with a real model."""

import json

import pytest
from evaluation_sets import load
from test_grounding import Scripted
from typer.testing import CliRunner

from aviot.cli import app
from aviot.session import VideoLM

METHODS = ("aviot", "uniform", "none", "visionzip", "framefusion")


@pytest.fixture(scope="module")
def session(made):
    return load(made / "model").open(made / "v1.mp4")


def test_an_answer_says_when_only_if_asked(session):
    plain = session.ask("What?", budget=2, max_new_tokens=2)
    assert (plain.when, plain.when_from) == ((), None)
    assert "when" not in plain.as_dict()


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_method_has_spans(session, method):
    answer = session.ask("What?", budget=2, method=method, max_new_tokens=2, grounding=True)
    assert answer.when_from == "provenance"
    assert answer.when
    for span in answer.when:
        assert 0 <= span.start < span.end <= session.video.duration
    assert answer.as_dict()["when"] == [list(span) for span in answer.when]


def test_an_automatic_budget_has_spans(session):
    assert session.ask("What?", budget="auto", max_new_tokens=2, grounding=True).when


def test_the_models_own_words_come_first(made):
    lm = VideoLM(load(made / "model").backbone, engine=Scripted())
    answer = lm.open(made / "v1.mp4").ask("When?", budget=2, grounding=True)
    assert answer.text == "from 0.5s to 2s"
    assert (answer.when, answer.when_from) == (((0.5, 2.0),), "words")


def test_a_stream_has_no_spans(session):
    with pytest.raises(ValueError, match="grounding needs the complete answer"):
        session.ask("What?", stream=True, grounding=True)


def test_the_command_prints_the_spans(made):
    words = ["answer", str(made / "v1.mp4"), "-q", "What?", "-m", str(made / "model"), "-r", "2", "--when"]
    said = CliRunner().invoke(app, [*words, "--max-new-tokens", "2"])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines()[-1].startswith("when: ")
    assert said.stdout.splitlines()[-1].endswith(" s (where its tokens come from)")
    report = json.loads(CliRunner().invoke(app, [*words, "--json", "--max-new-tokens", "2"]).stdout)
    assert report["when_from"] == "provenance"
    assert all(len(span) == 2 for span in report["when"])

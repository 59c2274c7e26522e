"""The support and frame that are shown first depend on the question."""

import pytest
import torch

from aviot.explain.view import starting_pair


def shares(*rows):
    """Return the distributions of supports over eight frames."""
    frames = torch.zeros(len(rows), 8)
    for support, row in enumerate(rows):
        for frame, share in row.items():
            frames[support, frame] = share
    return frames


SUPPORTS = shares({0: 0.7, 1: 0.3}, {2: 0.4, 3: 0.3, 4: 0.3}, {5: 1.0}, {6: 0.5, 7: 0.5})


@pytest.mark.parametrize(("about", "expected"), [((0,), (0, 0)), ((3,), (1, 3)), ((5,), (2, 5)), ((7,), (3, 7))])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_it_is_the_support_that_the_question_is_about(about, expected, scale):
    """Prefer relevance to purity, at any scale of a model's relevance."""
    relevance = torch.full((8,), -0.2)
    relevance[list(about)] = 0.3
    assert starting_pair(SUPPORTS, scale * relevance) == expected


def test_a_brief_moment_that_is_in_no_support_alone_is_found():
    """Find a support whose mean relevance is dominated by its other frames."""
    frames = shares({0: 1.0}, {1: 0.5, 2: 0.5}, {5: 0.4, 6: 0.4, 7: 0.2})
    relevance = torch.tensor([-0.1, -0.1, -0.1, -0.1, -0.1, -0.3, -0.3, 0.3])
    assert int((frames @ relevance).argmax()) != 2
    assert starting_pair(frames, relevance) == (2, 7)


def test_a_copy_makes_way_for_a_mixture_of_the_same_frames_alone():
    frames = shares({0: 1.0}, {1: 0.5, 2: 0.5}, {6: 0.6, 7: 0.4})
    relevance = torch.tensor([0.3, 0.3, 0.29, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert starting_pair(frames, relevance)[0] == 1
    assert starting_pair(frames[[0, 2]], relevance)[0] == 0


def test_where_nothing_is_more_relevant_the_clearest_comes_first():
    assert starting_pair(SUPPORTS, torch.full((8,), 0.1)) == (0, 0)
    assert starting_pair(torch.ones(1, 1), torch.zeros(1)) == (0, 0)


@pytest.mark.parametrize("compressor", ["uniform", "segment-mean"])
def test_methods_that_ignore_the_question_open_where_it_is_relevant(explained, compressor):
    case = explained(6, ratio=2.0, compressor=compressor)
    (condition,), (view,) = case.study.conditions, case.views
    relevance = case.session.relevance(case.study.questions[0])
    assert (condition.support, condition.frame) == starting_pair(view.frames, relevance)
    held = [row for row in range(3) if view.frames[row].max() > 0]
    best = max(held, key=lambda row: float(relevance[view.frames[row] > 0].max()))
    assert best == condition.support or compressor == "segment-mean"


def test_every_condition_has_the_start_of_the_question_that_is_asked(case):
    for condition in case.study.conditions:
        relevance = case.session.relevance(case.study.questions[condition.question])
        expected = starting_pair(case.views[condition.view].frames, relevance)
        assert (condition.support, condition.frame) == expected
    reported = [(each["support"], each["frame"]) for each in case.report["conditions"]]
    assert reported == [(each.support, each.frame) for each in case.study.conditions]


def test_relevance_is_the_compressors_own(case):
    """Compare with the cosine of projected frames and the question in one layer's routes."""
    session, question = case.session, case.study.questions[0]
    method, prompt = session.backbone.method("aviot"), session.prompt(question)
    with torch.inference_mode():
        features = session.backbone.features(session.encoded, method, conditioned=True)
        routes = method._question_inputs(features, prompt.question)
    assert torch.allclose(session.relevance(question), routes["relevance"].float().cpu(), atol=1e-6)

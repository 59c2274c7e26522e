"""Merges of a stream's memory for one question."""

import pytest
import torch

from aviot.streaming.asking import QuestionBank, merged_for_question
from aviot.streaming.bank import FEATURES, SupportBank
from aviot.streaming.records import FrameRange


def bank(frames, supports):
    """Return a bank after so many random frames, two per second."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(frames, 3, 4, generator=generator)
    made = SupportBank(supports, 2, {FEATURES: features})
    made.add({FEATURES: features}, [FrameRange.frame(i, i, i / 2) for i in range(frames)])
    return made, features


def test_what_the_question_is_about_stays_apart():
    made, _ = bank(200, 24)
    view, relevance = made.view(), torch.zeros(24)
    relevance[9:12] = 1.0
    asked = QuestionBank(8, view, relevance).view()
    apart = [(record.first, record.last) for record in asked.records]
    assert len(asked) == 8
    for record in view.records[9:12]:
        assert (record.first, record.last) in apart
    alike = QuestionBank(8, view, torch.full((24,), 0.3)).view()
    own = SupportBank(8, 2, view.tensors)
    own.add(view.tensors, view.records)
    assert [record.last for record in alike.records] == [record.last for record in own.view().records]


def test_supports_stay_means_of_their_frames():
    made, features = bank(300, 32)
    relevance = torch.randn(32, generator=torch.Generator().manual_seed(1))
    asked = merged_for_question(made.view(), relevance, 5)
    assert len(asked) == 10
    assert [record.first for record in asked.records][1:] == [record.last + 1 for record in asked.records][:-1]
    for support, record in zip(asked.features, asked.records, strict=True):
        assert torch.allclose(support, features[record.first : record.last + 1].mean(0), atol=1e-5)


@pytest.mark.parametrize(("supports", "left"), [(1, 4), (2, 4), (7, 14), (8, 16), (30, 16)])
def test_a_memory_below_twice_the_budget_is_left(supports, left):
    view = bank(100, 16)[0].view()
    found = merged_for_question(view, torch.zeros(16), supports)
    assert len(found) == left
    assert (found is view) == (left == 16)

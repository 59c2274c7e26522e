"""ToMe against its own code's results, and the rounds that reach a count."""

import golden_arrays
import pytest
import torch

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers.tome import merge_round, rounds_to, tome


@pytest.mark.parametrize("name", golden_arrays.names("tome"))
def test_tome(name):
    case = golden_arrays.load("tome", name)
    made = tome(case["features"], case.params["rounds"], case.params["arrangement"])
    torch.testing.assert_close(made.tokens, case["tokens"], atol=1e-5, rtol=1e-5)
    assert torch.equal(made.sizes, case["sizes"])
    assert torch.equal(made.membership, case["membership"])


@pytest.mark.parametrize(("count", "limit"), [(392, 100), (392, 196), (392, 391), (393, 196), (7, 1), (98000, 37)])
def test_rounds_are_as_few_as_halving_allows(count, limit):
    left, halvings, rounds = count, 0, rounds_to(count, limit)
    for removed in rounds:
        assert 0 < removed <= left // 2
        left -= removed
    while count > limit:
        count, halvings = count - count // 2, halvings + 1
    assert (left, len(rounds)) == (limit, halvings)


def test_every_count_is_reached():
    x = golden_arrays.load("tome", "raster_1round")["features"]
    video = VideoFeatures(x, (7, 7))
    for limit in (1, 2, 97, 98, 99, 196, 391):
        made = get("tome")(video, budget=Budget(tokens=limit))
        assert len(made) == limit
        sources, counts = made.mixture.indices[made.mixture.weights > 0].unique(return_counts=True)
        assert torch.equal(sources, torch.arange(392))  # every source is in one token
        assert (counts == 1).all()


def test_a_round_removes_at_most_half():
    x = torch.randn(7, 4)
    assert len(merge_round(x, torch.ones(7), 99).tokens) == 4
    assert torch.equal(merge_round(x, torch.ones(7), 0).tokens, x)


def test_zero_vectors_merge_with_the_first_partner():
    made = tome(torch.zeros(2, 3, 4), [2])
    assert torch.equal(made.tokens, torch.zeros(4, 4))
    assert made.sizes.tolist() == [1, 3, 1, 1]


def test_frames_by_turns_need_an_even_number():
    with pytest.raises(ValueError, match="needs an even number of frames, got 3; use 'raster'"):
        tome(torch.randn(3, 4, 8), [2], "frames")

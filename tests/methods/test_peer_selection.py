"""VidCom2, its exact variant, EVS and DyCoke against their own code's results, and at their edges."""

import math

import golden_arrays
import pytest
import torch

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import dycoke, evs, vidcom2, vidcom2_exact


def assert_close(got, expected):
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def kept(name, features, limit, **extras):
    """Return the indices that a registered method keeps under a budget of tokens."""
    video = VideoFeatures(features, (1, features.shape[1]), extras=extras)
    made = get(name)(video, budget=Budget(tokens=limit))
    assert torch.equal(made.tokens, video.flat()[made.mixture.indices[:, 0]])
    return made.mixture.indices[:, 0]


@pytest.mark.parametrize("name", golden_arrays.names("vidcom2"))
def test_vidcom2(name):
    case = golden_arrays.load("vidcom2", name)
    x, retention = case["features"], case.params["base_scale"]
    scores = vidcom2.redundancy(x)
    assert_close(scores.video, case["video_score"])
    assert_close(scores.frame, case["frame_score"])
    scales = vidcom2.frame_scales(vidcom2.frame_factors(scores.video), retention)
    assert_close(scales, case["scales"])
    counts = vidcom2.frame_counts(scales, x.shape[1])
    assert torch.equal(counts, case["frame_counts"])
    if case.params["path"] == "llava_vid":
        side = math.isqrt(x.shape[1])
        assert torch.equal(vidcom2.vidcom2_with_newlines(x, (side, side), retention), case["keep_indices"])
    else:
        assert torch.equal(vidcom2.vidcom2(x, retention), case["keep_indices"])
    plain = vidcom2.vidcom2(x, retention)
    assert torch.equal(kept("vidcom2", x, len(plain)), plain)  # the method finds the retention of that count


def test_vidcom2_takes_the_largest_count_within_the_budget():
    x = golden_arrays.load("vidcom2", "qwen_r25_T12")["features"]
    patches = x.shape[1]
    factors = vidcom2.frame_factors(vidcom2.redundancy(x).video)
    steps = ((torch.arange(patches) + 0.5) / patches / factors[:, None]).flatten() * (1 + 1e-5)  # a count grows here
    counts = [int(vidcom2.frame_counts(vidcom2.frame_scales(factors, step), patches).sum()) for step in steps.tolist()]
    assert max(counts) == x.shape[0] * patches
    for limit in range(13, max(counts), 17):
        found = len(kept("vidcom2", x, limit))
        assert max(count for count in [len(x), *counts] if count <= limit) <= found <= limit


def test_vidcom2_below_one_token_per_frame_drops_the_most_redundant():
    x = golden_arrays.load("vidcom2", "qwen_r10_T16")["features"]
    total = vidcom2.redundancy(x).total
    best = total.min(1)
    expected = (torch.arange(16) * 49 + best.indices)[best.values.argsort()[:5]].sort().values
    assert torch.equal(kept("vidcom2", x, 5), expected)


@pytest.mark.parametrize("name", golden_arrays.names("evs"))
def test_evs_and_exact_vidcom2(name):
    case = golden_arrays.load("evs", name)
    x, rate = case["features"], case.params["q"]
    frames, patches = x.shape[:2]
    if case.params["algorithm"] == "evs":
        count = evs.evs_count(frames, patches, rate)
        index = evs.evs(x, count)
        assert torch.equal(kept("evs", x, count), index)
    else:
        count = vidcom2_exact.exact_count(frames, patches, rate)
        index = vidcom2_exact.vidcom2_exact(x, 1.0 - rate, count)
    assert torch.equal(index, case["keep_indices"])
    mask = torch.zeros(frames * patches, dtype=torch.bool).index_fill(0, index, True)
    assert torch.equal(mask, case["retention_mask"].bool())
    if "mrope" in case.params:
        merge = case.params["spatial_merge_size"]
        grid = case.params["H"] // merge, case.params["W"] // merge
        given = case.params["mrope"]
        ids = evs.rope_ids(index, grid, given["tokens_per_second"], given["video_second_per_grid"])
        assert torch.equal(ids, case["mrope_thw"])


def test_exact_vidcom2_returns_every_count():
    x = golden_arrays.load("vidcom2", "qwen_clamp")["features"]
    for limit in (1, 5, 6, 50, 100, 143, 144):
        assert len(kept("vidcom2-exact", x, limit).unique()) == limit


@pytest.mark.parametrize("name", ["evs", "vidcom2-exact"])
def test_deepstack_features_count_as_channels(name):
    x = golden_arrays.load("vidcom2", "qwen_r25_T12")["features"]
    layers = {f"deepstack_{number}": x.roll(number + 1, 0) for number in (10, 0, 2)}
    together = torch.cat((x, *(layers[f"deepstack_{number}"] for number in (0, 2, 10))), -1)
    assert torch.equal(kept(name, x, 100, **layers), kept(name, together, 100))
    assert not torch.equal(kept(name, x, 100, **layers), kept(name, x, 100))


def test_seconds_of_a_temporal_patch_are_truncated():
    index = torch.arange(0, 48, 5)
    expected = [[number // 12 * 2, number % 12 // 4, number % 4] for number in index.tolist()]
    assert evs.rope_ids(index, (3, 4), 2.0, 1.9).tolist() == expected


def test_evs_refuses_less_than_its_first_frame():
    with pytest.raises(ValueError, match=r"'evs' keeps at least 49 of 294 tokens \(16.7%\) of a video of 6 frames"):
        kept("evs", torch.randn(6, 49, 8), 48)


@pytest.mark.parametrize("name", golden_arrays.names("dycoke"))
def test_dycoke(name):
    case = golden_arrays.load("dycoke", name)
    x = case["features"]
    count = dycoke.tokens_per_reduced_frame(x.shape[1], case.params["K"])
    assert torch.equal(dycoke.dycoke(x, count), case["keep_indices"])
    assert torch.equal(kept("dycoke", x, len(case["keep_indices"])), case["keep_indices"])


def test_dycoke_refuses_less_than_its_whole_frames():
    x = torch.randn(16, 49, 8)
    assert len(kept("dycoke", x, 5 * 49)) == 5 * 49  # frames 0, 4, 8, 12 and 14
    with pytest.raises(ValueError, match=r"'dycoke' keeps at least 245 of 784 tokens \(31.2%\)"):
        kept("dycoke", x, 5 * 49 - 1)


@pytest.mark.parametrize(("frames", "expected"), [(1, [0]), (2, [0]), (3, [0, 2]), (4, [0, 2])])
def test_dycoke_of_few_frames(frames, expected):
    """The original fails; a last frame without a partner stays."""
    reduced, whole = dycoke.reduced_and_whole(frames)
    assert whole == expected
    assert sorted([*reduced, *whole]) == list(range(frames))

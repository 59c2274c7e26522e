"""VisionZip against its own code's results, against a plain reading of its rules, and how it meets a budget."""

import math

import golden_arrays
import pytest
import torch
from torch.nn.functional import cosine_similarity

from aviot import Budget
from aviot.explain.view import view_of
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import visionzip as module
from aviot.methods.peers.visionzip import (
    VisionZip,
    split_tokens,
    visionzip,
    visionzip_image,
    with_newlines_of_grid,
)

NEWLINE = 7.0


def run(case):
    """Return the result and its tokens in the sequence of the case."""
    given, x = case.params, case["features"]
    counts = given["dominant"], given["contextual"]
    if given["variant"] == "clip":
        made = visionzip_image(x, case["cls_attention_heads"], case["keys"], *counts)
        return made, made.tokens
    assert split_tokens(given["spatial_tokens"], given["dominant_ratio"]) == counts
    made = visionzip(x, case["frame_attention"], case["keys"], *counts)
    if given["newline"] == "one_token":
        return made, made.tokens
    side = math.isqrt(x.shape[1])
    return made, with_newlines_of_grid(made, (side, side), torch.full((x.shape[2],), NEWLINE))


def check(case):
    x, (made, tokens) = case["features"], run(case)
    assert "dominant_index" not in case.tensors or torch.equal(made.dominant, case["dominant_index"])
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=1e-5)
    own = made.tokens.flatten(0, 1)
    rebuilt = made.sources.mixture(len(own), *x.shape[:2]).rebuild(x.flatten(0, 1))
    torch.testing.assert_close(rebuilt, own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", golden_arrays.names("visionzip"))
def test_golden(name):
    check(golden_arrays.load("visionzip", name))


@pytest.mark.parametrize("name", ["ov_20", "video_grid_15", "clip_image"])
def test_frames_one_by_one_give_the_same(name, monkeypatch):
    monkeypatch.setattr(module, "chunk_size", lambda elements: 1)
    check(golden_arrays.load("visionzip", name))


def plain(x, ranked, keys, contextual):
    """Return one frame's tokens by the rules, and where they stand; `ranked` are its dominant tokens."""
    dominant = sorted(ranked)
    others = [place for place in range(len(x)) if place not in dominant]
    step = max(1, len(others) // contextual)
    targets = others[::step][:contextual]
    joined = {target: [] for target in targets}
    for place in others:
        if place not in joined:
            joined[targets[int(cosine_similarity(keys[place], keys[targets], dim=-1).argmax())]].append(place)
    added = [x[target] + x[joined[target]].mean(0) if joined[target] else x[target] for target in targets]
    return torch.stack([*x[dominant], *added]), targets


@pytest.mark.parametrize("patches", [1, 5, 36])
@pytest.mark.parametrize("count", [1, 2, 4, 20, 35])
@pytest.mark.parametrize("share", [54 / 64, 0.5, 0.0])
def test_the_rules_read_one_by_one(patches, count, share):
    count = min(count, patches)
    g = torch.Generator().manual_seed(patches + count)
    x, keys = torch.randn(3, patches, 6, generator=g), torch.randn(3, patches, 4, generator=g)
    attention = torch.rand(3, patches, generator=g)
    dominant, contextual = split_tokens(count, share)
    made = visionzip(x, attention, keys, dominant, contextual)
    for frame in range(3):
        ranked = attention[frame].argsort(descending=True)[:dominant].tolist()
        tokens, targets = plain(x[frame], ranked, keys[frame], contextual)
        torch.testing.assert_close(made.tokens[frame], tokens, atol=1e-5, rtol=1e-5)
        assert made.contextual[frame].tolist() == targets
        assert made.ranked[frame].tolist() == ranked


def test_published_counts():
    assert [split_tokens(count) for count in (20, 30, 40, 50)] == [(16, 4), (25, 5), (33, 7), (42, 8)]


def video(frames=7, patches=12, grid=(3, 4)):
    g = torch.Generator().manual_seed(0)
    extras = {
        "attention": torch.rand(frames, patches, generator=g),
        "attention_keys": torch.randn(frames, patches, 5, generator=g),
    }
    return VideoFeatures(torch.randn(frames, patches, 6, generator=g), grid, extras=extras)


@pytest.mark.parametrize("share", [54 / 64, 0.0])
def test_frames_share_the_budget_alike(share):
    given = video()
    for limit in range(7, 84):
        made = VisionZip(share)(given, budget=Budget(tokens=limit))
        assert len(made) == limit // 7 * 7
        expected = visionzip(given.features, *given.extras.values(), *split_tokens(limit // 7, share))
        assert torch.equal(made.tokens, expected.tokens.flatten(0, 1))
        torch.testing.assert_close(made.times, torch.arange(7.0).repeat_interleave(limit // 7))


@pytest.mark.parametrize("share", [1.0, -0.1, float("nan")])
def test_some_tokens_must_be_contextual(share):
    with pytest.raises(ValueError, match="share of dominant tokens must be at least 0 and below 1, got"):
        VisionZip(share)


def test_sums_have_weights_of_two_and_shares_of_one():
    made = get("visionzip")(video(), budget=Budget(tokens=28))
    sums = made.mixture.weights.sum(1).view(7, 4)
    torch.testing.assert_close(sums, torch.tensor([1.0, 1.0, 1.0, 2.0]).expand(7, -1))
    torch.testing.assert_close(made.mixture.dense() @ video().flat(), made.tokens)
    torch.testing.assert_close(made.mixture.frame_shares(), torch.eye(7).repeat_interleave(4, 0))
    own = made.subset(torch.tensor([3])).mixture  # a target and the mean of the eight that it gets
    shares = own.shares()[own.weights > 0].sort().values
    torch.testing.assert_close(shares, torch.tensor([*[1 / 16] * 8, 1 / 2]))
    cells = torch.stack((own.indices % 12 // 4, own.indices % 4), -1)
    torch.testing.assert_close(made.positions[3, 1:], (own.shares()[..., None] * cells)[0].sum(0))


def test_the_explorer_shows_distributions_of_sums():
    given = video()
    made = get("visionzip")(given, budget=Budget(tokens=28))
    checks = view_of(made, None, given.features, torch.zeros(0, 7)).checks
    assert max(checks.row_sums, checks.frame_means, checks.rebuilt) < 1e-5


def test_below_one_token_per_frame_the_most_attended_stay():
    given = video()
    best = given.extras["attention"].max(1)
    frames = best.values.argsort(descending=True)[:3].sort().values
    made = get("visionzip")(given, budget=Budget(tokens=3))
    assert torch.equal(made.tokens, given.features[frames, best.indices[frames]])

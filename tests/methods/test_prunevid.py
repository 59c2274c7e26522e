"""PruneVid before the decoder against its authors' arrays, and how it meets a budget."""

from dataclasses import replace

import pytest
import torch
from golden_arrays import load, names

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers.prunevid import PruneVidParameters, merge, refine, segment


@pytest.mark.parametrize("name", names("prunevid"))
def test_golden(name):
    case = load("prunevid", name)
    parameters = PruneVidParameters(
        static_threshold=case.params["tau"],
        cluster_ratio=case.params["cluster_ratio"],
        segment_ratio=case.params["temporal_segment_ratio"],
        neighbours=case.params["k"],
    )
    segments = segment(case["features"], parameters)
    assert torch.equal(segments.labels, case["frame_labels"])
    assert segments.refined == tuple(case["frame_labels_refined"].tolist())
    assert segments.lengths == tuple(case["window_sizes"].tolist())
    static, dynamic = zip(*segments.sizes(parameters), strict=True)
    assert static == tuple(case["static_sizes"].tolist())
    assert dynamic == tuple(case["dynamic_sizes"].tolist())
    groups = merge(case["features"], segments, parameters)
    tokens = groups.means(case["features"].flatten(0, 1))
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("labels", "refined"),
    [
        ("0011", "0011"),
        ("0001000", "0000000"),  # both runs of 0 are its longest; 1 is stray
        ("00010022", "00000022"),  # the shorter run of 0 opens too, and joins the longer neighbour
        ("1002", "0000"),  # at either end
        ("0012220", "0022222"),  # the longer neighbour, on the right
        ("001022", "000022"),  # equally long ones: the left
        ("0010012222", "0000002222"),  # the frames taken in make the left one longer than the right one
        ("0123", "0000"),  # nothing stays
        ("1", "0"),
    ],
)
def test_stray_frames_join_the_longer_neighbour(labels, refined):
    assert "".join(map(str, refine([int(label) for label in labels]))) == refined


def video(frames, noise=1.0, patches=48):
    g = torch.Generator().manual_seed(frames)
    still = torch.randn(patches, 8, generator=g)
    features = still + noise * torch.randn(frames, patches, 8, generator=g)
    return VideoFeatures(features, (6, patches // 6))


@pytest.mark.parametrize("noise", [0.0, 0.4, 0.6, 3.0])
@pytest.mark.parametrize("frames", [1, 2, 9, 40])
@pytest.mark.parametrize("share", [0.08, 0.3, 0.9])
def test_the_count_is_the_largest_that_a_cluster_ratio_gives_within_the_budget(noise, frames, share):
    given = video(frames, noise)
    limit, segments = given.limit(Budget(keep=share)), segment(given.features)
    made = get("prunevid")(given, budget=Budget(keep=share))
    assert len(made) <= limit
    steps = [PruneVidParameters(cluster_ratio=number / 2000) for number in range(2001)]
    if segments.count(steps[0]) > limit:
        steps = [replace(step, unclustered=0) for step in steps]
    assert len(made) >= max(count for step in steps if (count := segments.count(step)) <= limit)
    used = made.mixture.dense()  # each source token is in exactly one output token
    assert ((used > 0).sum(0) == 1).all()


def test_what_stays_in_place_is_one_token_for_all_frames():
    features = video(12, 3.0).features
    features[:, :20] = features[:1, :20]
    made = get("prunevid")(VideoFeatures(features, (6, 8)), budget=Budget(keep=0.9))
    frames = (made.mixture.frame_shares() > 0).sum(1)
    assert int((frames > 1).sum()) >= 20
    assert int((frames == 1).sum()) == 12 * 28
    assert set(segment(features).static_counts) == {20}


def test_a_segment_of_one_frame_has_no_static_tokens():
    assert segment(video(1).features).static_counts == (0,)


def test_too_small_a_budget_is_refused_with_the_smallest_one():
    given = video(8, 3.0)
    with pytest.raises(ValueError, match=r"at least 8 of 384 tokens .* because these are its groups"):
        get("prunevid")(given, budget=Budget(tokens=7))
    assert len(get("prunevid")(given, budget=Budget(tokens=8))) == 8

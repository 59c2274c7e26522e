"""OTT-Vid against its authors' arrays, and what its parts promise."""

import pytest
import torch
from golden_arrays import load, names

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers.ottvid import OttVid, OttVidParameters, ottvid
from aviot.methods.peers.ottvid_cover import covering_tokens
from aviot.methods.peers.ottvid_transport import removal_counts, transport


def parameters(given):
    return OttVidParameters(
        retention=given["total_retention_ratio"],
        temporal_share=given["temporal_share"],
        spatial_retention=given["spatial_retention"],
        mass_temperature=given["ot_mass_tau"],
        budget_temperature=given["ot_budget_temperature"],
        cost_threshold=given["ot_cost_threshold"],
        epsilon=given["ot_sinkhorn_eps"],
        iterations=given["ot_sinkhorn_iters"],
        program=given["path"],
        cost_grid=tuple(given["grid_hw"]) if "grid_hw" in given else None,
    )


@pytest.mark.parametrize("name", names("ottvid"))
def test_golden(name):
    case = load("ottvid", name)
    made = ottvid(case["features"], case["saliency"], tuple(case.header["grid"]), parameters(case.params))
    assert torch.equal(made.spatial_keep, case["spatial_keep"])
    assert torch.equal(made.indices, case["indices"])
    tokens = made.groups.means(case["features"].flatten(0, 1))
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=0)
    if "temporal_ranges" in case.tensors:
        assert torch.equal(made.temporal_ranges, case["temporal_ranges"])


def test_covering_tokens_are_those_of_a_plain_loop():
    g = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(3, 20, 4, generator=g), dim=-1)
    similarity, weight = unit @ unit.mT, torch.rand(3, 20, generator=g)
    made = covering_tokens(similarity, weight, 6)
    for frame in range(3):
        s, cover, picked = similarity[frame], torch.zeros(20), []
        for _ in range(6):
            gains = {j: float((weight[frame] * (s[:, j] - cover).clamp(min=0)).sum()) for j in range(20)}
            picked.append(max((j for j in range(20) if j not in picked), key=gains.__getitem__))
            cover = cover.maximum(s[:, picked[-1]])
        assert made[frame].tolist() == sorted(picked)


@pytest.mark.parametrize("epsilon", [0.01, 0.049, 0.05, 0.3])
def test_plans_have_the_masses_of_both_frames(epsilon):
    """On logarithms or not; the sources' masses exactly, since they are updated last."""
    g = torch.Generator().manual_seed(1)
    cost, masses = torch.rand(4, 9, 9, generator=g), torch.rand(2, 4, 9, generator=g)
    plan = transport(cost, *masses, epsilon, 2000)
    source, target = masses / masses.sum(-1, keepdim=True)
    torch.testing.assert_close(plan.sum(2), source, atol=1e-5, rtol=0)
    torch.testing.assert_close(plan.sum(1), target, atol=1e-3, rtol=0)


def test_updates_on_logarithms_are_the_plain_ones(monkeypatch):
    g = torch.Generator().manual_seed(2)
    cost, masses = torch.rand(3, 7, 7, generator=g), torch.rand(2, 3, 7, generator=g)
    plain = transport(cost, *masses, 0.1, 20)
    monkeypatch.setattr("aviot.methods.peers.ottvid_transport.LOG_DOMAIN_BELOW", 1.0)
    torch.testing.assert_close(transport(cost, *masses, 0.1, 20), plain)


@pytest.mark.parametrize("removed", [0, 1, 17, 60, 61, 1000])
def test_removals_reach_their_sum_within_each_pairs_room(removed):
    work = torch.tensor([0.01, 0.5, 0.02, 2.0, 0.3])
    counts = removal_counts(work, 12, removed, 0.3)
    assert int(counts.sum()) == min(removed, 60)
    assert int(counts.max()) <= 12
    assert counts[0] >= counts[2] >= counts[4] >= counts[1] >= counts[3]


def video(frames, grid=(6, 8)):
    g = torch.Generator().manual_seed(frames)
    extras = {"attention": torch.rand(frames, grid[0] * grid[1], generator=g)}
    return VideoFeatures(torch.randn(frames, grid[0] * grid[1], 8, generator=g), grid, extras=extras)


@pytest.mark.parametrize("frames", [1, 2, 5, 30])
@pytest.mark.parametrize("tokens_per_frame", [1, 1.2, 2, 5, 30, 47])
def test_a_budget_is_met_exactly_down_to_a_token_per_frame(frames, tokens_per_frame):
    """Unless the selection alone is below it, which the rounding of its count per frame can bring about."""
    limit = int(frames * tokens_per_frame)
    made = get("ottvid")(video(frames), budget=Budget(tokens=limit))
    assert limit - frames < len(made) <= limit


def test_less_than_a_token_per_frame_is_refused():
    with pytest.raises(
        ValueError,
        match=r"at least 5 of 240 tokens \(2\.1%\) .* because every frame keeps a token",
    ):
        get("ottvid")(video(5), budget=Budget(tokens=4))


def test_chunks_of_frames_give_what_all_frames_give(monkeypatch):
    given = video(9)
    whole = get("ottvid")(given, budget=8)
    monkeypatch.setattr("aviot.methods.peers.chunks.ELEMENTS", 2 * 48**2)
    torch.testing.assert_close(get("ottvid")(given, budget=8).tokens, whole.tokens)


def test_parameters_are_part_of_what_a_replay_depends_on():
    llava = OttVid(OttVidParameters(program="llava", cost_grid=(13, 13)))
    assert llava.replay_key != OttVid().replay_key
    assert len(llava(video(6), budget=8)) == 36
    with pytest.raises(ValueError, match="program must be 'llava' or 'qwen', got 'ov'"):
        OttVidParameters(program="ov")

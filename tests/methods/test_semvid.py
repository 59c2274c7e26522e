"""SemVID against its authors' arrays, and its parts on their own."""

import pytest
import torch
from golden_arrays import load, names

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers.semvid import SemVid, query_vectors, question_rows, semvid
from aviot.methods.peers.semvid_allocation import AnchorParameters, SemVidParameters
from aviot.methods.peers.semvid_selection import grid_points
from aviot.methods.peers.shares import capped_shares, integer_shares


def parameters(given):
    anchors = None
    if given.get("variant") == "qwen25":
        anchors = AnchorParameters(
            boost=given["semantic_temporal_anchor_boost"] if given["semantic_temporal_anchor_enabled"] else 0,
            uniform_context=given["semantic_ctx_uniform_tokens"],
            corners=given["semantic_obj_anchor_num"] if given["semantic_obj_minmax_duplication"] else 0,
            candidates=given["semantic_obj_anchor_topk"],
            least_relevance=given["semantic_obj_anchor_min_sim"],
        )
    return SemVidParameters(
        retention=given["semantic_retention_ratio"],
        segments=given["fastvid_DySeg_c"],
        segment_threshold=given["fastvid_DySeg_tau"],
        best_segments=given["semantic_stage1_topk_segments"],
        smoothing=given["semantic_stage1_smooth_win"],
        relevance_weight=given["semantic_frame_weight_alpha"],
        object_share=given["semantic_obj_ratio"],
        variety_weight=given["semantic_mmr_lambda"],
        least_per_frame=given["semantic_min_tokens_per_frame"],
        motion_relevance=given["semantic_motion_query_beta"],
        query_tokens=given["semantic_query_token_max"],
        uniform=given.get("ablation_uniform_allocation", False),
        anchors=anchors,
    )


@pytest.mark.parametrize("name", names("semvid"))
def test_golden(name):
    case = load("semvid", name)
    special = {value for key, value in case.params.items() if key.endswith("token_id")}
    own = parameters(case.params)
    query = query_vectors(question_rows(case["embedding_table"], case["query_ids"], special), own.query_tokens)
    torch.testing.assert_close(query, case["query_embed"], atol=1e-5, rtol=0)
    made = semvid(case["features"], query, tuple(case.header["grid"]), own)
    assert torch.equal(made.frame_keep, case["frame_keep"])
    assert torch.equal(made.keep, case["keep"])
    if "kind" in case.tensors:
        assert torch.equal(made.kind, case["kind"])


def video(frames, grid=(6, 8), width=8):
    g = torch.Generator().manual_seed(frames)
    tokens = torch.randn(9, width, generator=g)
    return VideoFeatures(
        torch.randn(frames, grid[0] * grid[1], width, generator=g), grid, extras={"question_tokens": tokens}
    )


VIDEO_QA = SemVidParameters(
    retention=0.25, smoothing=3, object_share=0.3, variety_weight=0.5, least_per_frame=5, motion_relevance=0.1
)
QWEN25 = SemVidParameters(best_segments=2, object_share=0.8, variety_weight=0.5, anchors=AnchorParameters())
GRID_CONTEXT = SemVidParameters(least_per_frame=6, anchors=AnchorParameters(uniform_context=4, corners=2, candidates=9))
POOLED = SemVidParameters(query_tokens=4, segments=3, segment_threshold=0.2, best_segments=1)
PARAMETERS = {
    "grounding": SemVidParameters(),
    "videoqa": VIDEO_QA,
    "qwen25": QWEN25,
    "grid": GRID_CONTEXT,
    "pooled": POOLED,
    "uniform": SemVidParameters(uniform=True, least_per_frame=3),
}


@pytest.mark.parametrize("which", PARAMETERS)
@pytest.mark.parametrize("frames", [1, 2, 11])
@pytest.mark.parametrize("tokens_per_frame", [6, 13.3, 47.5])
@pytest.mark.parametrize("asked", [True, False])
def test_a_budget_is_met_exactly(which, frames, tokens_per_frame, asked):
    limit, given = int(frames * tokens_per_frame), video(frames)
    question = torch.zeros(3) if asked else None
    made = SemVid(PARAMETERS[which])(given, question=question, budget=Budget(tokens=limit))
    assert len(made) == limit
    index = made.mixture.indices[:, 0]
    assert (index[1:] > index[:-1]).all()
    per_frame = torch.bincount(index // 48, minlength=frames)
    assert int(per_frame.min()) >= PARAMETERS[which].base(48)
    if which == "uniform":
        assert int(per_frame.max() - per_frame.min()) <= 1


def test_a_frame_that_the_question_names_keeps_more():
    given = video(12)
    named = given.extras["question_tokens"][3]
    other = torch.eye(8)[0] - named * named[0] / named.square().sum()  # of all frames, which are one segment
    features = given.features + 2 * other + torch.where(torch.arange(12) == 5, 2.0, 0.0)[:, None, None] * named
    one = VideoFeatures(features, given.grid, extras={"question_tokens": named[None]})
    indices = [
        get("semvid")(one, question=question, budget=8).mixture.indices[:, 0] // 48 for question in (named, None)
    ]
    asked, unasked = (torch.bincount(index, minlength=12) for index in indices)
    assert int(asked.argmax()) == 5
    assert asked[5] > unasked[5]


def plain_objects(x, query, taken, count, weight):
    """Select a frame's objects one by one, as the description says it."""
    x, relevance = x / x.norm(dim=-1, keepdim=True), x / x.norm(dim=-1, keepdim=True) @ query.T
    strength = relevance.amax(0).clamp(min=0)
    exact = count * strength / strength.sum()
    counts = exact.floor().long()
    for place in (exact - counts).argsort(descending=True)[: count - int(counts.sum())]:
        counts[place] += 1
    for vector in strength.argsort(descending=True).tolist():
        picked = []
        for _ in range(int(counts[vector])):
            free = [p for p in range(len(x)) if p not in taken]
            score = {p: float(relevance[p, vector]) for p in free}
            if picked:
                score = {p: weight * score[p] - (1 - weight) * float((x[picked] @ x[p]).max()) for p in free}
            picked.append(max(free, key=score.__getitem__))
            taken = [*taken, picked[-1]]
    return taken


def test_objects_are_those_of_a_plain_loop():
    given = video(4)
    query = query_vectors(given.extras["question_tokens"], 50)
    own = SemVidParameters(retention=0.4, object_share=1.0, variety_weight=0.4)
    made = semvid(given.features, query, given.grid, own)
    for frame in range(4):
        here = made.keep // 48 == frame
        patches, kind = made.keep[here] % 48, made.kind[here]
        context = patches[kind == 0].tolist()
        expected = plain_objects(given.features[frame], query, context, int((kind == 1).sum()), 0.4)
        assert sorted(expected) == patches.tolist()


@pytest.mark.parametrize("which", PARAMETERS)
def test_chunks_of_frames_give_what_all_frames_give(monkeypatch, which):
    given, method = video(9), SemVid(PARAMETERS[which])
    whole = method(given, question=torch.zeros(3), budget=6).mixture.indices
    monkeypatch.setattr("aviot.methods.peers.chunks.ELEMENTS", 2 * 48 * 8)
    assert torch.equal(method(given, question=torch.zeros(3), budget=6).mixture.indices, whole)


def test_special_and_padded_tokens_are_no_query():
    table, ids = torch.randn(9, 4), torch.tensor([1, 5, 6, 2, 7])
    assert torch.equal(question_rows(table, ids, {1, 2}), table[[5, 6, 7]])
    mask = torch.tensor([1, 1, 1, 1, 0])
    assert torch.equal(question_rows(table, ids, {1, 2}, mask), table[[5, 6]])
    assert torch.equal(question_rows(table, ids[:1], {1}), table[[1]])


@pytest.mark.parametrize(
    ("count", "points"), [(1, [0]), (2, [0, 7]), (4, [0, 7, 40, 47]), (5, [0, 4, 7, 40, 44]), (0, [])]
)
def test_grid_points(count, points):
    assert grid_points((6, 8), count).tolist() == points


@pytest.mark.parametrize(
    ("weights", "total", "shares"),
    [
        ([1.0, 1.0, 1.0], 4, [2, 1, 1]),
        ([3.0, 1.0], 6, [5, 1]),
        ([0.0, 0.0], 3, [2, 1]),
        ([-1.0, 2.0, 1.0], 3, [0, 2, 1]),
    ],
)
def test_integer_shares(weights, total, shares):
    assert integer_shares(torch.tensor(weights), torch.tensor(total)).tolist() == shares


def test_shares_that_do_not_fit_go_where_there_is_room():
    weights, room = torch.tensor([10.0, 1.0, 0.0, 0.0]), torch.tensor([2, 3, 4, 1])
    assert capped_shares(weights, 9, room).tolist() == [2, 3, 3, 1]
    assert capped_shares(weights, 99, room).tolist() == room.tolist()


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"at least 11 of 528 tokens .* every frame keeps 1; the budget allows 10"):
        get("semvid")(video(11), budget=Budget(tokens=10))
    other = VideoFeatures(torch.randn(3, 48, 5), (6, 8), extras={"question_tokens": torch.randn(4, 8)})
    with pytest.raises(ValueError, match=r"compares the question's tokens \[L,5\] .* got \(4, 8\); give embeddings"):
        get("semvid")(other, question=torch.zeros(8), budget=4)
    assert SemVid(VIDEO_QA).replay_key != SemVid().replay_key

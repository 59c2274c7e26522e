"""FastVID against its own code's results, and at the edges where that code fails."""

import math

import golden_arrays
import pytest
import torch

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import fastvid_merge
from aviot.methods.peers.fastvid import FastVidParameters, add_newlines, fastvid, mean_query_attention
from aviot.methods.peers.segments import cut_segments

FIELDS = {
    "variant": "variant",
    "retention": "retention_ratio",
    "segments": "DySeg_c",
    "threshold": "DySeg_tau",
    "context": "STPrune_d",
    "period": "DTM_p",
    "own_weight": "DTM_beta",
    "skip": "DySeg_ignore",
}
NEWLINE = 7.0


def run(case):
    given = {name: case.params[key] for name, key in FIELDS.items() if case.params[key] is not None}
    globals_ = case.tensors.get("frame_global_features")
    return fastvid(case["features"], case["frame_attention"], globals_, FastVidParameters(**given))


def check(case):
    x, made = case["features"], run(case)
    index, tokens = made.index, made.tokens
    if case.params["variant"] == "lv":
        index, tokens = add_newlines(made, math.isqrt(x.shape[1]), torch.full((x.shape[2],), NEWLINE))
    assert made.segments == tuple(case["segment_sizes"].tolist())
    assert torch.equal(index, case["keep_indices"])
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=1e-5)
    rebuilt = made.sources.mixture(len(made.tokens), *x.shape[:2]).rebuild(x.flatten(0, 1))
    torch.testing.assert_close(rebuilt, made.tokens, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", golden_arrays.names("fastvid"))
def test_fastvid(name):
    check(golden_arrays.load("fastvid", name))


@pytest.mark.parametrize("name", ["ov_long_segments", "lv_long", "q25_ignore"])
def test_a_video_in_parts_of_little_memory_gives_the_same(name, monkeypatch):
    monkeypatch.setattr(fastvid_merge, "chunk_size", lambda elements: 1)
    check(golden_arrays.load("fastvid", name))


@pytest.mark.parametrize(
    "name", [name for name in golden_arrays.names("common") if name.startswith("fastvid_q25_attention")]
)
def test_attention_of_mean_queries(name):
    case = golden_arrays.load("common", name)
    got = mean_query_attention(case["queries"], case["keys"], case.params["grid_thw"][0], 4)
    torch.testing.assert_close(got, case["attention"], atol=1e-5, rtol=1e-5)


def compressed(x, attention, limit):
    video = VideoFeatures(x, (1, x.shape[1]), extras={"attention": attention})
    made = get("fastvid")(video, budget=Budget(tokens=limit))
    torch.testing.assert_close(made.mixture.rebuild(video.flat()), made.tokens.float(), atol=1e-5, rtol=1e-5)
    return made


def test_the_method_is_the_function_on_mean_tokens():
    case = golden_arrays.load("fastvid", "ov_r25")
    x, attention = case["features"], case["frame_attention"]
    counts = [len(fastvid(x, attention, count=count).index) for count in range(50)]
    assert counts == sorted(counts)
    for limit in range(16, 760, 31):
        made = compressed(x, attention, limit)
        best = max(count for count in counts if count <= limit)
        assert len(made) == best
        expected = fastvid(x, attention, count=counts.index(best))
        assert torch.equal(made.tokens, expected.tokens)


def test_less_than_one_token_per_frame_keeps_the_most_attended():
    case = golden_arrays.load("fastvid", "ov_r10")
    x, attention = case["features"], case["frame_attention"]
    best = attention.max(1)
    chosen = best.values.argsort(descending=True)[:5].sort().values
    expected = x[chosen, best.indices[chosen]]
    assert torch.equal(compressed(x, attention, 5).tokens, expected)


@pytest.mark.parametrize("variant", ["ov", "lv", "q25"])
@pytest.mark.parametrize(("frames", "patches"), [(1, 9), (2, 1), (3, 4), (7, 9), (20, 3)])
@pytest.mark.parametrize("retention", [0.1, 0.5, 0.9])
def test_where_the_original_fails(variant, frames, patches, retention):
    """Few frames, few patches, many tokens: indices stay valid, and tokens are what their sources say."""
    g = torch.Generator().manual_seed(frames)
    x = torch.randn(frames, patches, 6, generator=g)
    x[::2] = x[0].clone()
    x[-1, 0] = 0
    attention = torch.rand(frames, patches, generator=g)
    made = fastvid(x, attention, None, FastVidParameters(variant, retention))
    assert torch.equal(made.index.unique(), made.index)
    assert sum(made.segments) == frames
    if len(made.index):
        rebuilt = made.sources.mixture(len(made.tokens), frames, patches).rebuild(x.flatten(0, 1))
        torch.testing.assert_close(rebuilt, made.tokens, atol=1e-5, rtol=1e-5)


def test_segments_end_where_neighbours_differ():
    similarity = torch.tensor([0.95, 0.5, 0.99, 0.85, 0.97])
    assert cut_segments(similarity, 1, 0.9) == (2, 2, 2)
    assert cut_segments(similarity, 2, 0.0) == (2, 4)
    assert cut_segments(similarity, 4, 0.9) == (1, 1, 2, 2)
    assert cut_segments(similarity, 99, 0.0) == (1,) * 6
    assert cut_segments(torch.empty(0), 8, 0.9) == (1,)
    assert cut_segments(torch.ones(4), 3, 0.9) == (1, 1, 3)  # ties go to the earlier frame

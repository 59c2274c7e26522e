"""FlashVID against its authors' arrays, and against plain loops over frames and tokens."""

import math
from itertools import pairwise

import pytest
import torch
from golden_arrays import load, names
from torch.nn.functional import cosine_similarity

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import flashvid_selection, flashvid_trees
from aviot.methods.peers.flashvid import QWEN, FlashVID, FlashVidParameters, flashvid, lengths_of
from aviot.methods.peers.flashvid_selection import segment_cuts

FIELDS = {
    "retention": "retention_ratio",
    "expansion": "expansion",
    "selected": "alpha",
    "selection": "token_selection_method",
    "link": "temporal_threshold",
    "segmented": "do_segment",
    "cut": "segment_threshold",
    "segments": "min_segment_num",
    "complementary": "complementary_segment",
}


def check(name):
    case = load("flashvid", name)
    x, given = case["features"], {field: case.params[key] for field, key in FIELDS.items()}
    made = flashvid(x, case["cls_attention"], FlashVidParameters(**given))
    assert torch.equal(made.lengths, case["segment_lengths"])
    assert torch.equal(made.index, case["indices"])
    torch.testing.assert_close(made.tokens, case["tokens"], atol=1e-5, rtol=0)
    rebuilt = made.sources.mixture(len(made.tokens), *x.shape[:2]).rebuild(x.flatten(0, 1))
    torch.testing.assert_close(rebuilt, made.tokens, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", names("flashvid"))
def test_golden(name):
    check(name)


@pytest.mark.parametrize("name", ["r20_oneseg_t12_chain", "r25_v2_t16"])
def test_a_video_in_parts_of_little_memory_gives_the_same(name, monkeypatch):
    for module in (flashvid_selection, flashvid_trees):
        monkeypatch.setattr(module, "chunk_size", lambda elements: 1)
    check(name)


def plain_cuts(frames, threshold, least, complementary):
    similarity = [float(cosine_similarity(a, b, dim=0)) for a, b in pairwise(frames)]
    cuts = [t for t, s in enumerate(similarity) if s < threshold]
    if complementary and len(cuts) + 1 < least:
        more = min(least - len(cuts) - 1, len(similarity))
        similarity = [1.0 if t in cuts else s for t, s in enumerate(similarity)]
        cuts += sorted(range(len(similarity)), key=similarity.__getitem__)[:more]
    return sorted(cuts)


def plain_selection(x, attention, mean, count, selection):
    unit = x / x.norm(dim=1, keepdim=True)
    weight = 1e6 * attention * (x @ mean if selection == "attn_div_v2" else 1)
    distance = (1 - unit @ unit.T) * weight
    picked = [max(range(len(x)), key=lambda j: sorted(distance[:, j].tolist())[1])]
    while len(picked) < count:
        nearest = distance[picked].min(0).values
        if selection == "attn_div":
            nearest[picked] = -1
        picked.append(int(nearest.argmax()))
    return sorted(picked)


def plain_centres(values, count):
    distance = torch.cdist(values, values) / values.shape[1] ** 0.5
    near = min(count, 7)
    density = [math.exp(-sum(sorted(row.square().tolist())[:near]) / near) for row in distance]
    score = []
    for i, row in enumerate(distance):
        higher = [float(row[j]) for j in range(len(values)) if density[j] > density[i]]
        score.append(density[i] * (min(higher) if higher else float(distance.max())))
    return sorted(range(len(values)), key=lambda i: -score[i])[:count], distance


def plain_segment(x, attention, of, count):
    """Return (flat index, token) of one segment, selected ones first."""
    length, patches, _ = x.shape
    chosen = math.ceil(count * of.selected)
    mean = x.flatten(0, 1).mean(0)
    picked = [plain_selection(x[t], attention[t], mean, chosen, of.selection) for t in range(length)]
    made = [(t * patches + n, x[t, n]) for t in range(length) for n in picked[t]]
    if chosen == count or of.link >= 1:
        return made
    q, p = torch.full((length, patches), -1.0, dtype=x.dtype), torch.zeros(length, patches, dtype=torch.long)
    for t in range(1, length):
        unit = [frame / frame.norm(dim=1, keepdim=True) for frame in (x[t], x[t - 1])]
        cosine = unit[0] @ unit[1].T
        cosine[picked[t]], cosine[:, picked[t - 1]] = -1, -1
        q[t], p[t] = cosine.max(1)
    linked = q > of.link
    if int((~linked).sum()) < count * length:
        linked = q > max(float(q.flatten().sort(descending=True).values[length * (patches - count) - 1]), -1 + 1e-6)
    values, members = x.clone(), torch.ones(length, patches)
    for t in reversed(range(length)):
        for n in range(patches):
            if not linked[t, n]:
                values[t, n] /= members[t, n]
            else:
                values[t - 1, p[t, n]] += values[t, n]
                members[t - 1, p[t, n]] += 1
    left = [[n for n in range(patches) if length == 1 or not (linked[t, n] or n in picked[t])] for t in range(length)]
    share = (count - chosen) * length / sum(map(len, left))
    for t, tokens in enumerate(left):
        wanted = math.ceil(len(tokens) * share)
        if not tokens or share >= 1:
            made += [(t * patches + n, values[t, n]) for n in tokens]
            continue
        own = values[t, tokens]
        centres, distance = plain_centres(own, wanted)
        label = distance[:, centres].argmin(1)
        label[centres] = torch.arange(wanted)
        made += [(t * patches + tokens[c], own[label == rank].mean(0)) for rank, c in enumerate(centres)]
    return made


def plain(x, attention, of, count):
    """Return lengths of segments, indices and tokens by loops over everything."""
    frames, patches, _ = x.shape
    cuts = plain_cuts(x.mean(1), of.cut, of.segments, of.complementary) if of.segmented else []
    ends = [-1, *cuts, frames - 1]
    lengths, made, start = [b - a for a, b in pairwise(ends)], [], 0
    for length in lengths:
        part = slice(start, start + length)
        own = plain_segment(x[part], attention[part], of, count) if length else []
        made += [(start * patches + index, token) for index, token in own]
        start += length
    made.sort(key=lambda entry: entry[0])
    return lengths, [index for index, _ in made], torch.stack([token for _, token in made])


def moving(frames, patches, seed, noise):
    """Return scenes of slowly changing tokens, and attention."""
    g = torch.Generator().manual_seed(seed)
    scene = torch.randn(1 + frames // 5, patches, 12, generator=g, dtype=torch.float64) + 0.5
    x = scene.repeat_interleave(5, 0)[:frames]
    steps = noise * torch.randn(frames, patches, 12, generator=g, dtype=torch.float64)
    return x + steps.cumsum(0), torch.rand(frames, patches, generator=g, dtype=torch.float64) / patches


CASES = [
    FlashVidParameters(),
    QWEN,
    FlashVidParameters(segmented=False),
    FlashVidParameters(segmented=False, selection="attn_div", link=0.3),
    FlashVidParameters(complementary=False, selected=0.3),
    FlashVidParameters(segments=3, selected=0.1, link=0.95),
    FlashVidParameters(segments=30),  # a cut after every frame, some of them twice
    FlashVidParameters(selection="attn_div", selected=1.0),
    FlashVidParameters(link=1.0),
]


@pytest.mark.parametrize("of", CASES)
@pytest.mark.parametrize(("frames", "noise", "count"), [(17, 0.15, 5), (11, 0.02, 13), (4, 0.1, 24), (1, 0.1, 7)])
def test_plain_loops_give_the_same(of, frames, noise, count):
    x, attention = moving(frames, 25, frames, noise)
    lengths, index, tokens = plain(x, attention, of, count)
    made = flashvid(x, attention, of, count)
    assert sorted(made.lengths.tolist()) == sorted(lengths)  # which of two equal cuts is made twice is not defined
    assert [length for length in made.lengths.tolist() if length] == [length for length in lengths if length]
    assert made.index.tolist() == index
    torch.testing.assert_close(made.tokens, tokens, atol=1e-9, rtol=1e-9)


def test_counts_are_those_of_the_authors():
    case = load("flashvid", "ov_grid14_r10_defaults").params
    count = FlashVidParameters(retention=0.1).per_frame(196)
    assert count == case["num_attn_div_tokens"] + case["num_sttm_tokens"] == 25
    assert FlashVidParameters(retention=0.9).per_frame(196) == 196


def test_cuts_that_are_missing_are_made_twice_when_nothing_else_is_left():
    frames = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    assert segment_cuts(frames, 0.9, 1).tolist() == [0, 1, 0]
    assert segment_cuts(frames, 0.9, 3).tolist() == [1, 1, 0]
    assert segment_cuts(frames, 0.9, 8, complementary=False).tolist() == [0, 1, 0]
    assert segment_cuts(frames, 0.9, 8).tolist() == [1, 2, 1]
    assert lengths_of(segment_cuts(frames, 0.9, 8)).tolist() == [1, 1, 0, 1, 1]
    assert lengths_of(segment_cuts(frames[:1], 0.9, 8)).tolist() == [1]


def test_deep_trees_are_longer_than_means_and_stand_within_their_members():
    x, attention = moving(5, 25, 3, 0.0)
    video = VideoFeatures(x.float(), (5, 5), extras={"attention": attention})
    made = FlashVID(FlashVidParameters(segmented=False, selected=0.3))(video, budget=Budget(tokens=60))  # no clusters
    torch.testing.assert_close(made.mixture.rebuild(video.flat()), made.tokens, atol=1e-5, rtol=1e-5)
    whole = made.mixture.weights.sum(1)
    assert float(whole.max()) == pytest.approx(2.5)  # five frames over one root and one direct child
    torch.testing.assert_close(made.mixture.frame_shares().sum(1), torch.ones(len(made)))
    deep = whole.argmax()
    assert float(made.times[deep]) == pytest.approx(2.0)
    cells = made.mixture.indices[deep][made.mixture.weights[deep] > 0] % 25
    assert (cells == cells[0]).all()  # one source per frame
    assert made.positions[deep, 1:].tolist() == pytest.approx([int(cells[0]) // 5, int(cells[0]) % 5])


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("of", [FlashVidParameters(), QWEN])
def test_the_budget_gives_the_most_tokens_per_frame_that_fit(noise, of):
    x, attention = moving(12, 25, 1, noise)
    video = VideoFeatures(x.float(), (5, 5), extras={"attention": attention.float()})
    totals = [len(flashvid(video.features, attention.float(), of, count).index) for count in range(1, 26)]
    for limit in range(12, 300, 7):
        most = limit // 12
        expected = totals[most - 1] if totals[most - 1] <= limit else totals[most - 2]
        assert len(FlashVID(of)(video, budget=Budget(tokens=limit))) == expected


def test_below_a_token_per_frame_the_least_attended_are_dropped():
    x, attention = moving(12, 25, 1, 0.1)
    video = VideoFeatures(x.float(), (5, 5), extras={"attention": attention.float()})
    kept = get("flashvid")(video, budget=Budget(tokens=5)).mixture.indices[:, 0]
    every = flashvid(video.features, attention.float(), count=1).index
    best = sorted(every.tolist(), key=lambda index: -attention.flatten()[index])[:5]
    assert kept.tolist() == sorted(best)


def test_parameters_are_checked_and_part_of_what_a_replay_depends_on():
    assert FlashVID(QWEN).replay_key != FlashVID().replay_key
    assert get("flashvid-full").inside.parameters.layer == 20
    with pytest.raises(ValueError, match="selection must be 'attn_div' or 'attn_div_v2', got 'attn'"):
        FlashVidParameters(selection="attn")

"""AOT against its authors' arrays, and against plain loops over frames and tokens."""

import math
from itertools import pairwise

import pytest
import torch
from golden_arrays import load, names
from torch.nn.functional import avg_pool2d, interpolate

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import aot_anchors, chunks
from aviot.methods.peers.aot import AOT, AotParameters, aot, mixed_weights, result
from aviot.methods.peers.aot_transport import transport


def pooling(kind, side):
    """Return the weights of a pooling by the operation itself, on one-hot maps."""
    maps = torch.eye(side**2).view(-1, 1, side, side)
    made = interpolate(maps, size=(side + 1) // 2, mode="bilinear") if kind == "bilinear" else avg_pool2d(maps, 2)
    return made[:, 0].permute(1, 2, 0)


def check(name):
    case = load("aot", name)
    x, p, grid = case["features"], case.params, tuple(case.header["grid"])
    of = AotParameters(
        anchors=p["visual_token_num"],
        global_share=p["global_ratio"],
        kept=p["keep_ratio"],
        scale=p["scaling"],
        clip=p["interval"],
    )
    weights = pooling(p["pool"], grid[0])
    made = aot(x, case["attn_shallow"], case["attn_deep"], weights, grid, of)
    assert torch.equal(made.anchors, case["index_mask"].bool())
    assert torch.equal(made.pooled, case["pooled_mask"].bool())
    torch.testing.assert_close(made.tokens, case["tokens"], atol=1e-5, rtol=0)
    every = torch.arange(made.pooled.shape[1]).expand(len(x), -1)
    pooled = aot_anchors.mixed(mixed_weights(x, made.anchors, weights.flatten(0, 1), every, grid), x)
    torch.testing.assert_close(pooled, case["pooled"], atol=1e-5, rtol=0)
    video = VideoFeatures(x, grid, extras={"pooling": weights})
    found = result(made, video)
    torch.testing.assert_close(found.mixture.rebuild(video.flat()), found.tokens, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", names("aot"))
def test_golden(name):
    check(name)


def test_a_video_in_parts_of_little_memory_gives_the_same(monkeypatch):
    monkeypatch.setattr(chunks, "ELEMENTS", 1)
    check("ov_126_k03_t4")


def plain_transport(costs):
    """Return plans of problems that stop together."""
    kernels = [torch.exp(-cost / 0.1) for cost in costs]
    r, c = [[torch.ones(cost.shape[side], dtype=cost.dtype) for cost in costs] for side in (0, 1)]
    for _ in range(100):
        before = r
        r = [1 / len(k) / (k @ own) for k, own in zip(kernels, c, strict=True)]
        c = [1 / k.shape[1] / (k.T @ own) for k, own in zip(kernels, r, strict=True)]
        if torch.cat([(a - b).abs() for a, b in zip(r, before, strict=True)]).mean() < 1e-2:
            break
    return [a[:, None] * k * b for a, k, b in zip(r, kernels, c, strict=True)]


def cosines(a, b):
    return torch.nn.functional.normalize(a, dim=1) @ torch.nn.functional.normalize(b, dim=1).T


def plain_anchors(shallow, deep, count, share, side):
    local, third = int(count * (1 - share)), side // 3
    mask = torch.zeros(side, side, dtype=torch.bool)
    for row in range(0, side, third):
        for column in range(0, side, third):
            window = shallow.view(side, side)[row : row + third, column : column + third].flatten()
            for place in window.topk(local // 9).indices.tolist():
                mask[row + place // third, column + place % third] = True
    mask = mask.flatten()
    mask[deep.masked_fill(mask, 0).topk(count - local).indices] = True
    return mask


def plain_maps(x, masks, side):
    """Return frames whose anchors have taken up the others."""
    place = torch.tensor([(i % side, i // side) for i in range(side**2)], dtype=x.dtype) / (side - 1)
    costs = []
    for frame, mask in zip(x, masks, strict=True):
        apart = torch.cdist(place[~mask], place[mask])
        costs.append(1 - cosines(frame[~mask], frame[mask]) + 0.5 * apart)
    out = x.clone()
    for t, plan in enumerate(plain_transport(costs)):
        mask = masks[t]
        anchors, others = x[t][mask], x[t][~mask]
        nearest = cosines(others, anchors).argmax(1)
        rows = []
        for j, own in enumerate(anchors):
            near = others[nearest == j]
            by_plan = (own + plan[:, j] @ others) / (1 + max(float(plan[:, j].sum()), 1e-9))
            rows.append(0.9 * by_plan + 0.1 * (own + near.sum(0)) / (1 + len(near)))
        out[t, mask] = torch.stack(rows)
    return out


def plain_clip(frames, kept, scale):
    if len(frames) == 1:
        return frames
    anchors, out = frames[0], [frames[0]]
    for i, x in enumerate(frames[1:], start=1):
        apart = 1 - cosines(x, anchors).clamp(-1 + 1e-6, 1 - 1e-6)
        cost = (apart - apart.min()) * (1 - math.exp(-(i**2) / (2 * 1.5**2 + 1e-9)))
        (plan,) = plain_transport([cost])
        p = plan / plan.sum(1, keepdim=True).clamp_min(1e-9)
        best = p.max(1).values.double()
        stays = best < torch.quantile(best, kept)
        out.append(x[stays])
        added = scale * p[~stays]
        anchors = (anchors + added.T @ x[~stays]) / (1 + added.sum(0))[:, None]
    return [*out, anchors]


def plain(x, shallow, deep, weights, side, of):
    masks = torch.ones(x.shape[:2], dtype=torch.bool)
    maps = x
    if of.anchors < side**2:
        masks = torch.stack(
            [plain_anchors(a, b, of.anchors, of.global_share, side) for a, b in zip(shallow, deep, strict=True)]
        )
        maps = plain_maps(x, masks, side)
    pool = weights.flatten(0, 1).to(x)
    frames = [(pool @ own)[pool @ mask.to(x) >= 0.5] for own, mask in zip(maps, masks, strict=True)]
    step = of.clip_length(len(x))
    clips = [frames[start : start + step] for start in range(0, len(frames), step)]
    return masks, torch.cat([part for clip in clips for part in plain_clip(clip, of.kept, of.scale)])


def inputs(frames, side, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(1, side**2, 6, generator=g, dtype=dtype) + 0.7 * torch.randn(
        frames, side**2, 6, generator=g, dtype=dtype
    )
    return x, *(torch.rand(frames, side**2, generator=g, dtype=dtype) for _ in range(2))


CASES = [
    AotParameters(anchors=36, clip=4),
    AotParameters(anchors=40, clip=3, kept=0.1, scale=0.4),
    AotParameters(anchors=50, clip=1),
    AotParameters(anchors=30, merges=False, global_share=1.0),
    AotParameters(anchors=55, clip=5, kept=0.9, global_share=0.2),
    AotParameters(anchors=80, clip=4, kept=0.0),
    AotParameters(anchors=81, clip=9),
]


@pytest.mark.parametrize("of", CASES)
@pytest.mark.parametrize("kind", ["bilinear", "average"])
@pytest.mark.parametrize("frames", [1, 5, 9])
def test_plain_loops_give_the_same(of, kind, frames):
    given, weights = inputs(frames, 9), pooling(kind, 9)
    masks, tokens = plain(*given, weights, 9, of)
    made = aot(*given, weights, (9, 9), of)
    assert torch.equal(made.anchors, masks)
    torch.testing.assert_close(made.tokens, tokens, atol=1e-6, rtol=1e-6)  # the pooling's weights are float32
    video = VideoFeatures(given[0], (9, 9), extras={"pooling": weights})
    found = result(made, video)
    torch.testing.assert_close(found.mixture.rebuild(video.flat()), found.tokens, atol=1e-6, rtol=1e-6)
    seconds = found.mixture.frame_shares().float() @ torch.tensor(video.times)
    torch.testing.assert_close(found.times, seconds, atol=1e-5, rtol=1e-5)
    rows = (found.mixture.weights * (found.mixture.indices % 81 // 9)).sum(1).float()
    torch.testing.assert_close(found.positions[:, 1], rows, atol=1e-5, rtol=1e-5)


def test_problems_stop_each_on_their_own_or_together():
    g = torch.Generator().manual_seed(0)
    costs = [scale * torch.rand(7, 5, generator=g, dtype=torch.float64) for scale in (0.01, 3.0)]
    both = torch.stack(costs)
    for own, cost in zip(transport(both), costs, strict=True):
        torch.testing.assert_close(own, plain_transport([cost])[0])
    for own, expected in zip(transport(both, together=True), plain_transport(costs), strict=True):
        torch.testing.assert_close(own, expected)
    assert not torch.allclose(transport(both), transport(both, together=True))


def test_rows_and_columns_that_do_not_exist_have_no_part():
    cost = torch.rand(1, 7, 5, generator=torch.Generator().manual_seed(1))
    padded = torch.full((1, 9, 8), 5.0)
    padded[:, :7, :5] = cost
    plan = transport(padded, torch.arange(9)[None] < 7, torch.arange(8)[None] < 5)
    torch.testing.assert_close(plan[:, :7, :5], transport(cost))
    assert float(plan.sum()) == pytest.approx(float(plan[:, :7, :5].sum()))


def video(frames, side=9, kind="bilinear"):
    x, shallow, deep = inputs(frames, side, dtype=torch.float32)
    extras = {"attention_shallow": shallow, "attention_deep": deep, "pooling": pooling(kind, side)}
    cells = extras["pooling"].shape[0] ** 2
    return VideoFeatures(x, (side, side), tokens_per_frame=cells, extras=extras)


@pytest.mark.parametrize("frames", [1, 2, 7, 70])
def test_every_budget_is_met_and_mostly_used(frames):
    given, counts = video(frames), []
    for limit in range(1, 25 * frames + 1, max(1, frames // 2)):
        made = get("aot")(given, budget=Budget(tokens=limit))
        assert len(made) <= limit
        assert made.tokens.isfinite().all()
        counts.append(len(made) / limit)
    assert sum(counts[5:]) / len(counts[5:]) > 0.85


def test_a_budget_of_everything_is_the_pooling():
    given = video(3)
    made = get("aot")(given, budget=Budget(keep=1.0))
    expected = given.extras["pooling"].flatten(0, 1) @ given.features
    torch.testing.assert_close(made.tokens, expected.flatten(0, 1))
    torch.testing.assert_close(made.mixture.rebuild(given.flat()), made.tokens)
    assert made.mixture.indices.shape[1] == 4


def test_less_than_an_anchor_per_frame_keeps_the_most_attended_cells():
    given = video(12)
    made = get("aot")(given, budget=Budget(tokens=4))
    pool = given.extras["pooling"].flatten(0, 1)
    best = (given.extras["attention_deep"] @ pool.T).flatten().topk(4).indices.sort().values
    torch.testing.assert_close(made.tokens, (pool @ given.features).flatten(0, 1)[best])


def test_the_published_setting_gives_about_a_tenth():
    """126 anchors and 0.3 on scattered attention; the budget finds them again."""
    g = torch.Generator().manual_seed(3)
    x = torch.randn(8, 729, 4, generator=g)
    shallow, deep = (torch.rand(8, 729, generator=g) for _ in range(2))
    count = len(aot(x, shallow, deep, pooling("bilinear", 27), (27, 27), AotParameters(anchors=126)).tokens)
    assert count / (8 * 196) == pytest.approx(0.1, abs=0.02)
    extras = {"attention_shallow": shallow, "attention_deep": deep, "pooling": pooling("bilinear", 27)}
    given = VideoFeatures(x, (27, 27), tokens_per_frame=196, extras=extras)
    assert len(get("aot")(given, budget=Budget(tokens=count))) == count


def test_counts_rise_with_the_number_of_anchors():
    given = video(6)
    shallow, deep, weights = given.extras.values()
    counts = [
        len(aot(given.features, shallow, deep, weights, given.grid, AotParameters(anchors=count)).tokens)
        for count in range(1, 82)
    ]
    assert all(before <= after for before, after in pairwise(counts))


def test_clips_are_the_papers_and_parameters_are_part_of_what_a_replay_depends_on():
    of = AotParameters()
    assert [of.clip_length(frames) for frames in (8, 32, 63, 64, 224)] == [4, 4, 4, 8, 8]
    assert AOT(AotParameters(kept=0.1)).replay_key != AOT().replay_key

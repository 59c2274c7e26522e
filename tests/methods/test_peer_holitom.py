"""HoliTom against its own code's results, against a plain reading of its rules, and how it meets a budget."""

import math

import golden_arrays
import pytest
import torch
from torch.nn.functional import cosine_similarity

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.peers import holitom as module
from aviot.methods.peers.holitom import HoliTom, HoliTomParameters, holitom, with_newlines_of_rows
from aviot.methods.peers.holitom_windows import divide

NEWLINE = 7.0
OUTER = [name for name in golden_arrays.names("holitom") if "features" in golden_arrays.load("holitom", name).tensors]


def bounds(windows):
    """Return the first and last frame of each window."""
    ends = torch.tensor(windows.lengths).cumsum(0)
    return torch.stack((ends - torch.tensor(windows.lengths), ends - 1), 1)


def check(case):
    given, x = case.params, case["features"]
    assert given["D"] == given["density_jitter"] == 0  # neither exists here
    own = HoliTomParameters(given["tau"], given["beta"], given["K"], given["max_window_size"])
    windows = divide(x, own.threshold, own.longest)
    assert torch.equal(bounds(windows), case["windows"])
    assert windows.saved == given["total_reduced"]
    ratio = windows.ratio(given["retain_ratio"])
    assert ratio == given["effective_ratio"]
    made = holitom(x, case["frame_attention"], windows, ratio, own)
    assert len(made.tokens) == windows.total(ratio)
    tokens = made.tokens
    if given["newline"] == "grid":
        tokens = with_newlines_of_rows(made, math.isqrt(x.shape[1]), torch.full((x.shape[2],), NEWLINE))[1]
    for name, found in (("token_index", made.index), ("token_is_static", made.is_static.to(torch.uint8))):
        assert name not in case.tensors or torch.equal(found, case[name])
    torch.testing.assert_close(tokens, case["tokens"], atol=1e-5, rtol=1e-5)
    rebuilt = made.sources.mixture(len(made.tokens), *x.shape[:2]).rebuild(x.flatten(0, 1))
    torch.testing.assert_close(rebuilt, made.tokens, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", OUTER)
def test_golden(name):
    check(golden_arrays.load("holitom", name))


@pytest.mark.parametrize("name", ["ov_dp_windows", "grid_dp_windows", "ov_r25_t80"])
def test_a_video_in_parts_of_little_memory_gives_the_same(name, monkeypatch):
    monkeypatch.setattr(module, "chunk_size", lambda elements: 1)
    check(golden_arrays.load("holitom", name))


def random_video(frames, patches, width=6, seed=0):
    """Return tokens that stay for a while, each position for a time of its own, and their attention."""
    g = torch.Generator().manual_seed(seed)
    changes = torch.rand(frames, patches, generator=g) < 0.25
    version = changes.cumsum(0)
    x = torch.randn(frames + 1, patches, width, generator=g)[version, torch.arange(patches)]
    x = x + 0.15 * torch.randn(frames, patches, width, generator=g)
    return x, torch.rand(frames, patches, generator=g)


def plain_windows(x, threshold, longest):
    """Return first and last frames and static positions by the rule, one window after another."""
    similar = cosine_similarity(x[:-1], x[1:], dim=-1) > threshold

    def static(first, last):
        return similar[first:last].all(0) if last > first else similar.new_zeros(x.shape[1])

    best, begin = [0], []
    for last in range(len(x)):
        top, at = best[last], last
        for first in range(last - 1, max(-1, last - longest), -1):
            gain = best[first] + int(static(first, last).sum()) * (last - first)
            if gain > top:
                top, at = gain, first
        best.append(top)
        begin.append(at)
    found, last = [], len(x) - 1
    while last >= 0:
        found.append((begin[last], last, static(begin[last], last)))
        last = begin[last] - 1
    return best[-1], found[::-1]


def plain_merge(tokens, count, of):
    """Return centres among tokens [M,C], and these merged with the others."""
    distance = torch.cdist(tokens, tokens) / tokens.shape[1] ** 0.5
    nearest = distance.sort(1).values[:, : min(of.neighbours, count)]
    density = (-nearest.square().mean(1)).exp()
    delta = [min([*distance[i][density > density[i]].tolist(), float(distance.max())]) for i in range(len(tokens))]
    score = torch.tensor(delta) * density
    centres = score.argsort(descending=True)[:count].sort().values
    rest = [i for i in range(len(tokens)) if i not in centres.tolist()]
    joined = {int(centre): [] for centre in centres}
    for i in rest:
        joined[int(centres[distance[i, centres].argmin()])].append(i)
    merged = [
        of.own_weight * tokens[centre] + (1 - of.own_weight) * tokens[others].mean(0) if others else tokens[centre]
        for centre, others in joined.items()
    ]
    return centres, merged


def plain(x, attention, retention, of):
    """Return HoliTom's tokens and their indices by its rules, window by window, frame by frame."""
    frames, patches, _ = x.shape
    saved, windows = plain_windows(x, of.threshold, of.longest)
    ratio = min(retention / ((frames * patches - saved) / (frames * patches)), 1)
    index, tokens = [], []
    for first, last, static in windows:
        still = static.nonzero()[:, 0]
        if count := round(len(still) * ratio):
            centres, merged = plain_merge(x[first : last + 1, still].mean(0), count, of)
            index += (first * patches + still[centres]).tolist()
            tokens += merged
        moving = (~static).nonzero()[:, 0]
        for frame in range(first, last + 1):
            best = attention[frame, moving].argsort(descending=True)[: math.ceil(len(moving) * ratio)]
            index += (frame * patches + moving[best].sort().values).tolist()
            tokens += list(x[frame, moving[best].sort().values])
    return [(first, last) for first, last, _ in windows], index, torch.stack(tokens)


@pytest.mark.parametrize("frames", [1, 2, 9, 17])
@pytest.mark.parametrize("patches", [4, 30])
@pytest.mark.parametrize("retention", [0.07, 0.3, 0.8])
@pytest.mark.parametrize(
    "of", [HoliTomParameters(), HoliTomParameters(0.65, 0.2, 3, 4), HoliTomParameters(0.9, 1.0, 99, 2)], ids=str
)
def test_the_rules_read_one_by_one(frames, patches, retention, of):
    for seed in range(3):
        x, attention = random_video(frames, patches, seed=seed)
        windows = divide(x, of.threshold, of.longest)
        made = holitom(x, attention, windows, windows.ratio(retention), of)
        expected, index, tokens = plain(x, attention, retention, of)
        assert [tuple(pair) for pair in bounds(windows).tolist()] == expected
        assert made.index.tolist() == index
        torch.testing.assert_close(made.tokens, tokens, atol=1e-5, rtol=1e-5)


def video(x, attention, grid=None):
    return VideoFeatures(x, grid or (1, x.shape[1]), extras={"attention": attention})


@pytest.mark.parametrize("parameters", [None, HoliTomParameters()])
def test_the_count_is_the_largest_that_a_share_gives_within_the_budget(parameters):
    x, attention = random_video(24, 30)
    given, total = video(x, attention), x.shape[0] * x.shape[1]
    for limit in range(24, total, 37):
        of = parameters or HoliTomParameters(threshold=0.65 if limit < 0.125 * total else 0.8)
        windows = divide(x, of.threshold, of.longest)
        best = max(windows.total(step / 5000) for step in range(5001) if windows.total(step / 5000) <= limit)
        made = HoliTom(parameters)(given, budget=Budget(tokens=limit))
        assert best <= len(made) <= limit
        used = made.mixture.weights
        torch.testing.assert_close(used.sum(1), torch.ones(len(made)))


def test_below_one_token_per_frame_the_most_attended_stay():
    x = torch.randn(9, 5, 3, generator=torch.Generator().manual_seed(0))
    attention = torch.rand(9, 5, generator=torch.Generator().manual_seed(1))
    best = attention.max(1)
    frames = best.values.argsort(descending=True)[:4].sort().values
    made = get("holitom")(video(x, attention), budget=Budget(tokens=4))
    assert torch.equal(made.tokens, x[frames, best.indices[frames]])


def test_a_still_video_is_one_frame_at_its_mean_time():
    x = torch.randn(1, 12, 8, generator=torch.Generator().manual_seed(0)).expand(10, -1, -1)
    made = get("holitom")(video(x.contiguous(), torch.rand(10, 12), (3, 4)), budget=Budget(tokens=40))
    assert len(made) == 12
    torch.testing.assert_close(made.tokens, x[0])
    torch.testing.assert_close(made.times, torch.full((12,), 4.5))
    assert made.positions[:, 1:].tolist() == [[row, column] for row in range(3) for column in range(4)]
    assert len(get("holitom")(video(x.contiguous(), torch.rand(10, 12)), budget=Budget(tokens=1))) == 1


def test_windows_of_equal_gain_are_short():
    """A longer window must save more: frames without a partner stay alone, and of equal divisions the last is short."""
    x = torch.eye(4)[[0, 0, 1, 1, 2]][:, None].expand(-1, 3, -1)
    assert divide(x, 0.8, 1024).lengths == (2, 2, 1)
    assert divide(torch.eye(4)[:, None], 0.8, 1024).lengths == (1, 1, 1, 1)
    assert divide(x[:1].expand(7, -1, -1), 0.8, 3).lengths == (3, 3, 1)

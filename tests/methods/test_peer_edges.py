"""Published methods on videos at the edge: few frames, one patch, still or empty pictures, every small budget."""

import re

import pytest
import torch

from aviot import Budget
from aviot.methods import VideoFeatures, get

NAMES = ("vidcom2", "vidcom2-exact", "evs", "dycoke", "tome", "fastvid", "holitom", "visionzip", "flashvid")
WIDTH = 5


def features(kind, frames, patches):
    g = torch.Generator().manual_seed(31 * frames + patches)
    x = torch.randn(frames, patches, WIDTH, generator=g)
    if kind == "still":
        x = x[:1].expand(frames, -1, -1).contiguous()
    return torch.zeros_like(x) if kind == "zero" else x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["noise", "still", "zero"])
@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_every_budget_is_met_or_refused_for_a_reason(name, kind, frames, grid):
    patches = grid[0] * grid[1]
    g = torch.Generator().manual_seed(1)
    extras = {"attention": torch.rand(frames, patches, generator=g)}
    extras["attention_keys"] = torch.randn(frames, patches, 4, generator=g)
    video = VideoFeatures(features(kind, frames, patches), grid, extras=extras)
    refused, least = [], 0
    for limit in range(1, frames * patches + 1):
        try:
            made = get(name)(video, budget=Budget(tokens=limit))
        except ValueError as error:
            refused.append(limit)
            least = int(re.search(r"keeps at least (\d+) of \d+ tokens .* the budget allows \d+\. Give", str(error))[1])
            continue
        assert 1 <= len(made) <= limit
        assert made.tokens.isfinite().all()
        torch.testing.assert_close(made.mixture.rebuild(video.flat()), made.tokens, atol=1e-5, rtol=1e-5)
        times = made.mixture.frame_shares() @ torch.tensor(video.times)
        torch.testing.assert_close(made.times, times, atol=1e-5, rtol=1e-5)
    assert torch.equal(made.tokens, video.flat())  # a budget of everything changes nothing
    assert refused == list(range(1, least))  # the smallest budget that is named is the smallest one that works

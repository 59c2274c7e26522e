"""Awkward videos and budgets for every method before the decoder: a result within the budget, or a helpful refusal."""

import re

import pytest
import torch

from aviot import Budget, Compressor, CompressorConfig
from aviot.config import TransportConfig
from aviot.methods import VideoFeatures, get, names

GRID, DIM = (4, 4), 8
PATCHES = GRID[0] * GRID[1]
NAMES = tuple(name for name in names() if get(name).point != "decoder")
ADVICE = re.compile(r"give (more|a larger)|choose another|choose a method", re.I)


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    few = TransportConfig(updates=3)  # a thousand frames would take ten seconds otherwise
    config = CompressorConfig(dim=DIM, cost_dim=4, grid=GRID, regions=((1, 1), (2, 2), (4, 4)), transport=few)
    return {"compressor": Compressor(config).eval(), "question_projection": torch.nn.Linear(6, DIM, bias=False)}


def video(features):
    """Return features with everything that some method needs."""
    frames, g = len(features), torch.Generator().manual_seed(len(features))
    extras = {
        "before_positions": features,
        "frame_means": torch.randn(frames, 6, generator=g),
        "attention": torch.rand(frames, PATCHES, generator=g) / PATCHES,
        "attention_keys": torch.randn(frames, PATCHES, 4, generator=g),
        "attention_shallow": torch.rand(frames, PATCHES, generator=g) / PATCHES,
        "attention_deep": torch.rand(frames, PATCHES, generator=g) / PATCHES,
        "pooling": torch.eye(PATCHES).unflatten(0, GRID),
        "question_tokens": torch.randn(5, DIM, generator=g),
    }
    return VideoFeatures(features, GRID, tuple(0.5 * number for number in range(frames)), extras=extras)


def random(frames, dtype=torch.float32):
    return torch.randn(frames, PATCHES, DIM, generator=torch.Generator().manual_seed(7)).to(dtype)


def some_zero(frames):
    features = random(frames)
    features[:, ::3] = 0
    features[frames // 2] = 0
    return features


LONG = "1,000 frames"
VIDEOS = {
    "identical frames": lambda: random(1).expand(12, -1, -1).contiguous(),
    "identical tokens": lambda: random(1)[:, :1].expand(12, PATCHES, -1).contiguous(),
    "zeros": lambda: torch.zeros(12, PATCHES, DIM),
    "some zeros": lambda: some_zero(12),
    "opposite frames": lambda: random(1) * (-1.0) ** torch.arange(12)[:, None, None],
    "tiny": lambda: random(12) * 1e-30,
    "huge": lambda: random(12) * 1e15,
    "one frame": lambda: random(1),
    "two frames": lambda: random(2),
    "three frames": lambda: random(3),
    LONG: lambda: random(1000),
    "float16": lambda: random(13, torch.float16),
    "bfloat16": lambda: random(13, torch.bfloat16),
}


def budgets(which, point, total):
    """Return budgets by name; fewer of a long video's frames, whose dense mixtures take seconds each."""
    some = {"one token": 1, "a tenth": total // 10}
    if which != LONG:
        some |= {"a quarter": total // 4, "a token fewer than all": total - 1}
    if which != LONG or point == "tokens":
        some |= {"more than all": 10 * total}
    return {label: Budget(tokens=max(1, tokens)) for label, tokens in some.items()}


def result_or_refusal(method, given, budget):
    width, g = 6 if method.point == "features" else DIM, torch.Generator().manual_seed(1)  # of the decoder's space
    question = torch.randn(width, generator=g) if method.uses_question else None
    try:
        return method(given, question=question, budget=budget)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", VIDEOS)
@torch.no_grad()
def test_every_budget_gives_tokens_within_it_or_a_refusal_that_says_what_to_do(parts, name, which):
    method, given = get(name).bind(parts), video(VIDEOS[which]())
    assert method.needs <= given.extras.keys(), "add what the method needs to this file's video()"
    for label, budget in budgets(which, method.point, given.frames * PATCHES).items():
        made = result_or_refusal(method, given, budget)
        if label == "more than all":
            assert not isinstance(made, str), made
            assert method.point == "features" or torch.equal(made.tokens, given.flat())
        if isinstance(made, str):
            assert ADVICE.search(made), f"{label}: {made}"
        else:
            check(method, given, made, budget)


def check(method, given, made, budget):
    frames = given.frames
    if method.point == "tokens":
        most = budget.count(frames, PATCHES)
    else:
        most = PATCHES * (budget.frames(frames, PATCHES) if method.compresses else frames)
    assert 1 <= len(made) <= most
    assert made.tokens.dtype == given.features.dtype
    assert made.tokens.isfinite().all()
    assert made.positions.isfinite().all()
    assert int(made.nearest_frame.max()) < frames
    index = torch.randperm(len(made), generator=torch.Generator().manual_seed(0))[:300]
    some, tokens = made.subset(index).mixture, made.tokens[index]
    rounding = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[tokens.dtype]
    size = max(float(given.features.float().abs().max()), 1e-30)
    rebuilt = some.rebuild(given.flat()) / size
    torch.testing.assert_close(rebuilt, tokens.float() / size, atol=rounding, rtol=rounding)
    assert int(some.indices.min()) >= 0
    assert int(some.indices.max()) < frames * PATCHES


PEERS = tuple(name for name in NAMES if get(name).point == "tokens" and name != "low-resolution")  # which shows NaN


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", PEERS)
@torch.no_grad()
def test_what_is_not_finite_is_refused(name, value):
    """One bad value among the tokens, or in an extra that the method reads."""
    method = get(name)
    question = torch.ones(6 if method.point == "features" else DIM) if method.uses_question else None
    for which in (None, *sorted(method.needs)):
        given = video(random(12))
        (given.features if which is None else given.extras[which]).view(-1)[5] = value
        with pytest.raises(ValueError, match="not finite"):
            method(given, question=question, budget=Budget(keep=0.5))

"""What holds for every method of the registry, on features of awkward shapes and kinds."""

import re

import pytest
import torch

from aviot import Budget, Compressor, CompressorConfig
from aviot.methods import FrameMethod, VideoFeatures, get, names
from aviot.methods.baselines import cell_weights, smaller_grid

GRID, DIM = (9, 9), 16
ADDING = {"visionzip", "flashvid"}  # methods that add tokens up instead of averaging them
NAMES = tuple(name for name in names() if get(name).point != "decoder")


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    config = CompressorConfig(dim=DIM, cost_dim=8, grid=GRID, regions=((1, 1), (3, 3), (9, 9)))
    return {"compressor": Compressor(config).eval(), "question_projection": torch.nn.Linear(6, DIM, bias=False)}


def video(frames, dtype=torch.float32, **changes):
    g = torch.Generator().manual_seed(frames)
    features = torch.randn(frames, 81, DIM, generator=g).to(dtype)
    extras = {"before_positions": features, "frame_means": torch.randn(frames, 6, generator=g)}
    extras["attention"] = torch.rand(frames, 81, generator=g).softmax(1)
    extras["attention_keys"] = torch.randn(frames, 81, 4, generator=g)
    extras["question_tokens"] = torch.randn(5, DIM, generator=g)
    extras |= {f"attention_{layer}": torch.rand(frames, 81, generator=g).softmax(1) for layer in ("shallow", "deep")}
    extras["pooling"] = torch.eye(81).unflatten(0, GRID)
    times = tuple(0.5 * number for number in range(frames))
    return VideoFeatures(**({"features": features, "grid": GRID, "times": times, "extras": extras} | changes))


def accepted(method, given, budget):
    """Return the budget, or the smallest one that the method names when it refuses this one as too small."""
    try:
        method(given, budget=budget)
    except ValueError as error:
        least = re.search(r"keeps at least (\d+) of", str(error))
        if least is None:
            raise
        assert budget.count(given.frames, given.patches) < int(least[1])
        return Budget(tokens=int(least[1]))
    return budget


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("frames", [1, 2, 13, 64])
@pytest.mark.parametrize("budget", [Budget(ratio=4), Budget(keep=0.1), Budget(supports=3), Budget(keep=1.0)])
@torch.no_grad()
def test_tokens_are_their_mixtures_at_their_mean_times(parts, name, frames, budget):
    method, given = get(name).bind(parts), video(frames)
    width = 6 if method.point == "features" else DIM  # of the decoder's space
    question = torch.randn(width) if method.uses_question else None
    budget = accepted(method, given, budget)
    made = method(given, question=question, budget=budget)
    mixture = made.mixture
    torch.testing.assert_close(mixture.rebuild(given.flat()), made.tokens, atol=1e-5, rtol=1e-5)
    sums = mixture.weights.sum(1)
    whole = sums.round() if name in ADDING else torch.ones(len(made))
    torch.testing.assert_close(sums, whole, atol=1e-5, rtol=0)
    torch.testing.assert_close(mixture.frame_shares().sum(1), torch.ones(len(made)), atol=1e-5, rtol=0)
    times = mixture.frame_shares().float() @ torch.tensor(given.times)
    if method.point == "features":  # a support stands at one time, whatever its positions are mixed of
        times = times.unflatten(0, (-1, 81)).mean(1, keepdim=True).expand(-1, 81).flatten()
    torch.testing.assert_close(made.times, times, atol=1e-3, rtol=0)
    assert made.positions.shape == (len(made), 3)
    most = budget.count(frames, 81) if method.point == "tokens" else 81 * budget.frames(frames, 81)
    assert 1 <= len(made) <= (most if method.compresses else 81 * frames)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_no_question_is_needed_and_calls_repeat(parts, name):
    method = get(name).bind(parts)
    budget = accepted(method, video(20), Budget(ratio=4))
    first, second = (method(video(20), budget=budget) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@torch.no_grad()
def test_features_keep_their_type(parts, name, dtype):
    parts = {key: module.to(torch.float32) for key, module in parts.items()}
    method = get(name).bind(parts)
    made = method(video(13, dtype), budget=accepted(method, video(13, dtype), Budget(ratio=4)))
    assert made.tokens.dtype == dtype
    assert made.tokens.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_frames_that_are_all_alike_come_back_as_they_are(parts, name):
    same = video(1).features.expand(12, -1, -1).contiguous()
    method, given = get(name).bind(parts), video(12, features=same)
    made = method(given, budget=accepted(method, given, Budget(supports=3)))
    if made.compression is not None:
        expected = same[:1].expand(len(made.tokens) // 81, -1, -1).flatten(0, 1)
        torch.testing.assert_close(made.tokens, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(get(name), FrameMethod)])
@torch.no_grad()
def test_a_batch_is_its_members(parts, name):
    method = get(name).bind(parts)
    one, two = video(20), video(20, features=torch.randn(20, 81, DIM))
    stacked = {key: torch.stack((one.extras[key], two.extras[key])) for key in one.extras}
    both = video(20, features=torch.stack((one.features, two.features)), extras=stacked)
    made = method.mix(both, question=None, budget=Budget(ratio=4))
    for place, alone in enumerate((one, two)):
        expected = method.mix(alone, question=None, budget=Budget(ratio=4)).features
        torch.testing.assert_close(made.features[place], expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="give one video"):
        method(both, budget=4)


def test_a_budget_of_one_token():
    assert len(get("low-resolution")(video(8), budget=Budget(tokens=1))) == 1
    with pytest.raises(ValueError, match="less than one frame's 81"):
        get("uniform")(video(8), budget=Budget(tokens=1))


def test_a_trained_method_alone_says_what_it_needs():
    with pytest.raises(ValueError, match="has no weights by itself; use a VideoLM"):
        get("aviot")(video(8), budget=4)


def test_features_must_fit_their_grid_and_times():
    with pytest.raises(ValueError, match=r"features must be \[T,81,D\]"):
        VideoFeatures(torch.zeros(3, 80, 4), GRID)
    with pytest.raises(ValueError, match="one time per frame, or no times; got 2 for 3 frames"):
        VideoFeatures(torch.zeros(3, 81, 4), GRID, (0.0, 1.0))


def test_random_frames_are_those_of_the_seed():
    from aviot.methods.baselines import Random

    picks = [Random(seed)(video(40), budget=4).mixture.weights for seed in (0, 0, 1)]
    assert torch.equal(picks[0], picks[1])
    assert not torch.equal(picks[0], picks[2])


@pytest.mark.parametrize(("grid", "cells"), [((14, 14), 49), ((14, 14), 50), ((9, 16), 36), ((3, 20), 7), ((5, 5), 99)])
def test_a_smaller_grid_fits_and_keeps_its_proportions(grid, cells):
    rows, columns = smaller_grid(grid, cells)
    assert 1 <= rows <= grid[0]
    assert 1 <= columns <= grid[1]
    assert rows * columns <= max(cells, 1) or (rows, columns) == grid
    assert rows * columns >= 0.5 * min(cells, grid[0] * grid[1])
    weights = cell_weights(grid, (rows, columns))
    torch.testing.assert_close(weights.sum(1), torch.ones(rows * columns))


def test_frames_mixed_by_a_matrix_of_weights():
    from aviot.methods import mix_by_weights

    given, weights = video(6), torch.softmax(torch.randn(2, 6), 1)
    made = mix_by_weights(given, weights)
    torch.testing.assert_close(made.features, torch.einsum("kt,tsd->ksd", weights, given.features))
    torch.testing.assert_close(made.provenance().frames(), weights)


def test_what_a_method_returns_is_checked():
    from aviot.methods import Compressed, TokenMethod, TokenMixture

    class Returns(TokenMethod):
        name = "returns"

        def __init__(self, make):
            self.make = make

        def compress(self, video, *, question, budget):
            assert question is None  # it does not say that it uses one
            return self.make(video)

    def run(make, **attributes):
        method = Returns(make)
        for name, value in attributes.items():
            setattr(method, name, value)
        return method(video(4), question=torch.randn(6), budget=4)

    with pytest.raises(TypeError, match="'returns' must return a Compressed, got NoneType"):
        run(lambda _: None)
    with pytest.raises(ValueError, match="index must be a 1-D tensor of whole numbers, got torch"):
        run(lambda given: Compressed.kept(given, torch.ones(324, dtype=torch.bool)))
    with pytest.raises(ValueError, match="must have one shape"):
        TokenMixture(torch.zeros(3, 2, dtype=torch.long), torch.zeros(3, 1), 4, 81)
    with pytest.raises(ValueError, match="needs deepstack, which this backbone does not supply"):
        run(lambda given: given, needs=frozenset({"deepstack"}))
    with pytest.raises(ValueError, match="made 100 tokens of a budget of 81; a method may return at most"):
        run(lambda given: Compressed.kept(given, torch.arange(100)))
    for weights in (torch.zeros(3, 2), torch.tensor([[1.0, 0.0], [1.0, -2.0], [0.5, 0.5]]), torch.ones(3, 2) / 0):
        mixture = TokenMixture(torch.zeros(3, 2, dtype=torch.long), weights, 4, 81)
        with pytest.raises(ValueError, match="weights of every token's sources must be finite and their sum positive"):
            run(lambda given, mixture=mixture: Compressed.mixed(given, mixture))


def test_a_class_must_have_the_name_it_is_registered_for(monkeypatch):
    from aviot.methods import register, registry
    from aviot.methods.baselines import Uniform

    monkeypatch.setattr(registry, "_registered", {})
    register(Uniform, "other")
    with pytest.raises(ValueError, match="'other' is registered for a class whose name is 'uniform'"):
        get("other")
    with pytest.raises(ValueError, match="register a Method subclass"):
        register(3, "third")

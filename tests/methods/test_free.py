"""Training-free AVIOT against its equations in float64, and what must hold for any video."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aviot import Budget
from aviot.methods import VideoFeatures, get
from aviot.methods.features import Structure
from aviot.methods.free import geometry as geometry_module
from aviot.methods.free import reference
from aviot.methods.free.geometry import geometry
from aviot.methods.free.method import AviotFree
from aviot.methods.free.parameters import FreeParameters
from aviot.methods.free.selection import largest, log_gains

GRID, DIM = (3, 4), 6
METHOD = AviotFree()


def tokens(frames, seed=0, grid=GRID, dim=DIM, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(frames, grid[0] * grid[1], dim, generator=g, dtype=torch.float64).to(dtype)


def asked(seed=0, dim=DIM):
    return torch.randn(dim, generator=torch.Generator().manual_seed(1000 + seed))


def kept(method, x, question, budget, grid=GRID, **more):
    made = method(VideoFeatures(x, grid, **more), question=question, budget=budget)
    return made, made.mixture.indices[:, 0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("conditioned", [True, False])
@pytest.mark.parametrize("coverage", [0.25, 1.0])
def test_gains_and_selection_are_those_of_the_equations(seed, conditioned, coverage):
    own = FreeParameters(coverage=coverage, relevance=0.8)
    x, question = tokens(5, seed), asked(seed) if conditioned else None
    expected = reference.log_gains(x, question, own)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = log_gains(geometry(x.to(dtype), question), own)
        torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), atol=tolerance, rtol=0)
    for count in (1, 4, 5, 23, 59):
        _, index = kept(AviotFree(own), x, question, Budget(tokens=count))
        assert index.tolist() == reference.kept(expected, count)


def test_the_reference_by_hand():
    """One frame of four tokens on a line, whose mean is 0: the farthest, then the other side, then what is between."""
    x = torch.tensor([[[-4.0], [-3.0], [1.0], [6.0]]])
    own = FreeParameters(coverage=0.5)
    gains = torch.tensor(reference.log_gains(x, None, own)).exp()
    expected = torch.tensor([[(4 * 4) ** 0.5, (3 * 1) ** 0.5, (1 * 1) ** 0.5, (6 * 6) ** 0.5]])
    torch.testing.assert_close(gains, expected.to(gains))


def test_masses_by_hand():
    """The cosines 1 and -1 have the deviation 1; the mass is exp(kappa / (1 + sigma_0))."""
    x, own = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]]), FreeParameters(relevance=0.6, evidence=0.5)
    (first,), (second,) = reference.log_masses(x.double(), torch.tensor([2.0, 0.0]).double(), own)
    assert first == pytest.approx(0.4)
    assert second == pytest.approx(-0.4)


shapes = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(1, 130), st.booleans(), st.integers(0, 99), st.sampled_from(["float32", "bfloat16"]))
def test_any_video_and_budget(shape, count, conditioned, seed, dtype):
    """As many tokens as the budget allows, unchanged, in order, one in every frame if there is room, at true times."""
    frames, rows, columns, dim = shape
    x = tokens(frames, seed, (rows, columns), dim, getattr(torch, dtype))
    times = tuple(1.5 * t + 0.25 for t in range(frames))
    video = VideoFeatures(x, (rows, columns), times)
    budget = Budget(tokens=count)
    made = METHOD(video, question=asked(seed, dim) if conditioned else None, budget=budget)
    assert len(made) == video.limit(budget) == min(count, x[..., 0].numel())
    mixture = made.mixture
    assert torch.equal(mixture.weights, torch.ones(len(made), 1))
    index = mixture.indices[:, 0]
    assert (index[1:] > index[:-1]).all()
    assert torch.equal(made.tokens, video.flat()[index])
    assert torch.equal(mixture.rebuild(video.flat()).to(x.dtype), made.tokens)
    assert torch.equal(made.times, torch.tensor(times)[index // (rows * columns)])
    if len(made) >= frames:
        assert len(torch.unique(index // (rows * columns))) == frames


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(0.01, 100), st.floats(-3, 3), st.booleans())
def test_scale_and_shift_of_all_tokens_change_nothing(seed, scale, shift, conditioned):
    x, question = tokens(4, seed).double(), asked(seed) if conditioned else None
    gains, moved = (log_gains(geometry(each, question), FreeParameters()) for each in (x, x * scale + shift))
    torch.testing.assert_close(moved - moved.mean(), gains - gains.mean(), atol=1e-7, rtol=1e-7)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.booleans(), st.integers(1, 47))
def test_a_larger_budget_keeps_what_a_smaller_one_kept(seed, conditioned, count):
    question = asked(seed) if conditioned else None
    sets = [set(kept(METHOD, tokens(4, seed), question, Budget(tokens=n))[1].tolist()) for n in (count, count + 1)]
    assert count < 4 or sets[0] < sets[1]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.permutations(range(5)))
def test_frames_in_another_order_keep_the_same_tokens(seed, order):
    x = tokens(5, seed)
    _, index = kept(METHOD, x, asked(seed), Budget(tokens=20))
    _, moved = kept(METHOD, x[list(order)], asked(seed), Budget(tokens=20))
    back = torch.tensor(order)[moved // 12] * 12 + moved % 12
    assert sorted(back.tolist()) == index.tolist()


def test_a_token_that_another_covers_gains_less():
    x = tokens(1, 3)
    x[0, 7] = x[0, 2] = 5 * x[0, 2]  # twice the same, far from the mean
    gains = log_gains(geometry(x, None), FreeParameters())[0]
    assert gains.argmax() == 2
    assert gains[7] < gains.median()


def test_what_the_question_names_keeps_more():
    x, question = tokens(8, 5), asked()
    x[6] += torch.where(torch.arange(12) < 6, 2, -2)[:, None] * torch.nn.functional.normalize(question, dim=0)
    along = [
        int(torch.isin(kept(METHOD, x, each, Budget(tokens=24))[1], torch.arange(72, 78)).sum())
        for each in (question, None, -question)
    ]
    assert along[0] > along[1] > along[2]


def test_a_question_without_evidence_has_little_weight():
    """Cosines that are all but equal are no evidence, whatever their order."""
    x, own = tokens(6, 2, dim=7), FreeParameters()
    x[..., 6] *= 1e-4
    nowhere = torch.eye(7)[6]
    gains = [log_gains(geometry(x, question), own) for question in (None, nowhere)]
    assert float((gains[0] - gains[1]).abs().max()) < 0.05


def test_alike_frames_share_alike_and_the_first_of_equal_tokens_stays():
    x = tokens(1, 4).expand(6, -1, -1).contiguous()
    _, index = kept(METHOD, x, asked(4), Budget(tokens=30))
    assert torch.bincount(index // 12).tolist() == [5] * 6
    _, still = kept(METHOD, torch.ones(3, 12, DIM), None, Budget(tokens=5))
    assert still.tolist() == [0, 1, 2, 12, 24]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float32(dtype):
    x = tokens(6, 1, dtype=dtype)
    _, half = kept(METHOD, x, asked().to(dtype), Budget(tokens=20))
    _, single = kept(METHOD, x.float(), asked().to(dtype), Budget(tokens=20))
    assert torch.equal(half, single)


def test_a_thousand_frames_in_slices_are_what_they_are_at_once(monkeypatch):
    x = tokens(1000, 9)
    _, whole = kept(METHOD, x, asked(), Budget(keep=0.1))
    assert len(whole) == 1200
    monkeypatch.setattr(geometry_module, "ELEMENTS", 37 * 12 * 12)
    assert torch.equal(kept(METHOD, x, asked(), Budget(keep=0.1))[1], whole)


def test_separators_have_room():
    made, _ = kept(METHOD, tokens(10), None, Budget(keep=0.5), tokens_per_frame=15, structure=Structure(per_frame=1))
    assert len(made) == 75 - 10


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("keep", [0.2, 1.0])
def test_values_that_are_not_finite_are_refused(value, keep):
    x = tokens(4)
    x[2, 3, 1] = value
    with pytest.raises(ValueError, match=r"the video's tokens are not finite \(NaN or infinity\)"):
        kept(METHOD, x, None, Budget(keep=keep))
    question = asked()
    question[1] = value
    with pytest.raises(ValueError, match="the question's embedding is not finite"):
        kept(METHOD, tokens(4), question, Budget(keep=0.2))


def test_checks_wait_until_the_host_reads(monkeypatch):
    """As on a GPU, where reading a flag at once would stall the device."""
    from aviot.methods.aviot.finite import FiniteCheck

    now = FiniteCheck.raise_pending
    monkeypatch.setattr(FiniteCheck, "raise_pending", lambda self: None)
    x = tokens(4)
    x[0, 0, 0] = torch.nan
    made = METHOD(VideoFeatures(x, GRID), budget=Budget(keep=0.2))
    monkeypatch.setattr(FiniteCheck, "raise_pending", now)
    for read in (lambda: made.positions, lambda: made.mixture):
        with pytest.raises(ValueError, match="the video's tokens are not finite"):
            read()


def test_a_question_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"compares the question \[6\] with the video's tokens, got \(5,\); give the"):
        kept(METHOD, tokens(4), asked(dim=5), Budget(keep=0.2))


def test_every_frame_keeps_one_only_if_there_is_room():
    gains = torch.tensor([[5.0, 4.0, 3.0], [0.2, 0.1, 0.0]])
    assert largest(gains, 1).tolist() == [0]
    assert largest(gains, 2).tolist() == [0, 3]
    assert largest(gains, 4).tolist() == [0, 1, 2, 3]


def test_parameters_are_checked_and_belong_to_the_key():
    assert isinstance(get("aviot-free"), AviotFree)
    assert AviotFree(FreeParameters(relevance=1)).replay_key != METHOD.replay_key
    for name, wrong in (("relevance", torch.inf), ("evidence", 0.0), ("coverage", 1.5)):
        with pytest.raises(ValueError, match=name):
            FreeParameters(**{name: wrong})

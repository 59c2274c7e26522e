"""Uniform Keep, Segment Mean and random drop on the compressor's interface."""

import pytest
import torch
from common import relative

from aviot import CompressorConfig, SegmentMean, UniformKeep
from aviot.methods.aviot import RandomDrop

CONFIG = CompressorConfig(dim=4, cost_dim=8, grid=(2, 3), regions=((1, 1),))


def features(frames, batch=()):
    return torch.randn(*batch, frames, 6, 4, generator=torch.Generator().manual_seed(frames))


@pytest.mark.parametrize(("frames", "supports"), [(10, 4), (7, 3), (64, 16), (5, 1)])
def test_uniform_keep_keeps_frames(frames, supports):
    x = features(frames)
    out = UniformKeep(CONFIG)(x, supports=supports)
    index = torch.round(torch.linspace(0, frames - 1, supports)).long()
    assert torch.equal(out.features, x[index])
    assert out.path == (frames, supports)
    assert out.budgets == ((supports,),)


@pytest.mark.parametrize(("frames", "supports"), [(10, 4), (7, 3), (64, 16), (5, 1)])
def test_segment_mean_averages_intervals(frames, supports):
    x = features(frames)
    out = SegmentMean(CONFIG)(x, supports=supports)
    expected = torch.stack([part.mean(0) for part in torch.tensor_split(x, supports)])
    assert torch.allclose(out.features, expected, atol=1e-6)
    assert out.budgets == ((1,) * supports,)


def random_drop(config, seed=0):
    return RandomDrop(config, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("frames", "supports"), [(10, 4), (7, 3), (64, 16), (5, 1), (9, 8)])
def test_random_drop_keeps_different_frames_in_order(frames, supports):
    x = features(frames)
    out = random_drop(CONFIG)(x, supports=supports)
    kept = out.provenance().frames().argmax(-1)
    assert torch.equal(out.features, x[kept])
    assert (kept.diff() > 0).all()
    assert out.path == (frames, supports)
    assert out.budgets == ((supports,),)


def test_random_drop_draws_from_the_callers_generator_alone():
    x = features(40)
    one, other = random_drop(CONFIG, seed=3), random_drop(CONFIG, seed=4)
    first = one(x, supports=10).features
    torch.manual_seed(1)
    assert torch.equal(random_drop(CONFIG, seed=3)(x, supports=10).features, first)
    assert not torch.equal(one(x, supports=10).features, first)
    assert not torch.equal(other(x, supports=10).features, first)


def test_random_drop_draws_for_each_video_and_reaches_every_frame():
    kept = random_drop(CONFIG)(features(12, batch=(200,)), supports=3).provenance().frames().argmax(-1)
    assert len(kept.unique(dim=0)) > 100
    counts = kept.flatten().bincount(minlength=12)
    assert counts.min() > 25  # 50 expected, each about 6 off
    assert counts.max() < 75


def test_random_drop_leaves_a_short_video_alone():
    x = features(3)
    assert random_drop(CONFIG)(x, supports=3).features is x


@pytest.mark.parametrize("make", [UniformKeep, SegmentMean, random_drop])
def test_same_interface(make):
    x = features(11, batch=(2,))
    out = make(CONFIG)(x.bfloat16(), question=torch.ones(4), relevance=torch.ones(11), motion=x, ratio=3, step=5)
    assert out.features.dtype == torch.bfloat16
    out = make(CONFIG)(x, ratio=3)
    p = out.provenance()
    assert p.coefficients.shape == (2, 4, 6, 11)
    assert relative(torch.einsum("bkst,btsd->bksd", p.coefficients, x), out.features) < 1e-6
    assert out.loss.tolist() == [0, 0]
    assert set(out.terms._asdict()) == {"temporal", "regional", "continuity", "variation", "balance", "entropy"}
    with pytest.raises(ValueError, match="a baseline has no branch"):
        p.branch("global")

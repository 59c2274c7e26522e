"""Uniform Keep and Segment Mean on the compressor's interface."""

import pytest
import torch
from conftest import relative

from aviot import CompressorConfig, SegmentMean, UniformKeep

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


@pytest.mark.parametrize("make", [UniformKeep, SegmentMean])
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

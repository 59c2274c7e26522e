"""Distances and clusters that several published methods share."""

import pytest
import torch

from aviot.methods.peers.density_peaks import cluster, pairwise_distances


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_distances_are_those_of_direct_differences(dtype, offset):
    g = torch.Generator().manual_seed(0)
    tokens = (torch.randn(3, 40, 64, generator=g, dtype=torch.float64) + offset).to(dtype)
    tokens[:, 7] = tokens[:, 30]
    tokens[:, 8] = tokens[:, 31] * (1 + 1e-2)
    made = pairwise_distances(tokens)
    exact = torch.cdist(tokens.double(), tokens.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert made.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(made.double(), exact, atol=0, rtol=1e-6)
    assert torch.equal(made, made.mT)
    assert (made.diagonal(dim1=1, dim2=2) == 0).all()
    assert (made[:, 7, 30] == 0).all()
    assert (made[:, 8, 31] > 0).all()


def test_sets_of_different_sizes_are_clustered_as_each_one_alone():
    g = torch.Generator().manual_seed(1)
    sizes, wanted = [3, 12, 20], [3, 4, 7]
    sets = [torch.randn(size, 5, generator=g) for size in sizes]
    padded = torch.stack([torch.cat((one, torch.zeros(20 - len(one), 5))) for one in sets])
    mask = torch.arange(20) < torch.tensor(sizes)[:, None]
    near = torch.tensor(wanted).clamp_max(5)
    labels, centres = cluster(padded, torch.tensor(wanted), near, mask)
    for number, (one, count) in enumerate(zip(sets, wanted, strict=True)):
        own, chosen = cluster(one, count, min(count, 5))
        assert labels[number][: len(one)].tolist() == own.tolist()
        assert centres[number][: len(one)].tolist() == chosen.tolist()
        assert int(chosen.sum()) == count
        assert own[chosen].sort().values.tolist() == list(range(count))


@pytest.mark.parametrize("extent", [1.0, 0.01])
def test_tokens_that_nearly_coincide_are_told_apart(extent):
    """Their densities differ by less than float32 can tell just below one; labels are those of float64 tokens."""
    tokens = extent * torch.rand(4, 100, 2, generator=torch.Generator().manual_seed(0))
    found, expected = cluster(tokens, 20, 7), cluster(tokens.double(), 20, 7)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])

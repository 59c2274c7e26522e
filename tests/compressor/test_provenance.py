"""Provenance by frame, token, branch and source patch."""

import pytest
import torch
from common import inputs, make

from aviot import UniformKeep
from aviot.methods.aviot.analysis import (
    agreement,
    allocation_distance,
    centroids,
    jensen_shannon,
    temporal_divergence,
    top_cells,
)


@pytest.fixture(scope="module")
def out():
    return make()(**inputs(40), supports=5)


def test_frames_tokens_and_traces_are_the_same_numbers(out):
    p = out.provenance()
    assert p.tokens().shape == (5, 35, 40)
    assert torch.allclose(p.tokens().sum(-1), torch.ones(5, 35), atol=1e-5)
    assert torch.allclose(p.frames(), p.tokens().mean(1))
    assert torch.equal(p.trace(7, 3), p.tokens()[:, 3, 7])
    assert torch.allclose(p.trace(7), p.frames()[:, 7])
    assert make()(**inputs(40, batch=(2,)), supports=5).provenance().trace(7, 3).shape == (2, 5)


def test_paths_add_up_to_the_fused_mass(out):
    p = out.provenance()
    paths = dict(p.branches())
    assert tuple(paths) == p.branch_names == ("global", "medium", "local")
    assert torch.allclose(sum(path.mass for path in paths.values()), p.coefficients, atol=1e-6)
    assert torch.allclose(sum(path.share for path in paths.values()), torch.ones(5, 35), atol=1e-6)
    assert torch.equal(paths["medium"].coefficients, p.branch("medium").coefficients)
    assert torch.allclose(paths["local"].frames().sum(-1), torch.ones(5), atol=1e-5)


@pytest.mark.parametrize("patches", [slice(0, 9), slice(30, 99), slice(4, 30, 5), slice(-6, None), slice(7, 7)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_path_at_some_positions(patches, batch):
    p = make()(**inputs(40, batch=batch), supports=5).provenance()
    whole = p.branch("local").mass
    torch.testing.assert_close(p.branch_mass("local", patches), whole[..., patches, :], atol=1e-7, rtol=0)


def test_no_paths_where_there_are_none():
    compressor, video = make(), inputs(4)
    for found in (compressor(**video, supports=4), UniformKeep(compressor.config)(video["x"], supports=2)):
        assert found.provenance().branch_names == ()
        assert dict(found.provenance().branches()) == {}


@pytest.mark.parametrize(("frame", "patch"), [(40, 0), (-1, 0), (0, 35), (0.5, 0), (True, 0)])
def test_a_trace_of_nothing(out, frame, patch):
    with pytest.raises(ValueError, match=r"must be a whole number from 0 to (39|34), got"):
        out.provenance().trace(frame, patch)


def test_top_cells_are_a_fifth():
    maps = torch.rand(3, 729)
    top = top_cells(maps)
    assert (top.sum(-1) == 146).all()  # ceil(145.8)
    assert (maps.masked_fill(~top, 2).amin(-1) > maps.masked_fill(top, -1).amax(-1)).all()
    assert top_cells(torch.rand(55)).sum() == 11
    assert top_cells(torch.ones(10)).tolist() == [True] * 2 + [False] * 8


def test_agreement_of_maps_made_by_hand():
    maps = torch.zeros(3, 25)
    maps[0, :5], maps[1, :5], maps[2, 20:] = 1, 2, 1  # top row, twice as much of it, bottom row
    found = agreement(maps, (5, 5))
    assert found.shares.tolist() == [0.25, 0.5, 0.25]
    far = 0.8 / 2**0.5  # four fifths of the height, over the diagonal
    assert float(found.centroid_largest) == pytest.approx(far, abs=1e-6)
    assert float(found.centroid_mean) == pytest.approx(2 * far / 3, abs=1e-6)
    assert float(found.overlap) == pytest.approx(1 / 3)
    assert float(found.divergence) == pytest.approx(2 / 3)
    assert float(found.common) == 0
    assert float(found.mass_in_top) == pytest.approx(0.75)


def test_maps_that_agree_in_all_and_a_path_alone():
    one = torch.rand(35)
    same = agreement(torch.stack((one, 3 * one)), (5, 7))
    assert [float(same.centroid_largest), float(same.divergence)] == pytest.approx([0, 0], abs=1e-6)
    assert float(same.overlap) == float(same.common) == 1
    assert agreement(one[None], (5, 7)).overlap.isnan()
    assert centroids(torch.zeros(35), (5, 7)).tolist() == [0.5, 0.5]


def test_agreement_takes_many_pairs_at_once(out):
    p = out.provenance()
    maps = torch.stack([path.mass for _, path in p.branches()]).permute(1, 3, 0, 2)  # [K,T,L,S]
    many = agreement(maps, (5, 7))
    one = agreement(maps[2, 9], (5, 7))
    assert many.shares.shape == (5, 40, 3)
    assert all(torch.allclose(a[2, 9], b) for a, b in zip(many, one, strict=True))


def test_the_supplements_allocation_distances():
    spoon, food, rotated = [23, 25, 30, 10], [20, 20, 19, 29], [20, 19, 20, 29]
    assert round(allocation_distance(spoon, food), 3) == 0.432
    assert round(allocation_distance(food, rotated), 3) == 0.023
    assert allocation_distance([30, 19, 20, 19], [30, 19, 20, 19]) == 0
    assert allocation_distance([4, 0], [0, 7]) == 2
    with pytest.raises(ValueError, match="the same segments, got 2 and 3"):
        allocation_distance([1, 1], [1, 1, 1])


def test_divergences_are_bits():
    assert float(jensen_shannon(torch.tensor([1.0, 0]), torch.tensor([0, 1.0]))) == pytest.approx(1)
    first, second = torch.tensor([[1.0, 0, 0], [0, 1, 0]]), torch.tensor([[0, 0, 1.0]])
    assert temporal_divergence(first, second) == pytest.approx(1)
    assert temporal_divergence(first, first.flip(0)) == 0  # the order of supports does not matter
    with pytest.raises(ValueError, match="the same frames"):
        temporal_divergence(first, second[:, :2])

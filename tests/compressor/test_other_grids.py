"""A compressor on another grid than its own: the reference's result with regions that fit."""

import pytest
import torch
from common import inputs, make, relative

from aviot import CompressorConfig
from aviot.methods.aviot.reference import compress_reference


@pytest.mark.parametrize(
    ("grid", "regions"),
    [
        ((8, 14), ((1, 1), (3, 3), (8, 9))),
        ((2, 12), ((1, 1), (2, 3), (2, 9))),
        ((3, 3), ((1, 1), (3, 3), (3, 3))),
        ((1, 2), ((1, 1), (1, 2), (1, 2))),
        ((1, 1), ((1, 1), (1, 1), (1, 1))),
    ],
)
def test_regions_become_single_patches_on_a_small_grid(grid, regions):
    compressor = make(grid=(27, 27), regions=((1, 1), (3, 3), (9, 9))).on_grid(grid)
    assert compressor.config.regions == regions
    given = inputs(frames=9, grid=grid)
    out = compressor(**given, ratio=3)
    weights = dict(compressor.named_parameters())
    given.pop("motion")
    expected = compress_reference(compressor.config, weights, given.pop("x").double(), **given, ratio=3)
    assert (out.path, out.budgets) == (expected.path, expected.budgets)
    assert relative(out.features, expected.features) < 1e-5
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients, inputs(frames=9, grid=grid)["x"])
    assert relative(rebuilt, out.features) < 1e-5


def test_equal_regions_are_refused_where_they_could_be_finer():
    with pytest.raises(ValueError, match="regions must go from coarse to fine"):
        CompressorConfig(dim=8, cost_dim=8, grid=(9, 9), regions=((1, 1), (3, 3), (3, 3)))

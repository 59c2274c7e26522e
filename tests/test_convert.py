"""Published names."""

import pytest
import torch

from aviot import Compressor, CompressorConfig
from aviot.convert import PREFIX, compressor_weights


def test_whole_models_and_bare_names_load_alike(golden):
    case = golden("t9_r10")
    bare = case.published("weights.")
    whole = {PREFIX + name: value for name, value in bare.items()} | {"lm_head.weight": torch.zeros(1)}
    one, other = compressor_weights(bare), compressor_weights(whole)
    assert one.keys() == other.keys() == Compressor(CompressorConfig(dim=8, cost_dim=16)).state_dict().keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_strange_names_are_listed():
    with pytest.raises(ValueError, match=r"not published compressor weights: metric.psi.0, other; expected names like"):
        compressor_weights({"other": torch.zeros(1), "metric.psi.0": torch.zeros(1)})
    with pytest.raises(ValueError, match="no compressor weights found"):
        compressor_weights({})

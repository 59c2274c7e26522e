"""What tests of several folders share and is no fixture; `conftest` may be any folder's own."""

import json
from pathlib import Path

import torch
from torch import Tensor

from aviot import Compressor, CompressorConfig

GOLDEN = Path(__file__).parent / "golden" / "compressor"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # where the tests of kernels run them
CASES = {case["name"]: case for case in json.loads((GOLDEN / "index.json").read_text())}


def relative(a: Tensor, b: Tensor) -> float:
    """Relative Frobenius distance of a from b."""
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


SMALL = {"dim": 6, "cost_dim": 8, "grid": (5, 7), "regions": ((1, 1), (2, 2), (4, 5))}


def make(seed=0, **config):
    """A small compressor with odd regions and weights as after training."""
    torch.manual_seed(seed)
    compressor = Compressor(CompressorConfig(**(SMALL | config)))
    with torch.no_grad():
        compressor.region_position.weight.normal_(std=0.3)
    return compressor


def inputs(frames=20, batch=(), seed=0, grid=(5, 7), dtype=torch.float32, dim=6):
    """Everything `make`'s compressor is called with, but the ratio."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, frames, grid[0] * grid[1], dim, generator=g)
    u = x + 0.1 * torch.randn(x.shape, generator=g)
    return {
        "x": x.to(dtype),
        "question": torch.randn(*batch, dim, generator=g).to(dtype),
        "relevance": torch.rand(*batch, frames, generator=g),
        "motion": u.to(dtype),
    }

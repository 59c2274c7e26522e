"""Devices and problem sizes that the kernels support."""

from importlib.util import find_spec

from torch import Tensor

from aviot.config import TransportConfig

LARGEST_ON_CHIP = 128  # sources or supports of one problem: its matrix must fit in a multiprocessor's registers
LARGEST_BOUND = 200.0  # of scores: the largest that the kernels were tested with
LARGEST_REST = 70.0  # of a score after its first update: its exponential must stay a normal float32

HAS_TRITON = find_spec("triton") is not None


def on_gpu(x: Tensor) -> bool:
    """Return True if kernels can run on x: it is on a CUDA device and triton is installed."""
    return HAS_TRITON and x.is_cuda


def in_range(epsilon: float, config: TransportConfig) -> bool:
    """Return True if no row or column of a plan can vanish in float32: an update leaves (1 - kappa) of a score."""
    left = epsilon / (min(config.source_relaxation, config.target_relaxation) + epsilon)
    return config.cost_bound <= LARGEST_BOUND and left * config.cost_bound <= LARGEST_REST

"""Where the kernels run, and how large a problem they take."""

from importlib.util import find_spec

from torch import Tensor

LARGEST_ON_CHIP = 128  # sources or supports of one problem: its matrix has to fit in a multiprocessor's registers
LARGEST_BOUND = 200.0  # of scores: products of three of their exponentials have to stay ordinary float64

HAS_TRITON = find_spec("triton") is not None


def on_gpu(x: Tensor) -> bool:
    """True where kernels run; elsewhere, and where triton is not installed, plain torch does the same."""
    return HAS_TRITON and x.is_cuda

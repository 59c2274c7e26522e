"""Small tensors that follow from shapes alone, made once."""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps

import torch
from torch import Tensor


def kept(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep a function's results for its arguments, but never those of a graph's capture, which are the graph's."""
    cached = lru_cache(maxsize=16)(make)

    @wraps(make)
    def get(*arguments: Hashable) -> Tensor:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return make(*arguments)
        with torch.inference_mode(False):
            return cached(*arguments)

    return get

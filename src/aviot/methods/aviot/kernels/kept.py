"""What follows from shapes alone, made once."""

from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar

import torch

Result = TypeVar("Result")


def kept(make: Callable[..., Result]) -> Callable[..., Result]:
    """Keep a function's results for good: graphs that were captured read them where they lie.

    What is made for the first time inside a capture would be the graph's own, so that is refused.
    """

    @cache
    @wraps(make)
    @torch.inference_mode(False)
    def once(*arguments: object) -> Result:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("compress once before capturing a graph of it: the first call makes tables and kernels")
        return make(*arguments)

    return once

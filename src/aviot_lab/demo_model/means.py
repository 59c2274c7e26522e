"""Means over some of the values, without asking the GPU how many those are."""

from torch import Tensor


def mean_where(values: Tensor, where: Tensor) -> Tensor:
    """The mean of the values where a mask holds; zero where it never does."""
    return (values * where).sum() / where.sum().clamp_min(1)

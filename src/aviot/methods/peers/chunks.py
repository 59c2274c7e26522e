"""The part of a long video that is processed at once, so that intermediate results do not grow with its length."""

ELEMENTS = 2**26
"""Elements of one intermediate result: 256 MB in float32."""


def chunk_size(elements_each: int) -> int:
    """Return how many items of this many elements are worked on at once; at least one."""
    return max(1, ELEMENTS // max(1, elements_each))

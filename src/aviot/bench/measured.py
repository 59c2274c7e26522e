"""What a benchmark can be asked to measure, checked without torch."""

from collections.abc import Sequence

from aviot.bench.sizes import SIZES
from aviot.utils.values import as_whole

DTYPES = ("float32", "bfloat16")


def check_measured(
    *, frames: Sequence[int], batches: Sequence[int], repeats: int, size: str | None, dtype: str
) -> None:
    """Refuse numbers below 1, and sizes and types that do not exist."""
    for name, values in (("frames", frames), ("batches", batches), ("repeats", (repeats,))):
        if not values or any((as_whole(value) or 0) < 1 for value in values):
            raise ValueError(f"{name} must be whole numbers of at least 1, got {list(values)}")
    if size is not None and size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    if dtype not in ("auto", *DTYPES):
        raise ValueError(f"dtype must be auto, {' or '.join(DTYPES)}, got {dtype!r}")

"""Where a segment's sources and supports lie, and where its supports start."""

import triton
import triton.language as tl

from aviot.methods.aviot.kernels.allocation import round_half_even


@triton.jit
def place_in_video(budgets, video, segment, longest, full, M, MB: tl.constexpr):
    """A segment's sources and supports: where they start, and how many they are."""
    m = tl.arange(0, MB)
    given = tl.load(budgets + video * M + m, mask=m < M, other=0).to(tl.int32)
    first = tl.sum(tl.where(m < segment, given, 0), 0)
    k = tl.sum(tl.where(m == segment, given, 0), 0)
    start = segment * longest - tl.maximum(segment - full, 0)
    return start, longest - tl.where(segment >= full, 1, 0), first, k


@triton.jit
def uniform_source(j, n, k):
    """round(linspace(0, n - 1, k)) as torch computes it in float32: every operation rounded on its own.

    A product, difference or quotient of float32 taken in float64 and rounded once is that; contracting two is not.
    """
    last, steps = (n - 1).to(tl.float64), tl.maximum(k - 1, 1)
    stride = (last / steps.to(tl.float64)).to(tl.float32).to(tl.float64)
    front = (stride * j.to(tl.float64)).to(tl.float32)
    behind = (stride * (k - 1 - j).to(tl.float64)).to(tl.float32)
    back = (last - behind.to(tl.float64)).to(tl.float32)
    within = tl.where(j < k // 2, front, back)
    return tl.where(k == 1, 0, round_half_even(tl.maximum(within, 0.0).to(tl.float64)))

"""The moments on which a compression spends its tokens, in the numbers and the sentence that people read first."""

from collections.abc import Sequence
from itertools import accumulate

HALF = 0.5  # share of the tokens whose shortest stretch of the video is named
SPAN = 0.8  # share of a support's mass that its time span holds
ROUNDING = 1e-6  # sums of float32 shares may miss a share by as much


def shortest_run(shares: Sequence[float], share: float) -> tuple[int, int]:
    """Return the first and the last frame of the shortest run that holds at least this share; earlier runs first.

    `shares` are those of the frames; the run's share is of their sum.
    """
    ends = [0.0, *accumulate(shares)]
    needed = share * ends[-1] - ROUNDING
    best, last = (0, len(shares) - 1), 0
    for first in range(len(shares)):
        last = max(last, first)
        while last < len(shares) and ends[last + 1] - ends[first] < needed:
            last += 1
        if last == len(shares):
            break
        if last - first < best[1] - best[0]:
            best = first, last
    return best


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    whole = int(seconds + 1e-6)
    return f"{whole // 60}:{whole % 60:02d}"


def sentence(tokens: tuple[int, int], times: Sequence[float], shares: Sequence[float]) -> str:
    """Return one plain sentence about the tokens: how many frames they are worth, and where half of them went."""
    before, after = tokens
    worth = after * len(times) / before
    said = f"{worth:.0f}" if worth >= 9.5 else f"{worth:.1f}".removesuffix(".0")
    noun = "frame's" if len(times) == 1 else "frames'"
    first, last = shortest_run(shares, HALF)
    where = f"at {clock(times[first])}"
    if clock(times[first]) != clock(times[last]):
        where = f"from {clock(times[first])} to {clock(times[last])}"
    return f"{said} of {len(times)} {noun} worth of tokens; half of them {where}"

"""95 % intervals of means and of paired differences, for independent questions and for several questions per video.

Questions about one video are correlated, so n of them say less than n independent ones. `share_interval` and
`difference_interval` replace n by n / deff in Wilson's and in Agresti and Min's formula. The design effect deff is the
variance of the mean with videos as sampling units (delete-one-video jackknife) over the variance of independent
questions; it is at least 1. `tests/evaluation/test_intervals.py` measures the coverage.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

NORMAL_95 = 1.959963984540054
RESAMPLES = 2000
FEW_DIFFER = 1.1
"""Variation n p (1 - p) at which deff is half the estimate and half the value for complete agreement within videos.

If almost all answers are equal, the correlation within videos cannot be estimated. Chosen by simulated coverage at 95 %
accuracy: 0 would give 90 % coverage instead of 95 %.
"""
ADDED_SPREAD = 0.05
"""Added to the spread of scores, so that equal scores have an interval of positive width."""

Interval = tuple[float, float]
Floats = NDArray[np.float64]


def wilson(successes: float, trials: float, quantile: float = NORMAL_95) -> Interval | None:
    """Return Wilson's score interval of a share, (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Unlike the normal approximation it stays inside [0, 1] and is valid for few trials. None for no trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie between 0 and the trials, got {successes} of {trials}")
    if trials == 0:
        return None
    share, spread = successes / trials, quantile**2 / trials
    centre = share + spread / 2
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def paired(gains: float, losses: float, trials: float, quantile: float = NORMAL_95) -> Interval | None:
    """Return Agresti and Min's interval of the difference of two shares of the same trials; None for no trials.

    Half a trial is added to each of the four outcomes, n' = n + 2, and d = (gains - losses) / n' is normal with the
    variance (gains + losses + 1 - n' d²) / n'². It is valid if few trials differ, and has positive width if none do.
    """
    if min(gains, losses) < 0 or gains + losses > trials:
        raise ValueError(f"gains and losses are among the trials, got {gains} and {losses} of {trials}")
    if trials == 0:
        return None
    added = trials + 2
    difference = (gains - losses) / added
    half = quantile * math.sqrt(gains + losses + 1 - added * difference**2) / added
    return max(-1.0, difference - half), min(1.0, difference + half)


def share_interval(values: Sequence[float], groups: Sequence[Hashable], *, scale: float = 1.0) -> Interval | None:
    """Return the interval of the mean of values between 0 and `scale`, clustered by group (the video).

    With one value of 0 or `scale` per group it is Wilson's. None for no values, and for several values of one group,
    which say nothing about other groups.
    """
    sums, sizes, squares = _clustered(values, groups, scale)
    if not _can_be_estimated(sizes, squares):
        return None
    trials = float(effective_trials(sums, sizes, squares))
    count, mean = float(sizes.sum()), float(sums.sum() / sizes.sum())
    largest, spread = count * mean * (1 - mean), float(squares) - count * mean**2
    trials *= (largest + ADDED_SPREAD) / (max(spread, 0.0) + ADDED_SPREAD)  # factor 1 for values of 0 and `scale`
    ends = wilson(min(max(mean, 0.0), 1.0) * trials, trials, _quantile(values, sizes, scale))
    return None if ends is None else (scale * ends[0], scale * ends[1])


def difference_interval(
    differences: Sequence[float], groups: Sequence[Hashable], *, scale: float = 1.0
) -> Interval | None:
    """Return the interval of the mean of paired differences between -`scale` and `scale`, clustered by group.

    With one difference of -1, 0 or 1 per group it is Agresti and Min's. None as in `share_interval`.
    """
    sums, sizes, squares = _clustered(differences, groups, scale)
    if not _can_be_estimated(sizes, squares):
        return None
    trials = float(effective_trials(sums, sizes, squares))
    each = trials / sizes.sum()
    total = sums.sum()
    gains, losses = each * max(squares + total, 0.0) / 2, each * max(squares - total, 0.0) / 2
    ends = paired(gains, losses, max(trials, gains + losses), _quantile(differences, sizes, scale))
    return None if ends is None else (scale * ends[0], scale * ends[1])


def effective_trials(sums: Floats, sizes: Floats, squares: Floats) -> Floats:
    """Return n / deff: the number of independent values that determine the mean as precisely as these clustered ones.

    `sums` [..., G] are the values' sums per group, `sizes` [G] their numbers and `squares` [...] the values' sum of
    squares. Values lie between -1 and 1. There must be two groups or more, or one value.
    """
    count, total = sizes.sum(), sums.sum(-1)
    if (sizes == 1).all():
        return np.full(total.shape, count)
    independent = np.maximum(squares - total**2 / count, 0.0) * count / (count - 1)
    agreeing = _typical_size(sizes)  # deff if the values within each group are equal
    estimated = np.maximum(_by_jackknife(sums, sizes, independent), _by_correlation(sums, sizes, squares))
    doubt = 1 / (1 + (independent / FEW_DIFFER) ** 2)
    return np.asarray(count / np.maximum(doubt * agreeing + (1 - doubt) * estimated, 1.0))


def _by_jackknife(sums: Floats, sizes: Floats, independent: Floats) -> Floats:
    """Return deff by the delete-one-group jackknife, which makes no assumption on groups of different size."""
    count, total = sizes.sum(), sums.sum(-1)
    without = (total[..., None] - sums) / (count - sizes)
    clustered = count**2 * (1 - 1 / sizes.size) * ((without - total[..., None] / count) ** 2).sum(-1)
    return _ratio(clustered, independent)


def _by_correlation(sums: Floats, sizes: Floats, squares: Floats) -> Floats:
    """Return deff by the correlation within groups (ANOVA), which is stabler if a few groups are much larger."""
    count, groups, size = sizes.sum(), sizes.size, _typical_size(sizes)
    within = np.maximum(squares - (sums**2 / sizes).sum(-1), 0.0) / (count - groups)
    between = np.maximum((sums**2 / sizes).sum(-1) - sums.sum(-1) ** 2 / count, 0.0) / (groups - 1)
    per_group = (count - size) / (groups - 1)
    return 1 + (size - 1) * _ratio(between - within, between + (per_group - 1) * within)


def _ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below, and 0 if the denominator is 0."""
    return np.divide(above, below, out=np.zeros(np.shape(below)), where=below > 1e-12)


def student_95(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, else to about 0.1 %."""
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = NORMAL_95  # Cornish and Fisher's expansion, Abramowitz and Stegun 26.7.5
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def bootstrap(values: Sequence[float], groups: Sequence[Hashable], seed: int) -> Interval | None:
    """Return percentiles of the mean over resampled groups; None for fewer than two groups."""
    sums, sizes, _ = _clustered(values, groups, 1.0)
    if sizes.size < 2:
        return None
    drawn = np.random.default_rng(seed).integers(sizes.size, size=(RESAMPLES, sizes.size))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _clustered(values: Sequence[float], groups: Sequence[Hashable], scale: float) -> tuple[Floats, Floats, Floats]:
    """Return sums and sizes per group, in order of appearance, and the sum of squares, of values over `scale`."""
    if len(values) != len(groups):
        raise ValueError(f"expected one group per value, got {len(groups)} groups and {len(values)} values")
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    where = np.array([places[group] for group in groups], dtype=np.intp)
    scaled = np.asarray(values, dtype=np.float64) / scale
    sums, sizes = np.zeros(len(places)), np.zeros(len(places))
    np.add.at(sums, where, scaled)
    np.add.at(sizes, where, 1.0)
    return sums, sizes, np.asarray((scaled**2).sum())


def _can_be_estimated(sizes: Floats, squares: Floats) -> bool:
    """Return whether there are two groups, or a single value of 0 or 1, whose variance is known."""
    return bool(sizes.size > 1 or (sizes.sum() == 1 and squares in (0.0, 1.0)))


def _typical_size(sizes: Floats) -> float:
    """Return the mean, over values, of the size of their group."""
    return float((sizes**2).sum() / sizes.sum())


def _quantile(values: Sequence[float], sizes: Floats, scale: float) -> float:
    """Return Student's quantile if a variance is estimated from the groups, else the normal distribution's."""
    alone = bool((sizes == 1).all()) and all(abs(value) in (0.0, scale) for value in values)
    return NORMAL_95 if alone or sizes.size < 2 else student_95(sizes.size - 1)

"""How sure a mean is: 95 % intervals."""

import math
from collections.abc import Hashable, Sequence

import numpy as np

NORMAL_95 = 1.959963984540054
RESAMPLES = 2000

Interval = tuple[float, float]


def wilson(successes: int, trials: int) -> Interval | None:
    """Wilson's score interval of a share: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n); None of no trials.

    It stays inside [0, 1] and is sound for few trials, unlike the normal approximation.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie between 0 and the trials, got {successes} of {trials}")
    if trials == 0:
        return None
    share, spread = successes / trials, NORMAL_95**2 / trials
    centre = share + spread / 2
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def bootstrap(values: Sequence[float], groups: Sequence[Hashable], seed: int) -> Interval | None:
    """Percentiles of the mean over resampled groups: questions about one video are not independent of each other."""
    if len(values) != len(groups):
        raise ValueError(f"give one group a value; got {len(groups)} groups and {len(values)} values")
    if not values:
        return None
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    sums, sizes = np.zeros(len(places)), np.zeros(len(places))
    for value, group in zip(values, groups, strict=True):
        sums[places[group]] += value
        sizes[places[group]] += 1
    drawn = np.random.default_rng(seed).integers(len(places), size=(RESAMPLES, len(places)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)

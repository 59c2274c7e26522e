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


def paired(gains: int, losses: int, trials: int) -> Interval | None:
    """Agresti and Min's interval of the difference of two shares of the same trials; None of no trials.

    Half a trial is added to each of the four outcomes, n' = n + 2, and d = (gains - losses) / n' is normal with the
    variance (gains + losses + 1 - n' d²) / n'². It is sound where few trials differ, and has a width where none do.
    """
    if min(gains, losses) < 0 or gains + losses > trials:
        raise ValueError(f"gains and losses are among the trials, got {gains} and {losses} of {trials}")
    if trials == 0:
        return None
    added = trials + 2
    difference = (gains - losses) / added
    half = NORMAL_95 * math.sqrt(gains + losses + 1 - added * difference**2) / added
    return max(-1.0, difference - half), min(1.0, difference + half)


def bootstrap(values: Sequence[float], groups: Sequence[Hashable], seed: int) -> Interval | None:
    """Percentiles of the mean over resampled groups: questions about one video are not independent of each other.

    None of fewer than two groups, which say nothing of others.
    """
    if len(values) != len(groups):
        raise ValueError(f"give one group a value; got {len(groups)} groups and {len(values)} values")
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    if len(places) < 2:
        return None
    sums, sizes = np.zeros(len(places)), np.zeros(len(places))
    for value, group in zip(values, groups, strict=True):
        sums[places[group]] += value
        sizes[places[group]] += 1
    drawn = np.random.default_rng(seed).integers(len(places), size=(RESAMPLES, len(places)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)

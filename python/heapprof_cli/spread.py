"""How sure the values of a sample are: the range that holds the truth in 95 of 100 cases.

docs/formats/spread.md says how heapprof finds the range of a sum. Nobody has such a range for a
peak, so this file has one of its own, which tests/test_spread.py tries out.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

TAIL = 0.025
ENOUGH = 30


class Range(NamedTuple):
    """What a value may be in truth. Both ends are the value itself if it is exact."""

    low: float
    high: float


def _deviations(tail: float) -> float:
    return -NormalDist().inv_cdf(max(tail, 1e-300))


def least_of_sum(value: float, samples: int, variance: float, of: int) -> float:
    """Gives the least that a sum of sampled blocks may be, if it is one of `of` sums that all have
    to be above theirs. It is the score interval of heapprof's estimates."""
    if variance <= 0 or value <= 0:
        return value
    z = _deviations(TAIL / max(of, 1))
    deviation = math.sqrt(variance)
    n = min(value * value / variance, float(samples))
    if n >= ENOUGH or n <= 0:
        return max(value - z * deviation, 0.0)
    shift = z * deviation / math.sqrt(n) / 2
    return max(value + z * shift - z * math.sqrt(variance + shift * shift), 0.0)


def of_peak(peak: float, allocated: float, period: int) -> Range:
    """Gives the range of a sampled peak, of a program that allocated `allocated` bytes in all.

    No block adds more than value · period to the variance, so the peak is as sure as peak / period
    samples of equal blocks are. These are counted by chance, so their limits are those of a Poisson
    distribution (E. B. Wilson and M. M. Hilferty, 1931). But the moment of the peak is the one at
    which the estimate was largest. Each time that a program has replaced its memory, chance had new
    moments to choose from. So the lower limit allows for eight of them each time. That number was
    found by trial.
    """
    if period <= 0:
        return Range(peak, peak)
    samples = peak / period
    moments = 1 + 8 * max(allocated / peak - 1, 0.0) if peak > 0 else 1.0
    low = 0.0
    if samples > 0:
        z = _deviations(TAIL / moments)
        low = samples * max(1 - 1 / (9 * samples) - z / (3 * math.sqrt(samples)), 0.0) ** 3
    more = samples + 1
    high = more * (1 - 1 / (9 * more) + _deviations(TAIL) / (3 * math.sqrt(more))) ** 3
    return Range(min(low, samples) * period, max(high, samples) * period)


def least_growth(before: float, most_before: float, after: float, least_after: float) -> float:
    """Gives the least that a value has grown by, from both values and their limits (G. Y. Zou and
    A. Donner, 2008). It is below 0 if chance alone explains the growth."""
    return after - before - math.hypot(after - least_after, most_before - before)

"""The ranges of estimates: limits that hold the truth, and those that heapprof itself prints."""

import json
import random
import subprocess

import pytest
from conftest import REPOSITORY

from heapprof_cli import Profile, spread

PERIOD = 65536


def _sampled(heap, times, in_turn):
    """Samples a program that fills its heap of `heap` periods, and then replaces all of it so many
    times: block by block, or all at once. Returns the estimates of its peak and its sum."""
    at, end, found = 0.0, heap * (1 + times), []
    while True:
        at += random.expovariate(1)
        if at > end:
            break
        found.append(at)
    most = oldest = 0
    for newest, place in enumerate(found):
        begin = place - heap if in_turn else place // heap * heap
        while found[oldest] < begin:
            oldest += 1
        most = max(most, newest - oldest + 1)
    return most * PERIOD, len(found) * PERIOD


@pytest.mark.parametrize("in_turn", [True, False], ids=["in turn", "at once"])
@pytest.mark.parametrize("times", [0, 1, 10, 50])
@pytest.mark.parametrize("heap", [2, 10, 100])
def test_a_peak_is_seldom_surely_above_its_true_value(heap, times, in_turn):
    random.seed(f"{heap} {times}")
    wrong, runs = 0, 200
    for _ in range(runs):
        peak, allocated = _sampled(heap, times, in_turn)
        wrong += spread.of_peak(peak, allocated, PERIOD).low > heap * PERIOD
    # 5 of 100 may be wrong, and 200 runs of such a kind have at most 17 wrong ones nearly always.
    assert wrong <= 17


@pytest.mark.parametrize("heap", [10, 100, 1000])
def test_a_peak_is_seldom_surely_below_its_true_value(heap):
    random.seed(heap)
    highs = [spread.of_peak(*_sampled(heap, 0, True), PERIOD).high for _ in range(400)]
    assert sum(high < heap * PERIOD for high in highs) <= 28


def test_a_clear_excess_is_sure():
    # 1000 samples stand behind it.
    assert spread.of_peak(1000 * PERIOD, 1000 * PERIOD, PERIOD).low > 900 * PERIOD
    assert spread.of_peak(1000 * PERIOD, 50_000 * PERIOD, PERIOD).low > 870 * PERIOD


def test_an_exact_peak_is_sure():
    assert spread.of_peak(1234, 99999, 0) == (1234, 1234)


def test_a_peak_without_samples_may_be_a_few_periods():
    low, high = spread.of_peak(0, 0, PERIOD)
    assert low == 0
    assert 3.5 * PERIOD < high < 3.9 * PERIOD


def test_growth_is_sure_only_beyond_both_ranges():
    assert spread.least_growth(100, 100, 130, 130) == 30
    assert spread.least_growth(100, 120, 130, 110) < 2
    assert spread.least_growth(100, 140, 130, 90) < 0


@pytest.mark.parametrize("name", ["python/orders.pb.gz", "valid/made.sampled.pb.gz"])
def test_the_lower_limits_are_those_of_heapprof(program, name):
    file = REPOSITORY / "sample-profiles" / name
    command = [program, "top", "--all-code", "-n0", "-fjson", "-t", "inuse_space", str(file)]
    rows = json.loads(subprocess.check_output(command))["rows"]
    want = {row["function"]: row["estimate"]["low"] for row in rows if row.get("estimate")}
    assert want
    sums = {}
    for row in Profile.read(file).rows("inuse_space"):
        name = row.stack.frames[0].function
        value, samples, variance = sums.get(name, (0, 0, 0.0))
        sums[name] = value + row.value, samples + row.samples, variance + row.variance
    for name, low in want.items():
        if sums.get(name, (0,))[0]:
            assert spread.least_of_sum(*sums[name], 1) == pytest.approx(low, abs=2), name


def test_many_sums_are_judged_more_strictly():
    one, many = (spread.least_of_sum(1e6, 50, 4e10, of) for of in (1, 100))
    assert many < one < 1e6

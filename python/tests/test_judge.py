"""Estimates are judged by what they may be in truth: a recorded profile against many limits."""

import pytest
from conftest import REPOSITORY

from heapprof_cli import Profile, sizes
from heapprof_cli.limits import Limits, judge_leaks, judge_memory, peak_of


@pytest.fixture(scope="module")
def orders():
    """A profile of a Python program, of one allocation in 64 KiB."""
    return Profile.read(REPOSITORY / "sample-profiles/python/orders.pb.gz")


def test_a_peak_is_judged_by_the_least_that_it_may_be(orders):
    peak, sure = peak_of(orders)
    assert sizes.show(peak) == "17.18MiB"
    assert 0.7 * peak < sure.low < 0.9 * peak
    assert judge_memory(orders, peak) == (None, None)
    failure, note = judge_memory(orders, peak - 1)
    assert failure is None
    assert note == (
        f"the estimated peak of 17.18MiB (at least {sizes.show(sure.low)}) is above the limit of "
        "17.18MiB only by what sampling explains"
    )
    assert judge_memory(orders, int(sure.low) + 1).failure is None
    failure, note = judge_memory(orders, int(sure.low) - 1)
    assert note is None
    assert failure.splitlines()[1].startswith("  13.32MiB JSONDecoder.raw_decode (")


def test_a_leak_is_judged_by_the_least_that_it_may_be(orders):
    most = orders.rows("inuse_space")[0].value
    verdicts = [judge_leaks(orders, Limits(leak=most * tenths // 10)) for tenths in range(11)]
    kinds = [
        "fails" if verdict.failure else "is noted" if verdict.note else "passes"
        for verdict in verdicts
    ]
    assert kinds[0] == "fails"
    assert kinds[9:] == ["is noted", "passes"]
    assert kinds == sorted(kinds, key=["fails", "is noted", "passes"].index)
    assert "surely" in verdicts[0].failure


def test_a_filter_is_asked_only_about_stacks_above_the_limit(orders):
    rows = orders.rows("inuse_space")
    asked = []
    limits = Limits(leak=rows[-1].value, filter_fn=lambda stack: asked.append(stack))
    assert judge_leaks(orders, limits) == (None, None)
    assert asked == [row.stack for row in rows if row.value > rows[-1].value] != []

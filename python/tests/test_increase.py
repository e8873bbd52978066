"""--fail-on-increase: a peak is compared with the one of the last run in which the test passed."""

import json

import pytest

from heapprof_cli import spread
from heapprof_cli.increase import Peaks, parse_tolerance

FLAG = "--fail-on-increase"


def _of(kib, then="pass"):
    return f"def test_it():\n    bytearray({kib} << 10)\n    {then}\n"


def _kept(pytester):
    (file,) = (pytester.path / ".pytest_cache/v/heapprof").iterdir()
    return json.loads(file.read_text())


def test_a_larger_peak_fails_until_it_is_smaller_again(project, pytester):
    for kib in (500, 500, 501, 400):
        project(_of(kib), FLAG).assert_outcomes(passed=1)
    for _ in range(2):
        done = project(_of(480), FLAG)
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines(
            [
                "heapprof: the peak has grown from 40*KiB to 48*KiB (+80*KiB, +*%) since the "
                "last run that passed",
                "  480*KiB test_it (test_it.py:*)*",
            ]
        )
    assert 400 << 10 < _kept(pytester)["test_it.py::test_it"]["peak"] < 410 << 10
    project(_of(400), FLAG).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "tolerance, grown, outcome",
    [
        ("10%", 540, "passed"),
        ("10%", 560, "failed"),
        ("64KiB", 560, "passed"),
        ("64KiB", 570, "failed"),
        ("0B", 501, "failed"),
    ],
)
def test_a_tolerance_is_kept(project, pytester, tolerance, grown, outcome):
    pytester.makeini(f"[pytest]\nheapprof_tolerance = {tolerance}\n")
    project(_of(500), FLAG).assert_outcomes(passed=1)
    project(_of(grown), FLAG).assert_outcomes(**{outcome: 1})


def test_only_runs_that_passed_are_kept(project, pytester):
    project(_of(400, "assert False"), FLAG).assert_outcomes(failed=1)
    assert not (pytester.path / ".pytest_cache/v/heapprof").exists()
    project(_of(500), FLAG).assert_outcomes(passed=1)
    project(_of(400, "assert False"), FLAG).assert_outcomes(failed=1)
    project(_of(500), FLAG).assert_outcomes(passed=1)


def test_tests_that_did_not_run_are_kept(project, pytester):
    text = _of(500) + "def test_other(): bytearray(9000)\n"
    project(text, FLAG).assert_outcomes(passed=2)
    project(text, FLAG, "-k", "other").assert_outcomes(passed=1)
    assert set(_kept(pytester)) == {"test_it.py::test_it", "test_it.py::test_other"}


def test_runs_without_small_objects_are_compared_with_such(project):
    text = "def test_it(): list(map(float, range(100000)))\n"
    project(text, FLAG, "--heapprof-python-objects=no").assert_outcomes(passed=1)
    project(text, FLAG).assert_outcomes(passed=1)


def test_a_sampled_increase_fails(project):
    text = "def test_it(): kept = [bytes(1000) for _ in range(COUNT)]\n"
    sampled = [FLAG, "--heapprof-period=32KiB"]
    project(text.replace("COUNT", "4000"), *sampled).assert_outcomes(passed=1)
    done = project(text.replace("COUNT", "16000"), *sampled)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["heapprof: the peak has grown *% by estimate, at least +*MiB) *"])


class Cache(dict):
    """A cache as pytest's is."""

    set = dict.__setitem__


def _sampled(peak, period=32768):
    low, high = spread.of_peak(peak, peak, period)
    return {"peak": peak, "low": low, "high": high, "period": period}


@pytest.mark.parametrize(
    "before, after, fails",
    [
        (_sampled(4_000_000), _sampled(4_900_000), False),
        (_sampled(4_000_000), _sampled(6_000_000), True),
        (_sampled(4_000_000, 0), _sampled(4_600_000), False),
        (_sampled(4_000_000, 0), _sampled(5_500_000), True),
        (_sampled(4_000_000), _sampled(4_600_000, 0), False),
        (_sampled(4_000_000, 0), _sampled(4_100_000, 0), True),
        (_sampled(4_000_000), _sampled(3_000_000), False),
    ],
)
def test_an_increase_that_chance_explains_is_none(before, after, fails):
    cache = Cache()
    peaks = Peaks(cache, True)
    peaks.keep("test", before)
    peaks.write()
    why = Peaks(cache, True).judge("test", after, parse_tolerance("1%"))
    assert (why is not None) == fails
    assert Peaks(cache, False).judge("test", after, parse_tolerance("1%")) is None


def test_without_a_cache_it_is_refused(project):
    done = project(_of(1), FLAG, "-p", "no:cacheprovider")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: heapprof: --fail-on-increase keeps its peaks in pytest's *"])


def test_a_damaged_cache_is_no_peak(project, pytester):
    project(_of(500), FLAG).assert_outcomes(passed=1)
    (file,) = (pytester.path / ".pytest_cache/v/heapprof").iterdir()
    file.write_text('{"test_it.py::test_it": 5}')
    project(_of(500), FLAG).assert_outcomes(passed=1)
    project(_of(600), FLAG).assert_outcomes(failed=1)

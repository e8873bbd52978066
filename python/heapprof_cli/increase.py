"""--fail-on-increase: the peaks of the last run, in pytest's cache, and what is an increase."""

from __future__ import annotations

import platform
import re
from typing import Any, Dict, NamedTuple, Optional, Union

from . import sizes, spread

# Equal runs of small tests differ, because of threads and of Python's caches, and the first test
# of a run fills caches of pytest, too. We saw 5 KiB.
_ALWAYS = 16 << 10


class Tolerance(NamedTuple):
    """By how much a peak may grow: a part of what it was, or so many bytes if that is more."""

    part: float
    size: int

    def allows(self, before: float) -> float:
        """Gives the growth that is no increase, of a test that had this peak."""
        return max(before * self.part, self.size)


def parse_tolerance(text: str) -> Tolerance:
    """Reads a tolerance such as "5%", which is at least 16 KiB, or such as "64 KiB"."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", text)
    if found:
        return Tolerance(float(found.group(1)) / 100, _ALWAYS)
    try:
        return Tolerance(0.0, sizes.parse(text))
    except ValueError:
        why = f"{text!r} is no tolerance; write one such as '5%' or '64 KiB'"
        raise ValueError(why) from None


def key(objects: bool) -> str:
    """Names the place in the cache. What another Python allocates can't be compared."""
    with_objects = "with" if objects else "without"
    return f"heapprof/{platform.python_version()}-{with_objects}-small-objects"


Peak = Dict[str, Union[int, float]]


_NAMES = ("peak", "low", "high", "period")


def _is_peak(kept: Any) -> bool:
    """Says whether the cache has what `Peaks` wrote."""
    is_dict = isinstance(kept, dict) and set(kept) == set(_NAMES)
    return is_dict and all(isinstance(number, (int, float)) for number in kept.values())


class Peaks:
    """The peaks of the last run of each test in which it passed."""

    def __init__(self, cache: Any, objects: bool) -> None:
        self._cache = cache
        self._key = key(objects)
        kept = cache.get(self._key, {})
        kept = kept.items() if isinstance(kept, dict) else ()
        self._before: Dict[str, Peak] = {test: peak for test, peak in kept if _is_peak(peak)}
        self._after: Dict[str, Peak] = {}

    def keep(self, test: str, data: Dict[str, Any]) -> None:
        """Takes the peak of a test that passed."""
        self._after[test] = {name: data[name] for name in _NAMES}

    def write(self) -> None:
        """Writes the peaks for the next run. Tests that did not run keep theirs."""
        if self._after:
            self._cache.set(self._key, {**self._before, **self._after})

    def judge(self, test: str, data: Dict[str, Any], tolerance: Tolerance) -> Optional[str]:
        """Says why the test fails, if its peak is larger than in the last run, for certain."""
        before = self._before.get(test)
        if before is None:
            return None
        growth = data["peak"] - before["peak"]
        least = spread.least_growth(before["peak"], before["high"], data["peak"], data["low"])
        if least <= tolerance.allows(before["peak"]):
            return None
        by = f"+{sizes.show(growth)}"
        if before["peak"]:
            by += f", +{100 * growth / before['peak']:.1f}%"
        sampled = before["period"] or data["period"]
        sure = f" by estimate, at least +{sizes.show(least)}" if sampled else ""
        return (
            f"heapprof: the peak has grown from {sizes.show(before['peak'])} to "
            f"{sizes.show(data['peak'])} ({by}{sure}) since the last run that passed"
        )

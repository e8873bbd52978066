"""The limits of a test: what its markers say, and whether a profile keeps to them."""

from __future__ import annotations

import inspect
import os
import sys
import unittest
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

from . import sizes, spread
from .profile import Frame, Profile, Row, Stack

# Stacks end where the code of the test runner begins.
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RUNNERS = ("/_pytest/", "/pluggy/", "/unittest/case.py", "/pytest_asyncio/", _HERE)
# Files below the folder in which pytest was called are shown from there.
_FOLDER = os.getcwd().rstrip(os.sep) + os.sep
_MOST_LINES = 10
_MOST_FRAMES = 12

Filter = Callable[[Stack], bool]


class Limits(NamedTuple):
    """What the markers of a test ask for. `None` means that there is no such limit."""

    memory: Optional[int] = None
    leak: Optional[int] = None
    filter_fn: Optional[Filter] = None
    warmups: int = 0


class Verdict(NamedTuple):
    """Why the test fails, if it does, and what should be said besides."""

    failure: Optional[str]
    note: Optional[str] = None


def _limit_memory(memory_limit: Union[str, int]) -> int:
    return sizes.parse(memory_limit)


def _limit_leaks(
    location_limit: Union[str, int], *, filter_fn: Optional[Filter] = None, warmups: int = 0
) -> Tuple[int, Optional[Filter], int]:
    if filter_fn is not None and not callable(filter_fn):
        raise ValueError(f"filter_fn is {filter_fn!r}, which can't be called")
    if not isinstance(warmups, int) or warmups < 0:
        raise ValueError(f"warmups is {warmups!r} instead of a number of runs")
    return sizes.parse(location_limit), filter_fn, warmups


def _taken(item: Any, name: str, read: Callable[..., Any]) -> Any:
    """Reads a marker of a test; the one that is nearest to the test counts."""
    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    try:
        inspect.signature(read).bind(*marker.args, **marker.kwargs)
        return read(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{item.nodeid}: {name}: {error}") from None


def limits_of(item: Any, usual: Limits) -> Optional[Limits]:
    """Reads the markers of a test. What they leave open is as `usual`. Returns `None` if nothing is
    limited."""
    memory = _taken(item, "limit_memory", _limit_memory)
    leaks = _taken(item, "limit_leaks", _limit_leaks)
    memory = usual.memory if memory is None else memory
    found = Limits(memory, *(leaks or (usual.leak,)))
    if found == Limits():
        return None
    kind = getattr(item, "cls", None)
    if found.warmups and kind and issubclass(kind, unittest.IsolatedAsyncioTestCase):
        raise ValueError(
            f"{item.nodeid}: limit_leaks: a test of unittest.IsolatedAsyncioTestCase can't run "
            "twice, so it takes no warmups; write it as a function, or leave the warmups out"
        )
    return found


def peak_of(profile: Profile) -> Tuple[int, spread.Range]:
    """Gives the peak of a profile, and what it may be in truth."""
    peak = profile.total("peak_space")
    return peak, spread.of_peak(peak, profile.total("alloc_space"), profile.period)


def judge_memory(profile: Profile, limit: int, child: str = "") -> Verdict:
    """Says whether the peak is above the limit, for certain. `child` is the id of a child whose
    profile it is."""
    of_child = f" of its child {child}" if child else ""
    peak, sure = peak_of(profile)
    if peak <= limit:
        return Verdict(None)
    shown, allowed = sizes.show(peak), sizes.show(limit)
    if profile.period == 0:
        failure = f"heapprof: the peak of {shown}{of_child} is above the limit of {allowed}"
        return Verdict("\n".join([failure, *at_peak(profile)]))
    estimate = f"the estimated peak of {shown}{of_child} (at least {sizes.show(sure.low)})"
    if sure.low <= limit:
        return Verdict(
            None, f"{estimate} is above the limit of {allowed} only by what sampling explains"
        )
    failure = f"heapprof: {estimate} is above the limit of {allowed}"
    return Verdict("\n".join([failure, *at_peak(profile)]))


def judge_leaks(profile: Profile, limits: Limits) -> Verdict:
    """Says whether a stack has more in use at the end than it may have, for certain."""
    assert limits.leak is not None
    rows = profile.rows("inuse_space")
    above = [row for row in rows if row.value > limits.leak]
    if limits.filter_fn is not None:
        above = [row for row in above if limits.filter_fn(row.stack)]
    certain = [row for row in above if _least(row, len(rows)) > limits.leak]
    allowed = sizes.show(limits.leak)
    if not certain:
        note = (
            f"{_stacks(len(above), ' by estimate')} more in use at the end than the limit of "
            f"{allowed}, but only by what sampling explains"
        )
        return Verdict(None, note if above else None)
    surely, about = ("", "") if profile.period == 0 else (" surely", "about ")
    failure = (
        f"heapprof: {_stacks(len(certain), surely)} more in use at the end than the limit of "
        f"{allowed}: {about}{sizes.show(sum(row.value for row in certain))}"
    )
    lines = [failure]
    for row in certain[:_MOST_LINES]:
        lines.append(f"  {sizes.show(row.value)} from")
        lines += [f"    {shown(frame)}" for frame in own_frames(row.stack)]
    if len(certain) > _MOST_LINES:
        lines.append(f"  and {len(certain) - _MOST_LINES} more stacks")
    return Verdict("\n".join(lines))


def _stacks(count: int, surely: str) -> str:
    return f"one stack{surely} has" if count == 1 else f"{count} stacks{surely} have"


def _least(row: Row, of: int) -> float:
    return spread.least_of_sum(row.value, row.samples, row.variance, of)


def own_frames(stack: Stack) -> List[Frame]:
    """Leaves out the frames of the test runner, which are the same in all tests."""
    frames = list(stack.frames)
    for at, frame in enumerate(frames):
        if at > 0 and any(runner in frame.filename for runner in _RUNNERS):
            frames = frames[:at]
            break
    if len(frames) > _MOST_FRAMES:
        left_out = Frame(f"({len(frames) - _MOST_FRAMES} frames are left out)", "", 0)
        frames = frames[: _MOST_FRAMES - 2] + [left_out] + frames[-2:]
    return frames


def shown(frame: Frame) -> str:
    """Writes a frame with a short name of its file: seen from here, or from where Python finds
    modules."""
    name = frame.filename
    # Python ignores whatever is no text there.
    texts = (path for path in sys.path if isinstance(path, str) and len(path) > 1)
    folders = [_FOLDER, *(path + os.sep for path in texts)]
    known = max((folder for folder in folders if name.startswith(folder)), key=len, default="")
    return str(frame._replace(filename=name[len(known) :]))


def large(found: List[Tuple[Stack, int]], most: int) -> Tuple[List[Tuple[Stack, int]], int]:
    """Takes the largest of these, as long as they have a hundredth of the sum, and what is left."""
    total = sum(size for _, size in found)
    taken = [one for one in found[:most] if one[1] * 100 >= total]
    return taken, total - sum(size for _, size in taken)


def at_peak(profile: Profile) -> List[str]:
    """Writes which lines hold the memory at the peak."""
    lines = []
    stacks = [(row.stack, row.value) for row in profile.rows("peak_space")]
    taken, rest = large(stacks, _MOST_LINES)
    for stack, size in taken:
        frames = own_frames(stack)
        place = shown(frames[0]) if frames else "(empty stack)"
        callers = "".join(f" < {frame.function}" for frame in frames[1:])
        lines.append(f"  {sizes.show(size)} {place}{callers}")
    if rest:
        lines.append(f"  {sizes.show(rest)} (others)")
    return lines

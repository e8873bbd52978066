"""The options of the pytest plugin, and what they ask for together."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import sizes
from .increase import Tolerance, parse_tolerance
from .limits import Limits
from .library import LONGEST_PERIOD

_MARKERS = (
    "limit_memory(memory_limit): fail the test if its peak is above the limit, such as '24 MiB'",
    "limit_leaks(location_limit, *, filter_fn=None, warmups=0): fail the test if a stack has more "
    "in use at its end",
)


# Those of tests without markers.
_LIMITS = ("heapprof_limit_memory", "heapprof_limit_leaks")


class Options(NamedTuple):
    """What the options ask for. `period` is 0 if every allocation is recorded."""

    everything: bool
    off: bool
    directory: Optional[str]
    period: int
    objects: bool
    objects_are_asked: bool
    program: Optional[str]
    most: int
    hides_summary: bool
    fails_on_increase: bool
    tolerance: Tolerance
    usual: Limits
    children: bool


def add(parser: Any) -> None:
    """Adds the options to pytest's."""
    group = parser.getgroup("heapprof", "memory of tests (heapprof)")
    option = group.addoption
    option("--heapprof", action="store_true", help="record the memory of each test")
    option(
        "--heapprof-off",
        action="store_true",
        help="record nothing and check no limit, whatever other options and markers say",
    )
    option(
        "--heapprof-dir",
        metavar="DIR",
        help="keep the profile of each test in this folder; records each test, as --heapprof does",
    )
    option(
        "--heapprof-exact",
        action="store_true",
        help="record every allocation: the default, unless a period is set elsewhere",
    )
    option(
        "--heapprof-period",
        metavar="SIZE",
        help="record one allocation in so many bytes on average, such as 64KiB",
    )
    option(
        "--heapprof-python-objects",
        choices=("yes", "no"),
        help="whether Python's small objects are recorded, which never reach malloc (yes)",
    )
    option("--heapprof-bin", metavar="PATH", help="the program heapprof, if it is not in PATH")
    option(
        "--most-allocations",
        type=int,
        metavar="N",
        help="show the N tests with the highest peaks, all with 0 (5)",
    )
    option("--hide-heapprof-summary", action="store_true", help="show no summary at the end")
    option(
        "--fail-on-increase",
        action="store_true",
        help="fail a test whose peak is larger than in the last run in which it passed; records "
        "each test, as --heapprof does",
    )
    option(
        "--heapprof-tolerance",
        metavar="SIZE|PERCENT",
        help="how much larger a peak may be for --fail-on-increase (1%%, and at least 16 KiB)",
    )
    option(
        "--heapprof-limit-memory",
        metavar="SIZE",
        help="the limit of the peak of a test that has no marker limit_memory; records each test",
    )
    option(
        "--heapprof-limit-leaks",
        metavar="SIZE",
        help="what a stack may have in use at the end of a test that has no marker limit_leaks; "
        "records each test",
    )
    option(
        "--heapprof-children",
        choices=("yes", "no"),
        help="whether children that tests fork are recorded, and have the limit of the test (yes)",
    )
    ini = parser.addini
    ini("heapprof_limit_memory", "as --heapprof-limit-memory")
    ini("heapprof_limit_leaks", "as --heapprof-limit-leaks")
    ini("heapprof_children", "as --heapprof-children, yes or no")
    ini("heapprof", "as --heapprof", type="bool", default=False)
    ini("heapprof_period", "as --heapprof-period")
    ini("heapprof_python_objects", "as --heapprof-python-objects, yes or no")
    ini("heapprof_tolerance", "as --heapprof-tolerance")
    ini("most_allocations", "as --most-allocations")
    ini("hide_heapprof_summary", "as --hide-heapprof-summary", type="bool", default=False)


def add_markers(config: Any) -> None:
    """Tells pytest of the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def read(config: Any, namespace: Any) -> Options:
    """Reads the options. A value that can't be read is a ValueError that names it."""

    def chosen(name: str, usual: str) -> str:
        given = getattr(namespace, name)
        return str(config.getini(name) or usual) if given is None else str(given)

    def is_chosen(name: str) -> bool:
        value = chosen(name, "yes")
        if value not in ("yes", "no"):
            raise ValueError(f"{name}: {value!r} is neither yes nor no")
        return value == "yes"

    objects, children = is_chosen("heapprof_python_objects"), is_chosen("heapprof_children")
    memory, leak = (_limit(name, chosen(name, "")) for name in _LIMITS)
    usual = Limits(memory, leak)
    most = chosen("most_allocations", "5")
    if not (most.isascii() and most.isdigit()):
        raise ValueError(f"most_allocations: {most!r} is no number of tests")
    directory, increase = namespace.heapprof_dir, namespace.fail_on_increase
    asked = namespace.heapprof or config.getini("heapprof") or directory or increase
    asked = asked or usual != Limits()
    return Options(
        everything=bool(asked) and not namespace.heapprof_off,
        off=namespace.heapprof_off,
        directory=directory,
        period=0 if namespace.heapprof_exact else _period(chosen("heapprof_period", "0")),
        objects=objects,
        objects_are_asked=not objects or namespace.heapprof_python_objects is not None,
        program=namespace.heapprof_bin,
        most=int(most),
        hides_summary=namespace.hide_heapprof_summary or config.getini("hide_heapprof_summary"),
        fails_on_increase=increase,
        tolerance=_tolerance(chosen("heapprof_tolerance", "1%")),
        usual=usual,
        children=children,
    )


def _limit(name: str, text: str) -> Optional[int]:
    if not text:
        return None
    try:
        return sizes.parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _period(text: str) -> int:
    try:
        period = sizes.parse(text)
    except ValueError as error:
        raise ValueError(f"heapprof_period: {error}") from None
    if period > LONGEST_PERIOD:
        raise ValueError(f"heapprof_period: {text} is above 1 TiB")
    return period


def _tolerance(text: str) -> Tolerance:
    try:
        return parse_tolerance(text)
    except ValueError as error:
        raise ValueError(f"heapprof_tolerance: {error}") from None

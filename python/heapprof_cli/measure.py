"""One test is recorded: what is around its call, and what is kept of its profile."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import shutil
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import library, limits
from .errors import HeapprofError, ProfileError
from .profile import Profile, Stack
from .pytest_options import Options

Data = Dict[str, Any]

_MOST_PLACES = 5


class NotMeasured(Exception):
    """Says in one line why there is no profile of a test."""


class Child(NamedTuple):
    """A forked child of a test that has ended: its id, and its profile."""

    process: str
    profile: Profile


class Measured(NamedTuple):
    """What came of a test: its profile, what it raised, and the children that it forked. There is
    no profile if the test ended the recording itself."""

    profile: Optional[Profile]
    raised: Optional[BaseException]
    children: List[Child]


def recorded(run: Callable[[], Any], options: Options, file: Optional[str]) -> Measured:
    """Calls `run` while allocations are recorded. `file` gets the profile, too."""
    folder = tempfile.mkdtemp(prefix="heapprof-") if options.children else None
    try:
        return _recorded(run, options.period, file, folder)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _recorded(
    run: Callable[[], Any], period: int, file: Optional[str], folder: Optional[str]
) -> Measured:
    # A % in the folder's name would be read as one of a pattern.
    pattern = os.fsencode(folder).replace(b"%", b"%%") + b"/%p.pb.gz" if folder else None
    try:
        library.start(period, pattern)
    except HeapprofError as error:
        raise NotMeasured(str(error)) from None
    raised = None
    try:
        try:
            run()
        except BaseException as error:
            raised = error
        # Cycles that nobody holds are no leak.
        gc.collect()
        profile = _profile(file) if library.is_running() else None
        return Measured(profile, raised, _children(folder, file) if folder else [])
    except NotMeasured:
        if raised is not None:
            raise raised from None
        raise
    finally:
        library.stop()
        # Or this frame and the exception would keep each other, and what the test had.
        raised = None


def _children(folder: str, file: Optional[str]) -> List[Child]:
    """Reads what forked children wrote at their ends, and keeps it beside the test's `file`."""
    found = []
    for name in sorted(os.listdir(folder)):
        process, ending = name.split(".", 1)
        # A child that ends at this moment may still write its own, under another name.
        if ending != "pb.gz":
            continue
        path = os.path.join(folder, name)
        try:
            found.append(Child(process, Profile.read(path)))
            if file is not None:
                shutil.copyfile(path, f"{file[: -len('.pb.gz')]}.{process}.pb.gz")
        except OSError as error:
            raise NotMeasured(f"a child's profile can't be kept: {error.strerror}") from None
        except ProfileError as error:
            raise NotMeasured(str(error)) from None
    return found


def _profile(file: Optional[str]) -> Profile:
    try:
        if file is None:
            return Profile(library.profile())
        library.dump(os.fsencode(file))
        return Profile.read(file)
    except OSError as error:
        why = f"{file}: the profile of this test can't be written: {error.strerror}"
        raise NotMeasured(why) from None
    except (HeapprofError, MemoryError, ProfileError) as error:
        raise NotMeasured(str(error)) from None


def data_of(profile: Profile, children: List[Child]) -> Data:
    """Takes what the summary and the next run need of a profile: numbers and texts alone, because
    they have to go from a worker of xdist to its controller. The peak is that of the process with
    the highest one."""
    highest, of_child = profile, False
    for child in children:
        if child.profile.total("peak_space") > highest.total("peak_space"):
            highest, of_child = child.profile, True
    peak, sure = limits.peak_of(highest)
    found = [(Stack((frame,)), size) for frame, size in highest.places("peak_space")]
    places, _ = limits.large(found, _MOST_PLACES)
    return {
        "peak": peak,
        "of_child": of_child,
        "low": sure.low,
        "high": sure.high,
        "period": profile.period,
        "left": profile.total("inuse_space"),
        "allocations": profile.total("alloc_objects"),
        "places": [(limits.shown(stack.frames[0]), size) for stack, size in places],
        "notes": [],
    }


def file_name(test: str) -> str:
    """Makes the name of a test's file. Names that have to be changed stay different."""
    name = re.sub(r"[^\w.\[\]=,+-]", "_", test.replace("/", ".").replace("::", "-"))
    plain = test.replace("/", ".").replace("::", "-")
    if name != plain or len(os.fsencode(name)) > 200:
        digest = hashlib.sha256(test.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        name = name.encode("ascii", "replace").decode().replace("?", "_")[:180] + "-" + digest
    return name + ".pb.gz"

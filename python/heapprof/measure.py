"""One test is recorded: what is around its call, and what is kept of its profile."""

from __future__ import annotations

import gc
import hashlib
import os
import re
from typing import Any, Callable, Dict, NamedTuple, Optional

from . import library, limits
from .errors import HeapprofError, ProfileError
from .profile import Profile, Stack

Data = Dict[str, Any]

_MOST_PLACES = 5


class NotMeasured(Exception):
    """Says in one line why there is no profile of a test."""


class Measured(NamedTuple):
    """What came of a test: its profile, and what it raised. There is no profile if the test ended
    the recording itself."""

    profile: Optional[Profile]
    raised: Optional[BaseException]


def recorded(run: Callable[[], Any], period: int, file: Optional[str]) -> Measured:
    """Calls `run` while allocations are recorded. `file` gets the profile, too."""
    try:
        library.start(period)
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
        return Measured(_profile(file) if library.is_running() else None, raised)
    except NotMeasured:
        if raised is not None:
            raise raised from None
        raise
    finally:
        library.stop()
        # Or this frame and the exception would keep each other, and what the test had.
        raised = None


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


def data_of(profile: Profile) -> Data:
    """Takes what the summary and the next run need of a profile: numbers and texts alone, because
    they have to go from a worker of xdist to its controller."""
    peak, sure = limits.peak_of(profile)
    found = [(Stack((frame,)), size) for frame, size in profile.places("peak_space")]
    places, _ = limits.large(found, _MOST_PLACES)
    return {
        "peak": peak,
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

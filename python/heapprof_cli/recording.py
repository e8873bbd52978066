"""record: a part of the program is recorded, and its profile becomes a file."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Optional, Type, Union

from . import library, sizes
from .errors import AlreadyRecording, HeapprofError
from .profile import Profile

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_starting = threading.Lock()
_running: Optional["Recording"] = None


def _in_child() -> None:
    """Forgets what a forked child's parent was recording, and who was about to begin or end it."""
    global _starting, _running
    _starting, _running = threading.Lock(), None


os.register_at_fork(after_in_child=_in_child)


class Recording:
    """A recording of a `with` block. `path` is the file that has its profile after the block."""

    def __init__(self, path: AnyPath, period: int, replace: bool) -> None:
        # A change of the working folder inside the block does not move the file.
        self._file = os.path.abspath(os.fsencode(path))
        if b"\0" in self._file:
            raise ValueError("a path has no zero byte in it")
        self.path = Path(os.fsdecode(path))
        self.period = period
        self._replace = replace
        self._process = 0

    def profile(self) -> Profile:
        """Reads the file."""
        return Profile.read(os.fsdecode(self._file))

    def __enter__(self) -> "Recording":
        global _running
        with _starting:
            if library.is_running() and not self._replace:
                raise AlreadyRecording(_why_not())
            library.start(self.period)
            self._process = os.getpid()
            _running = self
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # A forked child leaves the block, too. The file is its parent's.
        if self._process != os.getpid():
            return
        try:
            self._end()
        except (HeapprofError, OSError) as unwritten:
            # What went wrong in the block is the first thing to know.
            if error is None:
                raise
            warnings.warn(str(unwritten), RuntimeWarning, stacklevel=2)

    def _end(self) -> None:
        global _running
        with _starting:
            # Another recording has begun inside this block, with `replace`.
            if _running is not self:
                raise HeapprofError(
                    f"{self.path} was not written: another recording has replaced this one"
                )
            _running = None
            try:
                library.dump(self._file)
            finally:
                library.stop()


def _why_not() -> str:
    if _running is not None:
        return (
            f"a recording for {_running.path} runs already, and a new one would forget it; "
            "end that one first, or say replace=True"
        )
    return (
        "the program is recorded already, and a new recording would forget that; start it as "
        "LD_PRELOAD=$(heapprof setup preload-path) python3 ... instead, or say replace=True"
    )


def record(
    path: AnyPath,
    *,
    period: Union[int, str, None] = None,
    exact: bool = False,
    replace: bool = False,
) -> Recording:
    """Records the block of a `with` statement, and writes its profile to `path`.

    On average, one allocation is recorded in every `period` bytes: a number, or a text such as
    "64 KiB". Without one it is 512 KiB. With `exact`, or with a period of 0, every allocation is
    recorded. If something is recorded already, `replace` forgets it. Otherwise that is an error.
    """
    if exact and period is not None:
        raise ValueError("exact records every allocation, so it takes no period")
    if exact:
        period = 0
    chosen = library.DEFAULT_PERIOD if period is None else sizes.parse(period)
    if chosen > library.LONGEST_PERIOD:
        raise ValueError(f"a period of {sizes.show(chosen)} is above 1 TiB")
    return Recording(path, chosen, replace)


def dump(path: AnyPath) -> None:
    """Writes a profile of what is recorded until now to `path`. The recording goes on."""
    file = os.fsencode(path)
    if b"\0" in file:
        raise ValueError("a path has no zero byte in it")
    library.dump(file)


def is_running() -> bool:
    """Says whether allocations are recorded now."""
    return library.is_running()

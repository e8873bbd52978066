"""The C functions of the preloaded libheapprof.so, called by ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Optional

from .errors import HeapprofError, NotPreloaded, NotRecording

DEFAULT_PERIOD = 512 * 1024
LONGEST_PERIOD = 1 << 40


class _Functions:
    """heapprof's functions, as include/heapprof.h declares them."""

    def __init__(self) -> None:
        program = ctypes.CDLL(None)
        try:
            self.start = program.heapprof_start
            self.stop = program.heapprof_stop
            self.is_running = program.heapprof_is_running
            self.dump = program.heapprof_dump
            self.profile = program.heapprof_profile
        except AttributeError:
            raise NotPreloaded() from None
        self.start.argtypes = [ctypes.c_char_p, ctypes.c_ulong]
        self.stop.argtypes = []
        self.stop.restype = None
        self.is_running.argtypes = []
        self.dump.argtypes = [ctypes.c_char_p]
        self.profile.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
        self.profile.restype = ctypes.c_void_p
        self.free = program.free
        self.free.argtypes = [ctypes.c_void_p]
        self.free.restype = None


_functions: Optional[_Functions] = None


def _library() -> _Functions:
    global _functions
    if _functions is None:
        _functions = _Functions()
    return _functions


def is_preloaded() -> bool:
    """Says whether the program runs with the library."""
    try:
        _library()
    except NotPreloaded:
        return False
    return True


def is_running() -> bool:
    """Says whether allocations are recorded now."""
    return is_preloaded() and _library().is_running() != 0


def start(period: int, children: Optional[bytes] = None) -> None:
    """Records from now on, and forgets what was recorded before. `period` 0 records everything.
    `children` is where forked children write their profiles at their end; %p in it is their id."""
    if not 0 <= period <= LONGEST_PERIOD:
        raise ValueError(f"a period of {period} bytes is not between 0 and 1 TiB")
    code = _library().start(children, period)
    if code == errno.EPERM:
        raise HeapprofError(
            "heapprof can't record: the program is in a sandbox that would end it at a dump"
        )
    if code != 0:
        raise HeapprofError(
            f"heapprof can't begin to record: {os.strerror(code)}; there is no memory for it, or "
            "another thread is interrupted inside the library"
        )


def stop() -> None:
    """Ends the recording. What it recorded can still be dumped."""
    _library().stop()


def dump(path: bytes) -> None:
    """Writes a profile of what is recorded to `path`."""
    code = _library().dump(path)
    name = path.rsplit(b"/", 1)[-1]
    if code == errno.EINVAL:
        raise NotRecording("nothing was recorded yet, so there is no profile to write")
    if code == errno.EBUSY and name in (b".", b".."):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(path))
    if code != 0:
        raise OSError(code, os.strerror(code), os.fsdecode(path))


def profile() -> bytes:
    """Returns a profile of what is recorded: gzipped pprof."""
    functions = _library()
    length = ctypes.c_size_t()
    address = functions.profile(ctypes.byref(length))
    if not address:
        raise MemoryError("there is no memory for a profile of heapprof")
    try:
        return ctypes.string_at(address, length.value)
    finally:
        functions.free(address)

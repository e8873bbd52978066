"""The errors of this package, each with one line that says what to do."""


class HeapprofError(RuntimeError):
    """The base of what can stand in the way of a recording."""


class NotPreloaded(HeapprofError):
    """The program runs without libheapprof.so."""

    def __init__(self) -> None:
        super().__init__(
            "libheapprof.so is not preloaded, so nothing can be recorded; start the program as "
            "LD_PRELOAD=$(heapprof setup preload-path) python3 ..."
        )


class AlreadyRecording(HeapprofError):
    """Something is recorded already, and a new recording would forget it."""


class NotRecording(HeapprofError):
    """No recording was ever started, so there is nothing to write."""


class ProfileError(ValueError):
    """A file is no heap profile, or it is damaged."""

"""Writes profiles in pprof's format, as plainly as possible."""

import gzip
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))

from wire import TYPES, Strings, message, number, packed  # noqa: E402


def profile(functions, stacks, time_nanos=0, comments=(), program=None):
    """The bytes of an exact heap profile.

    `functions` are (name, file), stacks are (functions by place, root first; four values).
    """
    s = Strings()
    out = [message(1, number(1, s(name)) + number(2, s(unit))) for name, unit in TYPES]
    for stack, values in stacks:
        ids = [at + 1 for at in reversed(stack)]
        out.append(message(2, packed(1, ids) + packed(2, values)))
    if program:
        out.append(message(3, number(1, 1) + number(5, s(program))))
    for at, (name, file) in enumerate(functions, 1):
        line = message(4, number(1, at) + number(2, 10 * at))
        mapping = number(2, 1) if program else b""
        out.append(message(4, number(1, at) + mapping + line))
        texts = number(2, s(name)) + number(3, s(name)) + number(4, s(file))
        out.append(message(5, number(1, at) + texts + number(5, 10 * at - 2)))
    out.append(number(9, time_nanos))
    out.append(message(11, number(1, s("space")) + number(2, s("bytes"))) + number(12, 1))
    out.append(packed(13, [s(text) for text in comments]) + number(14, s("inuse_space")))
    texts = [message(6, text.encode()) for text in s.index]
    return gzip.compress(b"".join(out + texts), 6, mtime=0)

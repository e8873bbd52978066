"""Sizes in bytes, as people write them and as reports show them."""

from __future__ import annotations

import re
from typing import Union

_UNITS = "KMGTP"
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(?:([KMGTP])(?:iB|B)?|B|bytes?)?\s*", re.I)


def parse(size: Union[str, int]) -> int:
    """Reads a size such as "24 MiB". KB, MB and so on are powers of 1024, as in heapprof."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if not found:
        raise ValueError(f"{size!r} is no size; write a size such as '24 MiB', '512 KB' or '100 B'")
    number, unit = found.groups()
    return int(float(number) * 1024 ** (_UNITS.index(unit.upper()) + 1 if unit else 0))


def show(size: float) -> str:
    """Writes a size as heapprof's reports do, such as 1.25MiB."""
    unit = "B"
    number = float(size)
    for letter in _UNITS:
        if abs(number) < 1024:
            break
        number, unit = number / 1024, letter + "iB"
    text = f"{number:.2f}"
    return (text[:-3] if text.endswith(".00") else text) + unit

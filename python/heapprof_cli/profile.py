"""Reads a heap profile: its totals, and the stacks that allocated the most."""

from __future__ import annotations

import functools
import gzip
import os
import re
import zlib
from typing import Dict, List, NamedTuple, Optional, Pattern, Tuple, Union

from .decode import Location, Tables
from .errors import ProfileError


class Frame(NamedTuple):
    """A function on a stack, with the line that it was at."""

    function: str
    filename: str
    lineno: int

    def __str__(self) -> str:
        if not self.filename:
            return self.function
        line = f":{self.lineno}" if self.lineno else ""
        return f"{self.function} ({self.filename}{line})"


class Stack(NamedTuple):
    """The frames that led to an allocation, with the innermost first."""

    frames: Tuple[Frame, ...]


class Row(NamedTuple):
    """A stack with a value. `samples` and `variance` say how sure the value is if it is one of a
    sample, and are 0 if it is exact."""

    stack: Stack
    value: int
    samples: int
    variance: float


class Profile:
    """A heap profile. `period` is 0 if every allocation was recorded."""

    def __init__(self, data: bytes, name: str = "the profile") -> None:
        try:
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            self._read(Tables(memoryview(data)))
        except (ValueError, IndexError, KeyError, EOFError, OSError, zlib.error) as error:
            why = str(error) if isinstance(error, ValueError) else "its end is missing"
            raise ProfileError(f"{name}: is no heap profile, or is damaged: {why}") from error

    @classmethod
    def read(cls, path: Union[str, "os.PathLike[str]"]) -> "Profile":
        """Reads a file."""
        with open(path, "rb") as file:
            return cls(file.read(), os.fspath(path))

    def _read(self, tables: Tables) -> None:
        self.sample_types = [tables.text(name) for name, _ in tables.types]
        if not self.sample_types:
            raise ValueError("it has no sample types")
        self.comments = [tables.text(at) for at in tables.comments]
        is_exact = "mode: exact" in self.comments or tables.period <= 1
        self.period = 0 if is_exact else tables.period
        drop = _whole(tables.text(tables.drop_frames))
        keep = _whole(tables.text(tables.keep_frames))
        frames = {key: _frames(tables, one) for key, one in tables.locations.items()}
        # What each location loses, for those that lose something.
        cut = {}
        for key, lines in frames.items():
            matches = [at for at, frame in enumerate(lines) if _is_dropped(frame, drop, keep)]
            if matches:
                cut[key] = matches[-1] + 1
        width = len(self.sample_types)
        self._rows: List[Tuple[Stack, List[int], List[int], List[float]]] = []
        for sample in tables.samples:
            if len(sample.values) != width:
                raise ValueError(f"a sample has {len(sample.values)} values instead of {width}")
            if {len(sample.sampled), len(sample.variance)} - {0, width}:
                raise ValueError("the spread of a sample does not fit its values")
            stack = _stack(sample.locations, frames, cut)
            self._rows.append((stack, sample.values, sample.sampled, sample.variance))

    def total(self, sample_type: str) -> int:
        """Adds up all values of a sample type, such as peak_space."""
        at = self._type(sample_type)
        return sum(values[at] for _, values, _, _ in self._rows)

    def rows(self, sample_type: str) -> List[Row]:
        """Gives all stacks that have a value of a sample type, with the largest first."""
        at = self._type(sample_type)
        sums: Dict[Stack, Tuple[int, int, float]] = {}
        for stack, values, sampled, variance in self._rows:
            if values[at] == 0:
                continue
            value, samples, spread = sums.get(stack, (0, 0, 0.0))
            samples += sampled[at] if sampled else 0
            spread += variance[at] if variance else 0.0
            sums[stack] = value + values[at], samples, spread
        rows = [Row(stack, *of) for stack, of in sums.items()]
        rows.sort(key=lambda row: (-row.value, row.stack))
        return rows

    def places(self, sample_type: str) -> List[Tuple[Frame, int]]:
        """Gives the innermost frames with what each allocated itself, with the largest first."""
        sums: Dict[Frame, int] = {}
        for row in self.rows(sample_type):
            frame = row.stack.frames[0] if row.stack.frames else Frame("(empty stack)", "", 0)
            sums[frame] = sums.get(frame, 0) + row.value
        places = [place for place in sums.items() if place[1] != 0]
        return sorted(places, key=lambda place: (-place[1], place[0]))

    def _type(self, sample_type: str) -> int:
        if sample_type not in self.sample_types:
            have = ", ".join(self.sample_types)
            raise KeyError(f"the profile has no sample type {sample_type}; it has {have}")
        return self.sample_types.index(sample_type)


def _frames(tables: Tables, location: Location) -> List[Frame]:
    frames = []
    for key, line in location.lines:
        name, file = tables.functions[key]
        frames.append(Frame(tables.text(name), tables.text(file), line))
    if frames:
        return frames
    mapping = os.path.basename(tables.text(tables.mappings.get(location.mapping, 0)))
    of = f" [{mapping}]" if mapping else ""
    return [Frame(f"0x{location.address:x}{of}", "", 0)]


def _stack(keys: List[int], frames: Dict[int, List[Frame]], cut: Dict[int, int]) -> Stack:
    """Leaves out what `drop_frames` matches, as heapprof and pprof do: seen from the root, the
    first match after a frame that does not match is cut, with everything that it called."""
    begin, has_begun = 0, False
    for at in range(len(keys) - 1, -1, -1):
        key = keys[at]
        if key not in cut:
            has_begun = True
        elif has_begun:
            begin = at + 1 if cut[key] == len(frames[key]) else at
            break
    found: List[Frame] = []
    for key in keys[begin:]:
        lines = frames[key]
        lost = cut.get(key, 0)
        found += lines[lost:] if lost < len(lines) else lines
    return Stack(tuple(found))


@functools.lru_cache(maxsize=16)
def _whole(pattern: str) -> Optional[Pattern[str]]:
    """Compiles drop_frames or keep_frames. One that Python does not understand matches nothing."""
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error:
        return None


@functools.lru_cache(maxsize=65536)
def _matches(pattern: Optional[Pattern[str]], name: str) -> bool:
    return pattern is not None and pattern.fullmatch(_simple(name)) is not None


def _is_dropped(frame: Frame, drop: Optional[Pattern[str]], keep: Optional[Pattern[str]]) -> bool:
    return _matches(drop, frame.function) and not _matches(keep, frame.function)


def _simple(name: str) -> str:
    """Gives the name of a function without a leading dot and without parameters."""
    name = name[1:] if name.startswith(".") else name
    at = 0
    while True:
        at = name.find("(", at)
        if at < 0:
            return name
        if name.startswith("(anonymous namespace)", at):
            at += len("(anonymous namespace)")
        elif name.startswith("()", at) and name[:at].endswith("operator"):
            at += 2
        else:
            return name[:at]

"""From the bytes of a pprof profile to its tables, without names of functions looked up."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

from .protobuf import Value, doubles, fields, message, number, numbers, signed


class Location(NamedTuple):
    """A place in the code: its address and mapping, and its lines with the innermost first."""

    address: int
    mapping: int
    lines: List[Tuple[int, int]]


class Sample(NamedTuple):
    """What was allocated on a stack. `sampled` and `variance` are empty if that is exact."""

    locations: List[int]
    values: List[int]
    sampled: List[int]
    variance: List[float]


class Tables:
    """The tables of a profile as they are in the file."""

    def __init__(self, data: memoryview) -> None:
        self.texts: List[str] = []
        self.samples: List[Sample] = []
        self.locations: Dict[int, Location] = {}
        # The name and the file of each function, and the file of each mapping: numbers of texts.
        self.functions: Dict[int, Tuple[int, int]] = {}
        self.mappings: Dict[int, int] = {}
        self.types: List[Tuple[int, int]] = []
        self.comments: List[int] = []
        self.drop_frames = 0
        self.keep_frames = 0
        self.period = 0
        for field, value in fields(data):
            self._field(field, value)

    def _field(self, field: int, value: Value) -> None:
        if field == 1:
            self.types.append(_pair(value))
        elif field == 2:
            self.samples.append(_sample(message(value)))
        elif field == 3:
            of = _numbers_of(value)
            self.mappings[of.get(1, 0)] = of.get(5, 0)
        elif field == 4:
            key, location = _location(message(value))
            self.locations[key] = location
        elif field == 5:
            of = _numbers_of(value)
            self.functions[of.get(1, 0)] = of.get(2, 0), of.get(4, 0)
        elif field == 6:
            self.texts.append(bytes(message(value)).decode("utf-8", "replace"))
        elif field == 7:
            self.drop_frames = number(value)
        elif field == 8:
            self.keep_frames = number(value)
        elif field == 12:
            self.period = signed(number(value))
        elif field == 13:
            self.comments += numbers(value)

    def text(self, at: int) -> str:
        """Gives the text of this number."""
        if not self.texts and at == 0:
            return ""
        if at >= len(self.texts):
            raise ValueError(f"text {at} is named, and there are {len(self.texts)}")
        return self.texts[at]


def _numbers_of(value: Value) -> Dict[int, int]:
    return {field: one for field, one in fields(message(value)) if isinstance(one, int)}


def _pair(value: Value) -> Tuple[int, int]:
    of = _numbers_of(value)
    return of.get(1, 0), of.get(2, 0)


def _location(data: memoryview) -> Tuple[int, Location]:
    key = address = mapping = 0
    lines = []
    for field, value in fields(data):
        if field == 1:
            key = number(value)
        elif field == 2:
            mapping = number(value)
        elif field == 3:
            address = number(value)
        elif field == 4:
            function, line = _pair(value)
            lines.append((function, signed(line)))
    return key, Location(address, mapping, lines)


def _sample(data: memoryview) -> Sample:
    sample = Sample([], [], [], [])
    for field, value in fields(data):
        if field == 1:
            sample.locations.extend(numbers(value))
        elif field == 2:
            sample.values.extend(map(signed, numbers(value)))
        elif field == 1001:
            sample.sampled.extend(numbers(value))
        elif field == 1002:
            sample.variance.extend(doubles(value))
    return sample

"""The wire form of protobuf, as much of it as a profile needs."""

from __future__ import annotations

import struct
from typing import Iterator, List, Tuple, Union

Value = Union[int, memoryview]


def varint(data: memoryview, at: int) -> Tuple[int, int]:
    """Reads a number at `at`. Returns it, and where the next thing begins."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while shift < 70:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + 1
        shift += 7
    raise ValueError("a number has more than ten bytes")


def signed(value: int) -> int:
    """Makes an int64 of what `varint` read."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: memoryview) -> Iterator[Tuple[int, Value]]:
    """Gives each field of a message: its number, and its value or its bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = varint(data, at)
        elif wire == 1:
            length = 8
        elif wire == 5:
            length = 4
        else:
            raise ValueError(f"a field is of the unknown wire type {wire}")
        if length > end - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, data[at : at + length]
        at += length


def number(value: Value) -> int:
    """Takes the value of a field that holds a number."""
    if isinstance(value, int):
        return value
    raise ValueError("a field has bytes where a number belongs")


def message(value: Value) -> memoryview:
    """Takes the bytes of a field that holds a message or a text."""
    if isinstance(value, int):
        raise ValueError("a field has a number where a message belongs")
    return value


def numbers(value: Value) -> List[int]:
    """Takes the numbers of a repeated field: one of them, or many that are packed."""
    if isinstance(value, int):
        return [value]
    found = []
    at, end = 0, len(value)
    while at < end:
        one, at = varint(value, at)
        found.append(one)
    return found


def doubles(value: Value) -> List[float]:
    """Takes the packed floating point numbers of a field."""
    packed = message(value)
    if len(packed) % 8:
        raise ValueError("a list of numbers is cut off")
    return [one for (one,) in struct.iter_unpack("<d", packed)]

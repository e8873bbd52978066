"""Writes and reads fields of protobuf, the parts that pprof's profiles are made of."""

# The sample types of a heap profile: what is counted, and its unit.
TYPES = (
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
)


def varint(n):
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    encoded.append(n)
    return bytes(encoded)


def read_varint(data, at):
    """The number that stands at a place, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def number(field, n):
    return varint(field << 3) + varint(n)


def message(field, body):
    return varint(field << 3 | 2) + varint(len(body)) + body


def packed(field, numbers):
    return message(field, b"".join(map(varint, numbers)))


class Strings:
    """The texts of a profile, each once."""

    def __init__(self):
        self.index = {"": 0}

    def __call__(self, text):
        return self.index.setdefault(text, len(self.index))

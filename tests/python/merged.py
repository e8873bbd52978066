"""Allocates through the same functions and the same C code in two orders.

usage: merged.py

`c` calls `b` through `sorted`, and `b` calls `a` itself, or the other way round. The sizes tell
which way it was.
"""

THROUGH_OUTER, THROUGH_INNER = 2000001, 2000002
outer = False


def a(_):
    return len(bytearray(THROUGH_OUTER if outer else THROUGH_INNER))


def b(x):
    return a(x) if outer else sorted([x], key=a)[0]


def c():
    return sorted([1], key=b)[0] if outer else b(1)


for turn in range(100):
    outer = turn % 2 == 0
    c()

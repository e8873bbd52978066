"""A pantry, for captures of memray: shelves, jars that are emptied, and two cooks."""

import mmap
import sys
import threading

SHELVES = []


class Jar:
    def __init__(self, grams):
        self.label = "jar of " + str(grams)
        self.content = bytearray(grams)


def jars(count):
    for number in range(count):
        yield Jar(1000 + number)


def fill(depth, count):
    if depth:
        fill(depth - 1, count)
    else:
        SHELVES.append(list(jars(count)))


def cook(pots):
    kept = []
    for number in range(pots):
        pot = mmap.mmap(-1, 1 << 16)
        kept.append(bytearray(5000))
        if number % 4:
            pot.close()
        else:
            SHELVES.append(pot)
    return len(kept)


def feast():
    table = [bytearray(40_000) for _ in range(25)]
    return len(table)


for depth in range(3):
    fill(depth, 20)
cooks = [
    threading.Thread(target=cook, args=(6 + number,), name="cook-" + str(number))
    for number in range(2)
]
for one in cooks:
    one.start()
    one.join()
feast()
del SHELVES[0]
if "killed" in sys.argv:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)

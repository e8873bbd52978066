"""A ledger that keeps its entries, for snapshots of tracemalloc: ledger.py FILE [PROTOCOL]."""

import pickle
import sys
import tracemalloc


def entry(number):
    return {"number": "no. %d" % number, "text": "x" * (10 * number)}


def book(depth, entries):
    if depth:
        return book(depth - 1, entries)
    return [entry(number) for number in range(entries)]


tracemalloc.start(4)
pages = [book(depth, 12) for depth in range(5)]
blank = [bytearray(50000) for _ in range(3)]
del pages[1]
snapshot = tracemalloc.take_snapshot()
if len(sys.argv) > 2:
    with open(sys.argv[1], "wb") as file:
        pickle.dump(snapshot, file, int(sys.argv[2]))
else:
    snapshot.dump(sys.argv[1])

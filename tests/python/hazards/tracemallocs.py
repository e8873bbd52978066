# Starts and stops tracemalloc in the middle, because it puts allocators of its own on top of
# those that are there, and its numbers must stay what they are.
import sys
import tracemalloc

before = [bytes(300) for _ in range(2000)]


def make(count, size):
    return [bytearray(size) for _ in range(count)]


for turn in range(3):
    tracemalloc.start(turn * 5 + 1)
    kept = make(1000, 100)
    large = make(100, 5000)
    first = tracemalloc.take_snapshot()
    more = make(500, 100)
    second = tracemalloc.take_snapshot()
    here = [tracemalloc.Filter(True, __file__)]
    grown = [
        stat
        for stat in second.filter_traces(here).compare_to(first.filter_traces(here), "lineno")
        if stat.size_diff > 10000
    ]
    print("turn", turn, "lines", len(grown), "of", sorted({s.traceback[0].lineno for s in grown}))
    # An object of Python's has a head, so 500 objects of 100 bytes take somewhat more.
    print("  plausible", all(50000 < stat.size_diff < 120000 for stat in grown))
    where = tracemalloc.get_object_traceback(large[0])
    print("  line", where[0].lineno, "frames", len(where))
    current, peak = tracemalloc.get_traced_memory()
    print("  current", 650000 < current < 3000000, "peak", peak >= current)
    # Half of what is freed was there before it started.
    del before[:500], kept, more
    left, _ = tracemalloc.get_traced_memory()
    print("  less", current - left > 150000)
    if turn == 1:
        tracemalloc.clear_traces()
        print("  cleared", tracemalloc.get_traced_memory()[0] < 100000)
    tracemalloc.stop()
    del large
    make(1000, 200)
    print("  stopped", tracemalloc.is_tracing(), tracemalloc.get_traced_memory())
sys.exit(15)

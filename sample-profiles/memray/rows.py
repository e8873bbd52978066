"""Prints what memray itself makes of captures, for the tests: rows.py CAPTURE ...

A row is a kind of sum, blocks, bytes, bytes with what was called, and a line of pantry.py, or all.
memray counts the blocks of a file with sums wrong if allocators share a stack, so these are left
out.
"""

import collections
import sys

import memray


def rows(kind, records, is_aggregated):
    own, all_ = collections.defaultdict(lambda: [0, 0]), collections.Counter()
    for record in records:
        stack = record.stack_trace()
        places = [f"{name} {file}:{line}" for name, file, line in stack] or ["(no Python stack) :0"]
        own[places[0]][0] += record.n_allocations
        own[places[0]][1] += record.size
        for place in set(places):
            all_[place] += record.size
        own["all"][0] += record.n_allocations
        own["all"][1] += record.size
    for place in sorted(set(own) | set(all_)):
        blocks, size = own.get(place, (0, 0))
        is_shown = place == "all" or " pantry.py:" in place
        if is_shown and (blocks or size or all_[place]):
            print(kind, "-" if is_aggregated else blocks, size, all_[place], place)


for path in sys.argv[1:]:
    is_aggregated = "aggregated" in path
    print("file", path.rsplit("/", 1)[-1])
    reader = memray.FileReader(path)
    peak = reader.get_high_watermark_allocation_records(merge_threads=False)
    rows("peak", peak, is_aggregated)
    rows("inuse", reader.get_leaked_allocation_records(merge_threads=False), is_aggregated)
    if not is_aggregated:
        frees = ("FREE", "MUNMAP", "PYMALLOC_FREE")
        allocations = (
            record
            for record in reader.get_allocation_records()
            if memray.AllocatorType(record.allocator).name not in frees
        )
        rows("alloc", allocations, is_aggregated)

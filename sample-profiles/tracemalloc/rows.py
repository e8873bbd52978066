"""Prints what tracemalloc itself makes of snapshots, for the tests: rows.py SNAPSHOT ...

A row is a kind of statistic, blocks, bytes, and a line or a stack, innermost first.
"""

import sys
import tracemalloc

for path in sys.argv[1:]:
    print("file", path.rsplit("/", 1)[-1])
    snapshot = tracemalloc.Snapshot.load(path)
    for kind in ("lineno", "traceback"):
        rows = []
        for row in snapshot.statistics(kind):
            frames = ["%s:%d" % (frame.filename, frame.lineno) for frame in row.traceback]
            # From Python 3.7 on, the innermost frame is the last one.
            if sys.version_info >= (3, 7):
                frames.reverse()
            rows.append("%s %d %d %s" % (kind, row.count, row.size, ";".join(frames)))
        print("\n".join(sorted(rows)))

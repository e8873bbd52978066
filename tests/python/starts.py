# Records itself: a sample, every allocation, and a sample again. usage: starts.py
import ctypes

library = ctypes.CDLL(None)
library.heapprof_start.argtypes = [ctypes.c_char_p, ctypes.c_ulong]
kept = []
for number, period in enumerate([4096, 0, 4096]):
    if library.heapprof_start(None, period) != 0:
        raise SystemExit("no recording")
    kept.append([b"%0100d" % i for i in range(40000)])
    if library.heapprof_dump(b"%d.pb.gz" % number) != 0:
        raise SystemExit("no profile")

# Writes down what Python says of the stack, before allocations that have it.
#
# The first argument is a file. A line of it is the size of an allocation, which no other one has,
# and the frames, innermost first, each as `name (file:line)`, with tabs between them. Of two
# allocations one is made while the thread holds the GIL, and one while it has released it.
import ctypes
import itertools
import sys
import threading

EXPECTED = open(sys.argv[1], "a", buffering=1 << 16)
HELD, RELEASED = ctypes.PyDLL(None), ctypes.CDLL(None)
for library in (HELD, RELEASED):
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
SIZES = itertools.count(1000000)
HAS_QUALNAME = sys.version_info >= (3, 11)
LOCK = threading.Lock()


def written(size, frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        name = code.co_qualname if HAS_QUALNAME else code.co_name
        frames.append("%s (%s:%s)" % (name, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    with LOCK:
        EXPECTED.write("%d\t%s\n" % (size, "\t".join(frames)))
    return size


def check():
    held, released = HELD.malloc, RELEASED.malloc
    HELD.free(held(written(next(SIZES), sys._getframe())))
    RELEASED.free(released(written(next(SIZES), sys._getframe())))


def done():
    EXPECTED.flush()

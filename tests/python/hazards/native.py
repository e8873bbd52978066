# Has C code call Python: from a sort, and from native threads that Python has never seen, because
# such a thread gets a state of Python's only for the call. It opens and closes a library, too.
import ctypes
import ctypes.util
import sys

libc = ctypes.CDLL(None)
made = []

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
THREAD = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def compare(a, b):
    made.append([bytes(100)])
    del made[100:]
    return a[0] - b[0]


numbers = (ctypes.c_int * 300)(*[(i * 7919) % 1009 for i in range(300)])
libc.qsort(numbers, 300, ctypes.sizeof(ctypes.c_int), COMPARE(compare))
print("sorted", list(numbers) == sorted(numbers))


def nested(n):
    return [bytes(n * 10)] if n == 0 else [bytes(n * 10), nested(n - 1)]


def body(argument):
    seen.append((argument, len(str(nested(20))) > 100))
    return (argument or 0) + 1


seen = []
entry = THREAD(body)
try:
    create, join = libc.pthread_create, libc.pthread_join
except AttributeError:
    pthread = ctypes.CDLL(ctypes.util.find_library("pthread"))
    create, join = pthread.pthread_create, pthread.pthread_join
join.argtypes = [ctypes.c_ulong, ctypes.POINTER(ctypes.c_void_p)]
total = 0
for _ in range(20):
    threads = [ctypes.c_ulong() for _ in range(10)]
    for i, thread in enumerate(threads):
        assert create(ctypes.byref(thread), None, entry, ctypes.c_void_p(i + 1)) == 0
    for thread in threads:
        result = ctypes.c_void_p()
        join(thread, ctypes.byref(result))
        total += result.value
print("native threads", len(seen), total, all(ok for _, ok in seen))


# An exception in a callback is printed, and the caller goes on.
def fails(argument):
    raise ValueError("in a callback")


sys.unraisablehook = lambda what: print("unraisable", what.exc_value)
THREAD(fails)(3)
dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]
name = ctypes.util.find_library("m")
for turn in range(50):
    library = ctypes.CDLL(name)
    library.cos.restype, library.cos.argtypes = ctypes.c_double, [ctypes.c_double]
    made.append([bytes(library.cos(0.0) == 1.0)] * 100)
    assert dlclose(library._handle) == 0
print("closed")
# One that nobody else has, so that it really goes.
for turn in range(10):
    for maybe in ("libutil.so.1", "libanl.so.1", "libBrokenLocale.so.1"):
        try:
            library = ctypes.CDLL(maybe)
        except OSError:
            continue
        made.append([maybe] * 100)
        dlclose(library._handle)
print("gone")
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for size in (1, 100, 600, 100000, 10000000):
    libc.free(libc.malloc(size))
print("freed")
sys.exit(20)

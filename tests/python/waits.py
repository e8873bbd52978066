# Waits for lines, and keeps small objects for each. Ends with 9 if Python's allocators are not those
# that it began with. usage: waits.py
import ctypes
import sys

kept = []


def allocator():
    table = (ctypes.c_void_p * 5)()
    ctypes.pythonapi.PyMem_GetAllocator(2, table)
    return list(table)


def keep():
    kept.append([b"%0100d" % i for i in range(40000)])


first = allocator()
print("ready", flush=True)
for _ in sys.stdin:
    keep()
    print("done", flush=True)
keep()
sys.exit(0 if allocator() == first else 9)

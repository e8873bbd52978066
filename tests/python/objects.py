# Takes memory from Python's allocators in every way, and writes down what it got. usage:
# objects.py EXPECTED
#
# A line of EXPECTED is + or -, the address, and how many bytes were asked for. A block of 1234567
# bytes marks where they begin.
import ctypes
import random
import sys
import time

python = ctypes.pythonapi
libc = ctypes.PyDLL(None)
for domain in ("PyMem", "PyObject"):
    for name in ("Malloc", "Calloc", "Realloc"):
        getattr(python, "%s_%s" % (domain, name)).restype = ctypes.c_void_p
    getattr(python, "%s_Free" % domain).restype = None
libc.malloc.restype = ctypes.c_void_p
pointer, size_of = ctypes.c_void_p, ctypes.c_size_t
random.seed(7)
expected = []


def run(domain):
    call = {n: getattr(python, "%s_%s" % (domain, n)) for n in ("Malloc", "Calloc", "Realloc", "Free")}
    sizes = [0, 1, 8, 16, 17, 487, 488, 489, 511, 512, 513, 600, 5000, 200000]
    sizes += [random.randrange(1, 1200) for _ in range(60)]
    held = []
    for size in sizes:
        held.append((call["Malloc"](size_of(size)), size))
        expected.append(("+",) + held[-1])
        held.append((call["Calloc"](size_of(1), size_of(size)), size))
        expected.append(("+",) + held[-1])
    random.shuffle(held)
    again = []
    for address, size in held:
        to = random.choice(sizes)
        new = call["Realloc"](pointer(address), size_of(to))
        expected.append(("-", address, size))
        expected.append(("+", new, to))
        again.append((new, to))
    for address, size in again:
        expected.append(("-", address, size))
        call["Free"](pointer(address))


time.sleep(1)
libc.free(pointer(libc.malloc(size_of(1234567))))
run("PyMem")
run("PyObject")
with open(sys.argv[1], "w") as out:
    for sign, address, size in expected:
        out.write("%s %d %d\n" % (sign, address, size))

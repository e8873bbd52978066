# Runs out of address space and goes on, because Python handles a failed allocation, and nobody
# else may fail where Python would not. The room must be larger than what a recording needs.
import mmap
import resource
import sys

ROOM = 400 << 20


def used():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * mmap.PAGESIZE


def fill(size):
    held = []
    try:
        while True:
            held.append(bytes(size) if size else [None] * 8)
    except MemoryError:
        count = len(held)
        del held
        return count


def deep(n):
    if n == 0:
        return bytearray(1 << 40)
    return deep(n - 1)


soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used() + ROOM, hard))
for size in (64 << 20, 1 << 20, 60000):
    # A third of the room is enough to say that it was Python's program that used it.
    print("size", size, fill(size) * size > ROOM // 3)
for call in ("bytearray(1 << 40)", "[0] * (1 << 36)", "'x' * (1 << 41)", "deep(200)"):
    try:
        eval(call)
        print("no error")
    except MemoryError:
        print("MemoryError", call)
# Small objects fill what is left, arena by arena.
resource.setrlimit(resource.RLIMIT_AS, (used() + (60 << 20), hard))
print("small", fill(0) > 1000)
print("small", fill(200) > 1000)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
print("after", len([bytes(1 << 20) for _ in range(100)]))
sys.exit(18)

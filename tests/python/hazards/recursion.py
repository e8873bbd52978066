# Recurses very deeply and allocates there, because a stack of Python's may have 100,000 frames.
# usage: recursion.py [DEPTH]; with each small object recorded, 10,000 take about a second.
import sys
import threading

DEEP = int(sys.argv[1]) if len(sys.argv) > 1 else 100000


def down(depth, held):
    if depth == 0:
        held.append(["bottom"] * 300)
        return 0
    block = bytearray(40) if depth % 100 == 0 else None
    result = 1 + down(depth - 1, held)
    if block is not None:
        held.append(block)
    return result


def endless(count):
    count[0] += 1
    block = [None] * 20
    return endless(count) + len(block)


def deep():
    held = []
    sys.setrecursionlimit(DEEP + 1000)
    print("depth", down(DEEP, held), "held", len(held))
    del held
    sys.setrecursionlimit(3000)
    for _ in range(3):
        count = [0]
        try:
            endless(count)
        except RecursionError:
            print("RecursionError", count[0] > 2000)
    # A generator in a generator in a generator.
    inner = iter(range(10))
    for _ in range(500):
        inner = (x + 1 for x in inner)
    print("generators", sum(inner))


# Up to 3.10 each call of Python's takes a part of the native stack.
threading.stack_size(512 << 20)
thread = threading.Thread(target=deep)
thread.start()
thread.join()
print("done")
sys.exit(3)

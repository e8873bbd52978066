# Turns the garbage collector off and on, freezes, and has callbacks that allocate, because a
# collection runs in the middle of an allocation and runs Python's code there.
import gc
import sys
import weakref

calls = {"start": 0, "stop": 0}
collected = [0]
died = [0]


class Node:
    def __init__(self, other=None):
        self.other = other
        self.data = bytes(150)

    def __del__(self):
        died[0] += 1
        [bytearray(i) for i in (10, 500, 600)]


def callback(phase, info):
    calls[phase] += 1
    block = [bytes(i) for i in range(50)]
    if phase == "stop":
        collected[0] += info["collected"] * (len(block) == 50)


def cycles(count):
    for _ in range(count):
        first = Node()
        first.other = Node(first)


gc.disable()
cycles(500)
print("off", died[0], gc.isenabled())
print("unreachable", gc.collect() >= 1000, "died", died[0])
gc.callbacks.append(callback)
gc.set_threshold(50, 3, 3)
gc.enable()
cycles(2000)
gc.collect()
print("on", died[0], calls["start"] == calls["stop"], calls["start"] > 10, collected[0] >= 4000)
gc.freeze()
frozen = gc.get_freeze_count()
cycles(100)
gc.collect()
print("frozen", frozen > 1000, died[0])
gc.unfreeze()
print("unfrozen", gc.get_freeze_count())
# Something comes back to life, once.
lives = []


class Phoenix:
    def __del__(self):
        lives.append(self)


one = Phoenix()
one.me = one
del one
gc.collect()
print("lives", len(lives))
seen = []
target = Node()
watch = weakref.ref(target, lambda ref: seen.append(bytes(400)))
target.other = target
del target
gc.collect()
print("weak", len(seen), watch() is None)
gc.set_debug(gc.DEBUG_SAVEALL)
cycles(5)
gc.collect()
print("saved", len(gc.garbage) >= 10)
gc.set_debug(0)
del gc.garbage[:], lives[:]
gc.collect()
gc.callbacks.remove(callback)
print("threshold", gc.get_threshold())
sys.exit(16)

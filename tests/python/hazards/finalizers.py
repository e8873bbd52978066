# Allocates while Python ends: in finalizers, at exit, in a module's last objects, and in daemon
# threads that never end, because most of Python is gone by then.
import atexit
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

events = []


def say(text, write=os.write):
    write(1, (text + "\n").encode())


class Late:
    """Its instances allocate when they go."""

    def __init__(self, name):
        self.name = name

    def __del__(self, say=say):
        held = [bytes(100), [1] * 50, {"a": [bytes(700)]}, str(12345) * 20]
        held.append([bytearray(i) for i in range(1, 600, 50)])
        if self.name is not None:
            say("del " + self.name)


class Cycle(Late):
    def __init__(self, name):
        Late.__init__(self, name)
        self.me = self


class Thing:
    pass


def at_exit(name):
    block = [str(i) for i in range(1000)]
    say("atexit %s %d" % (name, len(block)))
    if name == "second":
        atexit.register(at_exit, "nested")


def finalize(name):
    say("finalize %s %d" % (name, len([bytes(i) for i in range(300)])))


def spin(step):
    held = []
    while True:
        held.append([bytes(step), {"k": step}])
        if len(held) > 200:
            del held[:]
            time.sleep(0.0005)


thing = Thing()
weakref.finalize(thing, finalize, "thing")
dead = Thing()
weakref.finalize(dead, finalize, "dead")
del dead
atexit.register(at_exit, "first")
atexit.register(at_exit, "second")
late = Late("module")
cycle = Cycle("cycle")
Late("at once")
Cycle("collected")
gc.collect()
# Objects that only the last steps of the end find.
import builtins  # noqa: E402

builtins.kept_by_builtins = Cycle(None)
if len(sys.argv) > 1:
    # While there are such threads, Python leaves this module's objects alone.
    for step in (17, 300, 700):
        threading.Thread(target=spin, args=(step,), daemon=True).start()
    time.sleep(0.05)
else:
    again = [sys.executable] + subprocess._args_from_interpreter_flags()
    say("with threads: %d" % subprocess.call(again + [__file__, "threads"]))
say("end")
raise SystemExit(5)

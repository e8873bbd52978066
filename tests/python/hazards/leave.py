# Ends with os._exit in the middle of something, from the main thread, from another one, and from
# a forked child, because nothing of Python's end runs then.
import os
import subprocess
import sys
import threading
import time
import warnings

# From 3.12 on Python warns of a fork with threads.
warnings.simplefilter("ignore")


def work(seconds):
    held = []
    end = time.time() + seconds
    while time.time() < end:
        held.append([bytes(100), bytes(1000)])
        del held[1000:]


def from_main():
    threading.Thread(target=work, args=(5,), daemon=True).start()
    work(0.05)
    os._exit(21)


def from_thread():
    def leave():
        work(0.05)
        os._exit(22)

    threading.Thread(target=leave).start()
    work(5)


def from_child():
    threading.Thread(target=work, args=(0.2,), daemon=True).start()
    child = os.fork()
    if child == 0:
        work(0.05)
        os._exit(23)
    code = os.waitpid(child, 0)[1] >> 8
    os._exit(code + 1)


def in_finalizer():
    class Leaving:
        def __del__(self):
            os._exit(len([bytes(100)] * 25))

    global kept
    kept = Leaving()


def in_frames():
    def down(n):
        block = [n] * 30
        if n == 0:
            os._exit(26)
        return down(n - 1) + len(block)

    down(500)


WAYS = [from_main, from_thread, from_child, in_finalizer, in_frames]
if len(sys.argv) > 1:
    dict((way.__name__, way) for way in WAYS)[sys.argv[1]]()
else:
    command = [sys.executable] + subprocess._args_from_interpreter_flags()
    for way in WAYS:
        code = subprocess.call(command + [__file__, way.__name__])
        print(way.__name__, code, flush=True)
    sys.stdout.write("not flushed? it is")
    sys.stdout.flush()
    os._exit(6)

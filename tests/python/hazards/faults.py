# Has faulthandler dump stacks into a file, on demand, by a signal, after a time, and at a real
# fault in a child, because it reads the same frames in a handler on a stack of its own.
import faulthandler
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

FAULTS = """
import ctypes, faulthandler, sys
faulthandler.enable(open(sys.argv[1], "w"))
def down(n):
    block = [n] * 50
    if n == 0:
        ctypes.string_at(0)
    return down(n - 1)
down(5)
"""


def names(path):
    with open(path) as file:
        text = file.read()
    return [line.split()[-1] for line in re.findall(r"  File .*", text)], text


def down(n, then):
    block = [n] * 100
    return then() if n == 0 else down(n - 1, then)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "dump")
    with open(path, "w") as file:
        down(3, lambda: faulthandler.dump_traceback(file, all_threads=False))
    print("dump", names(path)[0])
    with open(path, "w") as file:
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        for _ in range(20):
            down(3, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        faulthandler.unregister(signal.SIGUSR1)
    print("signal", names(path)[0].count("down"))
    with open(path, "w") as file:
        held, stop = [], []

        # Nobody calls a function of Python's meanwhile, because up to 3.10 the dump itself crashes
        # if a thread's frames change.
        def busy():
            while not stop:
                held.append([bytes(200), bytes(2000)])
                del held[500:]

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        faulthandler.dump_traceback_later(0.02, repeat=True, file=file)
        end = time.monotonic() + 20
        while os.stat(path).st_size < 3000 and time.monotonic() < end:
            time.sleep(0.01)
        faulthandler.cancel_dump_traceback_later()
        stop.append(True)
        for thread in threads:
            thread.join()
    print("later", names(path)[0].count("busy") > 5, "Timeout" in names(path)[1])
    code = subprocess.call([sys.executable, "-c", FAULTS, path], stderr=subprocess.DEVNULL)
    found, text = names(path)
    print("fault", code, text.split("\n")[0], found)
sys.exit(19)

# Handles signals while it allocates, with handlers that allocate, because a handler may run
# between any two instructions.
import os
import signal
import sys

counts = {"timer": 0, "usr1": 0}
kept = {}


def on_timer(number, frame):
    counts["timer"] += 1
    # Several sizes, small ones and some of malloc's.
    kept[counts["timer"] % 50] = [bytes(counts["timer"] % 2000), [frame.f_lineno], {"a": {}}]


def on_usr1(number, frame):
    counts["usr1"] += 1
    deeper(20)


def deeper(n):
    return [n] * n if n == 0 else [deeper(n - 1)]


signal.signal(signal.SIGALRM, on_timer)
signal.signal(signal.SIGUSR1, on_usr1)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
held = []
rounds = 0
while counts["timer"] < 200:
    rounds += 1
    held.append([str(i) * 5 for i in range(50)])
    if len(held) > 200:
        del held[:150]
    if rounds % 100 == 0 and counts["usr1"] < 50:
        os.kill(os.getpid(), signal.SIGUSR1)
signal.setitimer(signal.ITIMER_REAL, 0)
while counts["usr1"] < 50:
    os.kill(os.getpid(), signal.SIGUSR1)
print("timer", counts["timer"] >= 200, "usr1", counts["usr1"])


class Stop(Exception):
    pass


def raising(number, frame):
    raise Stop()


# A handler that raises, out of allocations.
signal.signal(signal.SIGALRM, raising)
stopped = 0
for _ in range(50):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True:
            held.append([bytearray(600) for _ in range(10)])
            del held[100:]
    except Stop:
        stopped += 1
print("stopped", stopped)
# The default action for a signal, taken from a forked child.
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGUSR1)
    os._exit(9)
print("child", os.waitpid(child, 0)[1] == signal.SIGUSR1)
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10000):
        held.append([None])
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupt")
sys.exit(4)

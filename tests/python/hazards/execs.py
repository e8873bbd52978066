# Executes itself again and again, once from a thread and once in a forked child, because each
# image begins anew under the same process id.
import os
import subprocess
import sys
import threading
import warnings

number = int(sys.argv[1]) if len(sys.argv) > 1 else 0
held = [[bytes(100 + number)] for _ in range(3000)]
print("image", number, len(held), os.environ.get("HAZARD_NUMBER"), flush=True)
os.environ["HAZARD_NUMBER"] = str(number)


def again(n):
    flags = subprocess._args_from_interpreter_flags()
    os.execv(sys.executable, [sys.executable] + flags + [__file__, str(n)])


if number < 3:
    again(number + 1)
if number == 3:
    # The other thread allocates while this one executes.
    def busy():
        while True:
            held.append(bytes(300))
            del held[2000:]

    threading.Thread(target=busy, daemon=True).start()
    threading.Thread(target=again, args=(4,)).start()
    while True:
        held.append([bytes(600)])
        del held[2000:]
if number == 4:
    warnings.simplefilter("ignore")
    child = os.fork()
    if child == 0:
        again(5)
    print("child", os.waitpid(child, 0)[1] >> 8)
    try:
        os.execv("/nowhere/at/all", ["nothing"])
    except OSError as error:
        print("no such program:", error.errno)
    sys.exit(9)
sys.exit(10)

# Forks with threads that allocate, and uses multiprocessing in its contexts, because a child
# inherits half of everything.
import multiprocessing
import os
import sys
import threading
import time
import warnings

# From 3.12 on Python warns of a fork with threads.
warnings.simplefilter("ignore")

stop = threading.Event()


def busy():
    held = []
    while not stop.is_set():
        held.append([bytes(80), bytes(900)])
        if len(held) > 300:
            del held[:]
            time.sleep(0)


def square(n):
    held = [bytes(n * 10) for _ in range(50)]
    return n * n * len(held)


def say(queue, name):
    queue.put((name, [name] * 10))


def forked():
    for depth in range(5):
        child = os.fork()
        if child == 0:
            held = [str(i) for i in range(2000)]
            threads = [threading.Thread(target=held.append, args=(i,)) for i in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if depth == 3:
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(len([bytes(i) for i in range(50)]))
                held.append(os.waitpid(grandchild, 0)[1] >> 8)
            os._exit(len(held) % 256 if depth != 3 else held[-1])
        print("child", depth, os.waitpid(child, 0)[1])


def contexts():
    for name in ("fork", "spawn"):
        context = multiprocessing.get_context(name)
        with context.Pool(2) as pool:
            print(name, "pool", sum(pool.map(square, range(40))))
        queue = context.Queue()
        process = context.Process(target=say, args=(queue, name))
        process.start()
        print(name, queue.get())
        process.join()
        print(name, "exit code", process.exitcode)


if __name__ == "__main__":
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    forked()
    stop.set()
    for thread in threads:
        thread.join()
    contexts()
    sys.stdout.flush()
    # A child that ends as a program does. With debug hooks 3.8 crashes here by itself.
    hooks = sys.flags.dev_mode or os.environ.get("PYTHONMALLOC", "").endswith("debug")
    if sys.version_info < (3, 9) and hooks:
        sys.exit(8)
    child = os.fork()
    if child == 0:
        print("the child ends")
        sys.exit(11)
    print("its code", os.waitpid(child, 0)[1] >> 8)
    sys.exit(8)

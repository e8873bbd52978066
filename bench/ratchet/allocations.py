"""Allocations of Python below ten calls, in a thread of their own: the main thread's stack is
elsewhere under valgrind. usage: python3 allocations.py TIMES"""
import sys
import threading


def allocate():
    bytearray(1000)


def descend(depth):
    return descend(depth - 1) if depth else allocate()


def repeat(times):
    for _ in range(times):
        descend(8)


thread = threading.Thread(target=repeat, args=(int(sys.argv[1]),))
thread.start()
thread.join()

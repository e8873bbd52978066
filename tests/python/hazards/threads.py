# Makes thousands of threads, many of them at once, each of which allocates, because each has a
# state of its own that comes and goes.
import sys
import threading

threading.stack_size(256 << 10)
lock = threading.Lock()
total = [0]
kept = []


def work(number):
    held = [bytes(number % 700 + 1) for _ in range(20)]
    text = "-".join(str(i) for i in range(number % 40))
    local = threading.local()
    local.value = held
    with lock:
        total[0] += len(local.value) + (len(text) > 0)
        if number % 100 == 0:
            kept.append(held)


def waves(count, each):
    number = 0
    for _ in range(count // each):
        threads = [threading.Thread(target=work, args=(number + i,)) for i in range(each)]
        number += each
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("waves", number, total[0], len(kept))


def at_once(count):
    barrier = threading.Barrier(count)
    sums = []

    def wait_and_work(number):
        before = [bytes(300)] * 3
        barrier.wait()
        work(number)
        barrier.wait()
        sums.append(len(before) + len([bytes(600) for _ in range(5)]))

    threads = [threading.Thread(target=wait_and_work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("at once", count, sum(sums))


waves(2000, 20)
at_once(200)
# One thread's objects are freed by another.
made = []
maker = threading.Thread(target=lambda: made.extend([i, bytes(i)] for i in range(1, 1000)))
maker.start()
maker.join()
freer = threading.Thread(target=made.clear)
freer.start()
freer.join()
print("freed elsewhere", len(made), threading.active_count())
sys.exit(7)

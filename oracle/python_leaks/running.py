# Starts the servers and workers of oracle/python_leaks.py, bare or recorded, and loads them.
import hashlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
THREADS = 4


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def load(port, first, count):
    """Asks for so many visits, and returns a digest of all answers."""
    answers = {}

    def ask(of):
        for number in range(first + of, first + count, THREADS):
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            asked.request("GET", "/visit/%d" % number, headers={"User-Agent": "bounded"})
            answer = asked.getresponse()
            answers[number] = (answer.status, answer.read())
            asked.close()

    threads = [threading.Thread(target=ask, args=(of,)) for of in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(answers) != count:
        raise RuntimeError("%d of %d answers" % (len(answers), count))
    return hashlib.md5(repr(sorted(answers.items())).encode()).hexdigest()


def children(pid):
    """All processes below one, and their programs' command lines."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        found.setdefault(parent, []).append(int(name))
    below, todo = [], [pid]
    while todo:
        todo += found.get(todo[0], [])
        below += found.get(todo.pop(0), [])
    return below


class Program:
    """A program that runs, below `heapprof record` if options are given."""

    def __init__(self, heapprof, folder, command, record=None, environment=()):
        self.folder = folder
        self.is_recorded = record is not None
        if self.is_recorded:
            command = [heapprof, "record", "-o", folder + "/r.pb.gz", *record, "--", *command]
        around = dict(os.environ, PYTHONPATH=HERE, PYTHONDONTWRITEBYTECODE="1", HOME=folder)
        around.update(PYTHONHASHSEED="0", LEAKS_FOLDER=folder, **dict(environment))
        self.out = open(folder + "/out", "wb")
        self.err = open(folder + "/err", "wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.out,
            stderr=self.err,
            env=around,
            cwd=folder,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            for pid in [*reversed(children(self.process.pid)), self.process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()

    def top(self):
        """The program itself."""
        while self.is_recorded:
            found = children(self.process.pid)
            if found or self.process.poll() is not None:
                return found[0]
            time.sleep(0.01)
        return self.process.pid

    def workers(self, count, wait=30):
        """The processes below it that have no others below them, once there are so many."""
        end = time.time() + wait
        while time.time() < end:
            found = [pid for pid in children(self.top()) if not children(pid)]
            if len(found) >= count:
                return found[:count]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("no %d workers: %s" % (count, self.said()[1][-600:]))

    def listening(self, port, wait=30):
        end = time.time() + wait
        while time.time() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nobody listens: " + self.said()[1][-600:])

    def line(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self, number=None):
        """Its exit code, after a signal if one is given."""
        if number is not None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout=60)

    def said(self):
        with open(self.folder + "/out", errors="replace") as out:
            with open(self.folder + "/err", errors="replace") as err:
                return out.read(), err.read()

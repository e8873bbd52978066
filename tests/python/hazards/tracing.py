# Traces and profiles itself, and counts the events, because they must be the same ones, in the
# same order, whoever else looks at the frames.
import hashlib
import sys
import threading

events = []
opcodes = [0]
HERE = __file__


def note(kind, frame, event, argument):
    if frame.f_code.co_filename != HERE:
        return False
    what = argument.__name__ if event.startswith("c_") else ""
    events.append("%s %s %s %d %s" % (kind, event, frame.f_code.co_name, frame.f_lineno, what))
    return True


def trace(frame, event, argument):
    if note("trace", frame, event, None):
        frame.f_trace_opcodes = True
        return trace_inside
    return None


def trace_inside(frame, event, argument):
    if event == "opcode":
        opcodes[0] += 1
    else:
        note("trace", frame, event, None)
    return trace_inside


def profile(frame, event, argument):
    note("profile", frame, event, argument)


def fibonacci(n):
    block = [n] * 20
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2) + len(block) - 20


class Thing:
    def __init__(self):
        self.data = {i: bytes(i * 20) for i in range(30)}

    def __del__(self):
        self.data.clear()


def numbers():
    try:
        for i in range(5):
            yield [i] * 50
    finally:
        bytearray(600)


def raises():
    try:
        {}["nothing"]
    except KeyError:
        return sorted([bytes(3), bytes(1)], key=len)


def work():
    fibonacci(9)
    for _ in range(10):
        Thing()
    list(numbers())
    next(numbers())
    raises()
    return sum(len(str(i) * 10) for i in range(50))


def run(name, set_it, unset):
    del events[:]
    opcodes[0] = 0
    set_it()
    result = work()
    unset()
    text = "\n".join(events)
    digest = hashlib.md5(text.encode()).hexdigest()
    print(name, result, len(events), opcodes[0], digest)


run("trace", lambda: sys.settrace(trace), lambda: sys.settrace(None))
run("profile", lambda: sys.setprofile(profile), lambda: sys.setprofile(None))


def both():
    sys.settrace(trace)
    sys.setprofile(profile)


def none():
    sys.setprofile(None)
    sys.settrace(None)


run("both", both, none)


def in_threads():
    threading.settrace(trace)
    threading.setprofile(profile)
    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    threading.settrace(None)
    threading.setprofile(None)


run("threads", lambda: None, in_threads)
sys.exit(14)

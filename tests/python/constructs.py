# Allocates in every kind of frame. usage: constructs.py EXPECTED ROUNDS
#
# expected.py says what is written into EXPECTED.
import asyncio
import contextlib
import functools
import gc
import os
import re
import sys
import threading

from expected import check, done

ROUNDS = int(sys.argv[2])


def recursion(depth):
    if depth == 0:
        return check()
    recursion(depth - 1)


def generator(count):
    for i in range(count):
        check()
        yield i


def delegating(count):
    yield from generator(count)


async def asynchronous(count):
    check()
    await asyncio.sleep(0)
    check()
    async for _ in asynchronous_generator(count):
        check()
    return [x async for x in asynchronous_generator(3)]


async def asynchronous_generator(count):
    for i in range(count):
        await asyncio.sleep(0)
        check()
        yield i


async def gathered():
    await asyncio.gather(*[asynchronous(3) for _ in range(5)])


def decorator(function):
    @functools.wraps(function)
    def wrapper(*args):
        check()
        return function(*args)

    return wrapper


@decorator
@functools.lru_cache(None)
def decorated(x):
    check()
    return x


class Deleted:
    def __del__(self):
        check()


class Meta(type):
    def __new__(mcs, name, bases, body):
        check()
        return super().__new__(mcs, name, bases, body)

    @property
    def attribute(cls):
        check()
        return 1


class Initialized:
    def __init__(self):
        check()
        self.kept = [check() for _ in range(2)]


class Compared:
    def __lt__(self, other):
        check()
        return id(self) < id(other)

    def __hash__(self):
        check()
        return 1

    def __eq__(self, other):
        check()
        return self is other

    def __getattr__(self, name):
        check()
        return 1

    def __getitem__(self, i):
        check()
        if i > 3:
            raise IndexError
        return i


@contextlib.contextmanager
def context():
    check()
    yield
    check()


def on_lines():
    check(); check()
    (
        check(),
        [
            check()
            for _ in range(2)
        ],
    )
    while True:
        check()
        break
    return {
        "a": check(),
        "b":
            check(),
    }


def constructs():
    recursion(5)
    recursion(200)
    list(generator(5))
    list(delegating(5))
    [check() for _ in range(3)]
    {check() for _ in range(3)}
    {i: check() for i in range(3)}
    [[check() for _ in range(2)] for _ in range(2)]
    list(map(lambda x: check(), range(3)))
    sorted(range(3), key=lambda x: check() or x)
    decorated(1)
    decorated(2)

    class Body(metaclass=Meta):
        check()
        y = [check() for _ in range(2)]

        def method(self):
            check()

    Body().method()
    Body.attribute
    Initialized()
    on_lines()
    exec("def made():\n  check()\n\n  check()\nmade()\n[check() for _ in range(2)]", globals())
    eval("[check() for i in range(3)]")
    deleted = Deleted()
    del deleted
    circle = [Deleted()]
    circle.append(circle)
    del circle
    gc.collect()
    with context():
        check()
    sorted([Compared() for _ in range(5)])
    {Compared() for _ in range(3)}
    Compared().anything
    list(Compared())
    try:
        1 / 0
    except ZeroDivisionError:
        check()
    finally:
        check()
    try:
        thrown = generator(3)
        next(thrown)
        thrown.throw(ValueError)
    except ValueError:
        check()
    closed = generator(3)
    next(closed)
    closed.close()
    re.sub("a", lambda m: (check(), "b")[1], "aaaa")
    asyncio.run(gathered())
    threads = [threading.Thread(target=recursion, args=(10,)) for _ in range(4)]
    threads += [threading.Thread(target=lambda: asyncio.run(asynchronous(3))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        import greenlet
    except ImportError:
        pass
    else:
        switches(greenlet)
    try:
        import numpy
    except ImportError:
        pass
    else:
        through_numpy(numpy)
    try:
        from lxml import etree
    except ImportError:
        pass
    else:
        through_lxml(etree)
    exec("#" + "\n" * 400 + "x=1\nfor i in range(3):\n  check()" + "\n" * 3000 + "\n  check()", globals())


def through_numpy(numpy):
    class Number:
        def __init__(self, value):
            self.value = value

        def __add__(self, other):
            check()
            return Number(self.value + other.value)

    numbers = numpy.array([Number(i) for i in range(4)], dtype=object)
    numpy.add.reduce(numbers)
    numpy.vectorize(lambda x: (check(), x)[1])(numpy.arange(3))
    numpy.apply_along_axis(lambda row: (check(), row.sum())[1], 0, numpy.ones((2, 2)))


def through_lxml(etree):
    class Target:
        def start(self, tag, attributes):
            check()

        def close(self):
            check()
            return 1

    etree.fromstring("<a><b/><c x='1'/></a>", etree.XMLParser(target=Target()))
    functions = {(None, "seen"): lambda context, x: (check(), True)[1]}
    etree.fromstring("<a><b/><b/></a>").xpath("//b[seen(.)]", extensions=functions)


def switches(greenlet):
    def first():
        check()
        two.switch()
        check()
        two.switch()

    def second():
        recursion(3)
        one.switch()
        recursion(4)
        one.switch()

    one, two = greenlet.greenlet(first), greenlet.greenlet(second)
    one.switch()
    check()


def forked():
    done()
    child = os.fork()
    if child == 0:
        recursion(7)
        list(generator(2))
        done()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the child failed")


for _ in range(ROUNDS):
    constructs()
forked()
done()

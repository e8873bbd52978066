#!/usr/bin/env python3
"""Writes the profiles that no program would give on demand:

series/moment.00.pb.gz to moment.19.pb.gz
    twenty moments of one process, a second apart, in which one function leaks, one grows in
    steps, one is a cache that fills, and one bursts
hostile.pb.gz
    names with markup, quotes, bidi and control characters, and very long ones
imports.pb.gz
    a Python program that imports modules, one of which imports another
freed.pb.gz and nothing.pb.gz
    a program that had freed all of its memory, and one that never had any

usage: make_profiles.py FOLDER     (equal bytes each time)
"""

import os
import sys

from pprof import profile

MOMENTS = 20
BEGIN = 1_790_000_000_000_000_000
# Each stack, root first, with what it holds in a moment: (objects, bytes).
STACKS = (
    ("main server.Run session.Begin", lambda i: (100 + 50 * i, 8_000 * (i + 1))),
    ("main server.Run session.Begin session.Remember", lambda i: (10 * i, 640 * i)),
    ("main server.Run queue.Grow", lambda i: (4, 65_536 * (1 + i // 5))),
    ("main server.Run cache.Load", lambda i: (20, 30_000 * min(i + 1, 6))),
    ("main report.Build", lambda i: (3, 400_000 if 8 <= i <= 10 else 2_000)),
    ("main report.Build format.Table", lambda i: (7, 4_096 if i < 15 else 0)),
    ("main config.Read", lambda i: (12, 50_000)),
    ("main config.Read config.Late", lambda i: (1, 9_000 if i >= 12 else 0)),
)
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "\"quoted\" 'single' `back` &amp; %DATA%",
    "abc\u202egnp.exe\u202c",
    "bell\x07\x1b[31mred\x01end",
    "line\nbreak\ttab\r\u2028sep",
    "\u05e9\u05dc\u05d5\u05dd::\u05e2\u05d5\u05dc\u05dd",
    "surrogate\U0001f600" * 12,
    "zero\u200bwidth\ufeff",
    "std::vector<std::map<std::__cxx11::basic_string<char, std::char_traits<char>, "
    "std::allocator<char> >, std::vector<int>, std::less<int> >, std::allocator<int> >::"
    "_M_realloc_insert<std::pair<int const, long> const&>(__normal_iterator<int*>)",
    "x" * 5000,
    "{{constructor}} ${7*7}",
    "../../etc/passwd",
    "$(touch x) `touch x` 'or' 1=1 --",
    "ok",
)


def moment(i):
    names = sorted({name for stack, _ in STACKS for name in stack.split()})
    stacks = []
    for stack, of in STACKS:
        # What was allocated so far is twice what any moment held most; it never falls.
        so_far = [of(k) for k in range(i + 1)]
        allocated = [2 * max(one[k] for one in so_far) for k in (0, 1)]
        places = [names.index(name) for name in stack.split()]
        stacks.append((places, [*allocated, *of(i)]))
    rss = 4_000_000 + sum(values[3] for _, values in stacks)
    functions = [(name, "/src/" + name.split(".")[0] + ".go") for name in names]
    comments = [f"rss: {rss} bytes"]
    return profile(functions, stacks, BEGIN + i * 1_000_000_000, comments, "/usr/bin/server")


def hostile():
    functions = [("main", "/src/<b>main</b>.c")]
    functions += [(name, f'/src/"{i}"<i>\u202e.c') for i, name in enumerate(HOSTILE)]
    stacks = [
        ([0, i], [i, 1000 * i, i, 900 * i]) for i in range(1, len(functions))
    ]
    comments = ["<img src=x onerror=alert(2)>"]
    return profile(functions, stacks, BEGIN, comments, "/tmp/</title><script>alert(3)</script>")


def imports():
    boot = [
        ("_find_and_load", "<frozen importlib._bootstrap>"),
        ("exec_module", "<frozen importlib._bootstrap_external>"),
    ]
    job = [("<module>", "/home/me/job.py")]
    decimals = [("<module>", "/usr/lib/python3/dist-packages/decimals/__init__.py")]
    tables = [("<module>", "/usr/lib/python3/dist-packages/decimals/tables.py")]
    make = [("make", "/usr/lib/python3/dist-packages/decimals/tables.py")]
    first = job + boot + decimals
    stacks = [
        (job, 1_000),
        (first, 20_000),
        (first + make, 3_000),
        (first + boot + tables, 40_000),
        (first + boot + tables + make, 5_000),
        (job + boot + [("get_data", "/usr/lib/python3.11/zipimport.py")], 6_000),
        (job + boot, 700),
        (job + [("load", "/home/me/job.py")] + make, 8_000),
        (job + [("load", "/home/me/job.py")] + boot + tables, 900),
    ]
    functions = sorted({function for stack, _ in stacks for function in stack})
    places = [
        ([functions.index(function) for function in stack], [2, 2 * held, 1, held])
        for stack, held in stacks
    ]
    return profile(functions, places, BEGIN)


def all_freed(allocated):
    values = [allocated, 1000 * allocated, 0, 0]
    return profile([("main", "/src/main.c")], [([0], values)], BEGIN)


folder = sys.argv[1]
os.makedirs(folder + "/series", exist_ok=True)
for i in range(MOMENTS):
    with open(f"{folder}/series/moment.{i:02}.pb.gz", "wb") as file:
        file.write(moment(i))
with open(folder + "/hostile.pb.gz", "wb") as file:
    file.write(hostile())
with open(folder + "/imports.pb.gz", "wb") as file:
    file.write(imports())
for name, allocated in (("freed", 7), ("nothing", 0)):
    with open(f"{folder}/{name}.pb.gz", "wb") as file:
        file.write(all_freed(allocated))

"""Runs cells as IPython does: under a file name that no file has, with the text in linecache."""

import linecache

KEPT = []


def run(text, file, known=True):
    lines = text.splitlines(True)
    if known:
        linecache.cache[file] = (len(text), None, lines, file)
    exec(compile(text, file, "exec"), {"KEPT": KEPT})


# More entries than a small table has.
for i in range(1000):
    linecache.cache["/nowhere/%d.py" % i] = (0, None, [], "")
run("\n\n  \n# load the orders\nKEPT.append(bytearray(1000000))\n", "/tmp/ipykernel_7/11.py")
LONG = "KEPT.append(bytearray(1100000))  # \u00e4\u20ac\U0001f600 " + "x" * 90
run(LONG, "<ipython-input-2-0a1b>")
LOAD = "def load(n):\n    return bytearray(n)\nKEPT.append(load(1200000))"
run(LOAD, "/t\u00e4/ipykernel_7/12.py")
# The same place again, with another text.
for i in range(200):
    run("KEPT.append(bytearray(%d))" % (20000 + i), "/tmp/ipykernel_8/%d.py" % i)
run("KEPT.append(bytearray(1300000))", "/tmp/ipykernel_7/13.py", known=False)
linecache.cache["/tmp/ipykernel_7/14.py"] = (None,)
run("KEPT.append(bytearray(1400000))", "/tmp/ipykernel_7/14.py", known=False)
linecache.cache["/tmp/ipykernel_7/15.py"] = (1, None, ["\n"], "")
run("KEPT.append(bytearray(1500000))", "/tmp/ipykernel_7/15.py", known=False)
run("KEPT.append(bytearray(1600000))", "/home/notebook.py")

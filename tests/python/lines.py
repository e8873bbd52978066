# Prints the line of every instruction in the standard library, as Python itself says it.
# usage: lines.py [FILES]
#
# For each code object: its first line, its table in hexadecimal digits, and runs of equal lines, as
# `COUNTxLINE`, where -1 is no line. FILES limits how many files are compiled.
import ctypes
import os
import sys
import warnings

warnings.simplefilter("ignore")
line_of = ctypes.pythonapi.PyCode_Addr2Line
line_of.argtypes = [ctypes.py_object, ctypes.c_int]
MOST = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30


def files():
    for folder, folders, names in os.walk(os.path.dirname(os.__file__)):
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "__pycache__"})
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def show(code):
    if sys.version_info >= (3, 10):
        table, lines = code.co_linetable, {}
        for begin, end, line in code.co_lines():
            for at in range(begin, end, 2):
                lines[at] = -1 if line is None else line
    else:
        table, lines = code.co_lnotab, {}
    runs = []
    for at in range(0, len(code.co_code), 2):
        line = line_of(code, at)
        # Python 3.10 and later have both.
        if lines and lines[at] != line:
            sys.exit("%s: %d: Python says %d and %d" % (code, at, line, lines[at]))
        if runs and runs[-1][1] == line:
            runs[-1][0] += 1
        else:
            runs.append([1, line])
    runs = ",".join("%dx%d" % (count, line) for count, line in runs)
    print(code.co_firstlineno, table.hex() or "-", runs)
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            show(constant)


print(sys.version_info[1])
for path in list(files())[:MOST]:
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
    except (SyntaxError, ValueError):
        continue
    show(code)

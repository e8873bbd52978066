#!/usr/bin/env python3
"""Attaches while a signal handler runs that has interrupted a thread between the instructions that a
jump replaces, again and again. The thread must go on when the handler returns.

usage: oracle/attach_interrupted.py HEAPPROF [ROUNDS]
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAPPROF = str(pathlib.Path(sys.argv[1]).resolve())
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000


def main():
    folder = tempfile.mkdtemp()
    for name in ["pointers", "interrupter"]:
        source = str(ROOT / f"tests/attach/{name}.c")
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", f"{folder}/{name}", source], check=True)
    program = subprocess.Popen([folder + "/pointers", "interrupted"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    read = lambda: program.stdout.readline().decode()
    assert read() == "ready\n"
    place = read().split()
    offsets = {}
    for _ in range(ROUNDS):
        done = subprocess.run([folder + "/interrupter", *place], capture_output=True, text=True)
        if done.returncode == 3:
            sys.exit("this machine has no hardware breakpoints")
        offset = int(done.stdout)
        assert done.returncode == 0 and 0 < offset < 5, done
        offsets[offset] = offsets.get(offset, 0) + 1
        assert read() == "interrupted\n"
        attach = subprocess.Popen([HEAPPROF, "attach", "--exact", "-o", folder + "/p.pb.gz",
                                   str(program.pid)], stderr=subprocess.PIPE, text=True)
        said = ""
        while "recording every" not in said:
            line = attach.stderr.readline()
            assert line, said
            said += line
        assert re.search(r"stopped for [\d.]+ ms", said), said
        program.stdin.write(b"\n")
        program.stdin.flush()
        answer = read()
        assert answer == "done\n", (answer, program.poll())
        attach.send_signal(signal.SIGINT)
        attach.stderr.read()
        assert attach.wait() == 0
    program.stdin.close()
    assert program.wait() == 7
    print(f"{ROUNDS} rounds, 0 deaths; by offset of the instruction: {offsets}")


main()

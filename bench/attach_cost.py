#!/usr/bin/env python3
"""Counts the instructions of a pair of malloc and free: alone, recorded, attached to, and after
leaving.

usage: bench/attach_cost.py HEAPPROF
"""

import re
import subprocess
import sys
import tempfile
import time

HEAPPROF = sys.argv[1]
SOURCE = r"""
#include <stdlib.h>
volatile long done;
static void *volatile p;
int main(void) { for (;;) { p = malloc(64); free(p); done++; } }
"""
PIECES = 100

folder = tempfile.mkdtemp()
with open(folder + "/pair.c", "w") as file:
    file.write(SOURCE)
flags = ["-O1", "-fno-builtin", "-no-pie", "-fno-pie"]
subprocess.run(["cc", *flags, "-o", folder + "/pair", folder + "/pair.c"], check=True)
subprocess.run(["cc", "-O1", "-o", folder + "/steps", sys.path[0] + "/steps.c"], check=True)
symbols = subprocess.run(["nm", folder + "/pair"], capture_output=True, text=True).stdout
ADDRESS = "0x" + re.search(r"(\w+) \w done", symbols)[1]


def steps(pid):
    done = subprocess.run([folder + "/steps", str(pid), ADDRESS, str(PIECES)], capture_output=True,
                          text=True, timeout=60)
    return float(done.stdout)


def main():
    for mode in (["--exact"], ["--period", "512KiB"]):
        record = subprocess.Popen([HEAPPROF, "record", *mode, "-o", folder + "/r.pb.gz", "--",
                                   folder + "/pair"], stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        pid = int(subprocess.run(["pgrep", "-P", str(record.pid)], capture_output=True,
                                 text=True).stdout.split()[0])
        recorded = steps(pid)
        subprocess.run(["kill", str(pid)])
        record.wait()
        program = subprocess.Popen([folder + "/pair"])
        time.sleep(0.2)
        bare = steps(program.pid)
        attach = subprocess.Popen([HEAPPROF, "attach", str(program.pid), *mode, "-o",
                                   folder + "/a.pb.gz"], stderr=subprocess.PIPE, text=True)
        attach.stderr.readline()
        time.sleep(0.5)
        attached = steps(program.pid)
        attach.terminate()
        attach.wait()
        after = steps(program.pid)
        program.kill()
        print(f"{mode[0]}: instructions a pair: bare {bare}, recorded {recorded}, attached "
              f"{attached} ({attached / recorded:.4f} of recorded), after leaving {after}")


main()

#!/usr/bin/env python3
"""Kills heapprof at a random moment of an attachment, again and again, and looks whether the program
goes on, and whether the next command finds what was left.

usage: oracle/attach_killed.py HEAPPROF [TIMES]
"""

import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAPPROF = str(pathlib.Path(sys.argv[1]).resolve())
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 300


def run(*words):
    done = subprocess.run([HEAPPROF, *words], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr.strip()


def main():
    random.seed(7)
    counts = {"was attached": 0, "was not": 0}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        built = folder + "/checks_itself"
        source = str(ROOT / "tests/attach/checks_itself.c")
        subprocess.run(["cc", "-O2", "-g", "-pthread", "-o", built, source, "-lm"], check=True)
        program = None
        for n in range(TIMES):
            # A new program every 20 times: the first attachment to one takes other steps.
            if n % 20 == 0:
                wrong += finish(program)
                program = subprocess.Popen([built, "0"], stdout=subprocess.PIPE, text=True)
                program.stdout.readline()
            mode = ["--exact"] if n % 2 else ["--period", "4KiB"]
            attach = subprocess.Popen([HEAPPROF, "attach", str(program.pid), *mode, "-o",
                                       folder + "/p.pb.gz"], stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, 0.09))
            attach.kill()
            attach.wait()
            code, said = run("detach", str(program.pid))
            if code == 0:
                counts["was attached"] += 1
            elif "no process is attached" in said:
                counts["was not"] += 1
            else:
                wrong.append(said)
            if n % 10 == 9:
                code, said = run("attach", str(program.pid), "--exact", "--for", "50ms", "-o",
                                 folder + "/p.pb.gz")
                if code:
                    wrong.append(said)
        wrong += finish(program)
    print(f"{TIMES} times killed: {counts}, {len(wrong)} wrong")
    for one in wrong[:3] + wrong[-3:]:
        print("   ", one)
    sys.exit(1 if wrong else 0)


def finish(program):
    """Ends the program; returns what it found wrong."""
    if program is None:
        return []
    program.send_signal(signal.SIGTERM)
    try:
        out, _ = program.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        program.kill()
        return ["the program does not end"]
    interrupted = [line for line in out.splitlines()
                   if "interrupted" in line and not line.endswith(" 0")]
    return interrupted + ([] if program.returncode == 0 else [f"exit {program.returncode}: {out[-300:]}"])


if __name__ == "__main__":
    main()

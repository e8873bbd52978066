# Asks heapprof for reports about a leak of oracle/python_leaks.py, and at which row it stands.
import json
import os
import subprocess

from running import HERE

HEAPPROF = os.environ["LEAKS_HEAPPROF"]
OWN = os.listdir(HERE)


def planted(file):
    """The line that leaks, and its number."""
    with open(os.path.join(HERE, file)) as lines:
        return file, next(number for number, line in enumerate(lines, 1) if "# planted" in line)


def report(*arguments):
    """A report of heapprof as an object."""
    done = subprocess.run([HEAPPROF, *arguments, "--format", "json"], capture_output=True)
    if done.returncode:
        raise RuntimeError("%s: %s" % (arguments, done.stderr.decode()))
    return json.loads(done.stdout)


def rank(rows, leak):
    """Which row is the leak's, from 1 on; None if no row is. In a stack that is the newest frame
    of these programs: there may be frames of libraries below it."""
    for number, row in enumerate(rows, 1):
        for frame in row.get("stack", [row]):
            file = os.path.basename(frame.get("file") or "")
            if file in OWN:
                if (file, frame.get("line")) == leak:
                    return number
                break
    return None


def ranks(leak, late, early=None):
    """The ranks of a leak in each report that somebody would look at."""
    found = {"leaks": rank(report("leaks", "--all-code", late)["rows"], leak)}
    found["leaks own"] = rank(report("leaks", late)["rows"], leak)
    if early:
        lines = ["diff", "--all-code", "-g", "lines", early, late]
        grown = [row for row in report(*lines)["rows"] if row["delta"] > 0]
        found["diff"] = rank(grown, leak)
        found["diff own"] = rank(report(*lines, "--own-code")["rows"], leak)
    return found


def dump(pid, path):
    done = subprocess.run([HEAPPROF, "dump", str(pid), "-o", path], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return path

# What workers of `gunicorn --preload` copy: the audit must say the same as the kernel says of bare
# workers, and must name the function that made what they copy.
import json
import os
import signal
import subprocess
import tempfile
import time

from running import HERE, Program, load

REQUESTS = 40
FROZEN = ["-c", HERE + "/frozen.py"]
# What the workers do, gunicorn's options, and whether the catalogue is copied.
WAYS = [
    ("nothing", [], False),
    ("read", [], True),
    ("collect", [], True),
    ("collect", FROZEN, False),
    ("read", FROZEN, True),
]


def dirty(pid):
    with open("/proc/%d/smaps_rollup" % pid) as rollup:
        words = [line.split() for line in rollup if line.startswith("Private_Dirty")]
    return int(words[0][1]) << 10


def audited(heapprof, port, command, work, record):
    """Private and dirty bytes of a bare worker, or the audit."""
    with tempfile.TemporaryDirectory() as folder:
        around = {"LEAKS_WORK": work}
        with Program(heapprof, folder, command, record, around.items()) as program:
            program.listening(port)
            pids = program.workers(2)
            answers = load(port, 0, REQUESTS)
            time.sleep(0.5)
            bytes_of = [dirty(pid) for pid in pids]
            code = program.end(signal.SIGTERM)
        if record is None:
            return answers, code, max(bytes_of)
        words = [heapprof, "fork-audit", folder, "--format", "json"]
        done = subprocess.run(words, capture_output=True, check=True)
        return answers, code, json.loads(done.stdout)


def audit(case, heapprof, port, command):
    for work, options, is_copied in WAYS:
        words = command[:-1] + options + command[-1:]
        name = work + (" frozen" if options else "")
        answers, code, kernel = audited(heapprof, port, words, work, None)
        options = ["--fork-audit", "--python-objects=yes"]
        answers_2, code_2, found = audited(heapprof, port, words, work, options)
        case.same("answers, code", (answers, code), (answers_2, code_2))
        copied = max(child["unshared_space"] for child in found["children"])
        rows = [os.path.basename(row.get("file") or "") for row in found["unshared"]]
        place = rows.index("preload.py") + 1 if "preload.py" in rows else None
        largest = sum(r["each"] for r, file in zip(found["unshared"], rows) if file == "preload.py")
        text = "%s: kernel %.1f MiB, copied %.1f, catalogue %.1f, row %s"
        mib = [value / (1 << 20) for value in (kernel, copied, largest)]
        case.places.append(text % (name, *mib, place))
        if is_copied != (place is not None and place <= 3 and largest > copied / 3):
            case.problems.append("%s: the audit says something else" % name)
        if abs(copied - kernel) > kernel / 4:
            case.problems.append("%s: copied is not what the kernel says" % name)

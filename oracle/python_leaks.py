#!/usr/bin/env python3
"""Plants leaks in real Python servers and workers, and asks heapprof for them: the line that leaks
must be within the first three rows. Answers and exit codes must be those of the bare program.
usage: oracle/python_leaks.py HEAPPROF [CASE...]
LEAKS_VENV is a folder for the packages (else one that goes), LEAKS_PYTHON the python for it.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HEAPPROF = os.environ["LEAKS_HEAPPROF"] = os.path.abspath((sys.argv + [""])[1])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_leaks"))
from reports import dump, planted, rank, ranks, report  # noqa: E402
from running import HERE, Program, free_port, load  # noqa: E402

ROWS = 3
WARM, MORE = 500, 4000
PACKAGES = {
    "flask": ["flask", "gunicorn"],
    "django": ["django", "gunicorn"],
    "celery": ["celery"],
    "pandas": ["pandas"],
    "asyncio": [],
    "pool": [],
    "attach": ["flask", "gunicorn"],
    "live": ["flask", "gunicorn"],
    "preload": ["gunicorn"],
}


class Case:
    """What became of a case."""

    def __init__(self, name):
        self.name, self.problems, self.places = name, [], []

    def found(self, what, places, needed=("leaks", "diff")):
        """One of the reports that are needed must have the leak near its top."""
        best = min((places[n] or 999 for n in needed if n in places), default=999)
        self.places.append("%s %s" % (what, " ".join("%s=%s" % p for p in places.items())))
        if best > ROWS:
            self.problems.append("%s: not within %d rows" % (what, ROWS))

    def same(self, what, bare, recorded):
        if bare != recorded:
            self.problems.append("%s: bare %r, recorded %r" % (what, bare, recorded))


def gunicorn(python, *arguments):
    port = free_port()
    command = [python, "-m", "gunicorn", "-w", "2", "-b", "127.0.0.1:%d" % port, *arguments]
    return port, command


def serve(case, command, port, leak, workers, code_signal=signal.SIGTERM):
    """A server, bare and recorded, under the same load, with two dumps of each worker."""
    results = []
    for record in (None, []):
        with tempfile.TemporaryDirectory() as folder:
            with Program(HEAPPROF, folder, command, record) as program:
                program.listening(port)
                pids = program.workers(workers) if workers else [program.top()]
                digests = [load(port, 0, WARM)]
                early = [record is not None and dump(p, "%s/early.%d" % (folder, p)) for p in pids]
                digests.append(load(port, WARM, MORE))
                late = [record is not None and dump(p, "%s/late.%d" % (folder, p)) for p in pids]
                code = program.end(code_signal)
                out = program.said()[0]
            results.append((digests, code, out))
            if record is not None:
                for one, two in zip(early, late):
                    case.found("worker", ranks(leak, two, one))
    case.same("answers, code, output", *results)


def flask(case, python):
    port, command = gunicorn(python, "flask_leak:app")
    serve(case, command, port, planted("visits.py"), 2)


def django(case, python):
    port, command = gunicorn(python, "django_leak:app")
    serve(case, command, port, planted("visits.py"), 2)


def asyncio(case, python):
    port = free_port()
    serve(case, [python, HERE + "/server.py", str(port)], port, planted("server.py"), 0)


def celery(case, python):
    """The tasks are sent by another process, which nobody records."""
    results = []
    command = [python, "-m", "celery", "-A", "tasks", "worker", "-c", "2", "-l", "WARNING"]
    for record in (None, []):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("queue", "control", "results"):
                os.mkdir(folder + "/" + name)
            around = dict(os.environ, PYTHONPATH=HERE, LEAKS_FOLDER=folder)

            def send(first, count):
                script = [python, HERE + "/tasks.py", str(first), str(count)]
                return subprocess.run(script, env=around, stdout=-1, check=True).stdout

            with Program(HEAPPROF, folder, command, record) as program:
                pids = program.workers(2)
                said = [send(0, WARM)]
                early = [record is not None and dump(p, "%s/early.%d" % (folder, p)) for p in pids]
                said.append(send(WARM, MORE))
                late = [record is not None and dump(p, "%s/late.%d" % (folder, p)) for p in pids]
                code = program.end(signal.SIGTERM)
            results.append((said, code))
            if record is not None:
                for one, two in zip(early, late):
                    case.found("worker", ranks(planted("visits.py"), two, one))
    case.same("answers, code", *results)


def pool(case, python):
    results = []
    for record in (None, []):
        with tempfile.TemporaryDirectory() as folder:
            command = [python, HERE + "/pool.py", str(MORE)]
            with Program(HEAPPROF, folder, command, record) as program:
                pids = program.workers(2)
                dumps = []
                for part in (1, 2):
                    while program.said()[0].count("\n") < part:
                        time.sleep(0.05)
                    name = "%s/%d.%%d" % (folder, part)
                    dumps.append([record is not None and dump(p, name % p) for p in pids])
                    program.line()
                results.append((program.end(), program.said()[0]))
            if record is not None:
                for one, two in zip(*dumps):
                    case.found("worker", ranks(planted("visits.py"), two, one))
    case.same("code, output", *results)


def pandas(case, python):
    """A script that ends: of what it held on the way there are profiles, and one of its peak."""
    results, leak = [], planted("frames.py")
    for record in (None, ["--on-growth", "8MiB"]):
        with tempfile.TemporaryDirectory() as folder:
            command = [python, HERE + "/frames.py", folder + "/d.csv"]
            subprocess.run([*command, "300000"], check=True)
            with Program(HEAPPROF, folder, command, record) as program:
                results.append((program.end(), program.said()[0]))
            if record is not None:
                written = sorted(n for n in os.listdir(folder) if re.match(r"r\.\d+\.pb", n))
                late, early = folder + "/" + written[-1], folder + "/" + written[len(written) // 2]
                places = ranks(leak, late, early)
                peak = ["top", "-t", "peak_space", "-g", "lines"]
                places["peak"] = rank(report(*peak, folder + "/r.pb.gz")["rows"], leak)
                peak.append("--own-code")
                places["peak own"] = rank(report(*peak, folder + "/r.pb.gz")["rows"], leak)
                case.found("script", places)
    case.same("code, output", *results)


def attach(case, python):
    """Workers that run already, and are left again."""
    port, command = gunicorn(python, "flask_leak:app")
    results = []
    for is_attached in (False, True):
        with tempfile.TemporaryDirectory() as folder, Program(None, folder, command) as program:
            program.listening(port)
            pids, looking = program.workers(2), []
            digests = [load(port, 0, WARM)]
            for pid in pids if is_attached else ():
                out = "%s/%d.pb.gz" % (folder, pid)
                words = [HEAPPROF, "attach", str(pid), "-o", out]
                looking.append((subprocess.Popen(words, stderr=-1, text=True), out))
            for looker, _ in looking:
                looker.stderr.readline()
            digests.append(load(port, WARM, MORE))
            for looker, out in looking:
                looker.send_signal(signal.SIGINT)
                said = looker.communicate()[1]
                if not os.path.exists(out):
                    case.problems.append("attach wrote nothing: " + said)
                    continue
                case.found("worker", ranks(planted("visits.py"), out))
            digests.append(load(port, WARM + MORE, WARM))
            results.append((digests, program.end(signal.SIGTERM)))
    case.same("answers, code", *results)


def live(case, python):
    """Without a terminal, `live` says a block of lines each ten seconds, and one at the end."""
    port, command = gunicorn(python, "flask_leak:app")
    with tempfile.TemporaryDirectory() as folder:
        with Program(HEAPPROF, folder, command, []) as program:
            program.listening(port)
            pid = program.workers(2)[0]
            words = [HEAPPROF, "live", str(pid)]
            watching = subprocess.Popen(words, stdout=-1, stderr=-2, text=True)
            load(port, 0, WARM + MORE)
            time.sleep(11)
            program.end(signal.SIGTERM)
            said = watching.communicate(timeout=30)[0]
        names = []
        for block in re.split(r"^\S+ +pid .*\n", said, flags=re.M)[1:]:
            words = [line.split() for line in block.splitlines()]
            is_row = re.compile(r"[\d.]+[KMG]?i?B$").match
            names.append([w[-1] for w in words if len(w) > 2 and is_row(w[0])])
        places = [b.index("remember") + 1 if "remember" in b else None for b in names]
        case.found("blocks", {"live": min((p for p in places if p), default=None)}, ["live"])


def preload(case, python):
    """What the audit says of the catalogue that the workers only read."""
    import forks

    forks.audit(case, HEAPPROF, *gunicorn(python, "--preload", "preload:app"))


CASES = [flask, django, celery, pool, pandas, asyncio, attach, live, preload]


def python_with(folder, packages):
    """A venv's python, and which of the packages it lacks."""
    python = folder + "/bin/python"
    if not os.path.exists(python):
        base = os.environ.get("LEAKS_PYTHON", sys.executable)
        subprocess.run([base, "-m", "venv", folder], check=True)
    missing = {}
    for package in packages:
        if subprocess.run([python, "-c", "import " + package], capture_output=True).returncode:
            words = [python, "-m", "pip", "install", "-q", package]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                missing[package] = done.stderr.strip().splitlines()[-1]
    return python, missing


def main():
    if not sys.argv[1:]:
        sys.exit(__doc__)
    wanted = sys.argv[2:] or [case.__name__ for case in CASES]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        venv = os.environ.get("LEAKS_VENV", folder + "/venv")
        packages = sorted({p for name in wanted for p in PACKAGES[name]})
        python, missing = python_with(venv, packages)
        for run in (c for c in CASES if c.__name__ in wanted):
            lacks = [p for p in PACKAGES[run.__name__] if p in missing]
            if lacks:
                print("%s: SKIPPED: %s" % (run.__name__, missing[lacks[0]]), flush=True)
                continue
            case = Case(run.__name__)
            try:
                run(case, python)
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                case.problems.append(repr(error))
            verdict = "FAILED: " + "; ".join(case.problems) if case.problems else "ok"
            print("%s: %s: %s" % (case.name, "; ".join(case.places), verdict), flush=True)
            failed = failed or bool(case.problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()

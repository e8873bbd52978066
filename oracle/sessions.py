#!/usr/bin/env python3
"""Types the same scripts into the interactive shells of the real pprof and of `heapprof pprof`, and
compares what they do, byte for byte.

usage: sessions.py --pprof PATH --heapprof PATH [--only REGEX] [--seed N] [--sessions N] [--random
N] [--stderr] [--coverage] PROFILE... A session is a script on stdin (a pipe), flags, and profiles;
session_scripts.py makes them. --random N adds N generated profiles. stdout, the files that were
written and the exit code are compared. With --stderr, stderr is compared, too: pprof writes its
greeting, help, options and errors there, which heapprof says in its own words. In some sessions
stderr goes where stdout goes, so that the order of both is compared; these count as stderr. Each
run has an empty home and a fresh working folder. Programs that show images are fake: they log what
they were asked to show. The sessions use each word of pprof's help at least five times: each
command of its shell, each option as an assignment, as a topic of help and as a flag. --coverage
prints how often, and runs nothing. Prints each mismatch with the script and the first differing
line, then the closing line `N passed, N failed`. Exit 1 on any failure, and if 400 sessions or more
leave a word of help out. TZ is UTC and -symbolize=none throughout, so both sides read nothing but
the profile.
"""

import argparse, itertools, os, random, re, shutil, subprocess, sys, tempfile, zlib

from profiles import odd_profile, random_profile
from session_coverage import HelpWords
from session_scripts import sessions

# Differences that are known: of which part of a session, which bytes, and what stands for them.
STATED = [
    # No report has control characters: heapprof writes U+FFFD instead.
    (r"(stdout|file|joined).*", rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd".encode()),
    # Graphviz writes the time of the run into a PDF.
    (r"file .*", rb"/CreationDate \(D:\d+Z\)", b"/CreationDate"),
]
SMALL = 8192  # bytes of a profile whose graph is drawn in an instant
LEAST_USES = 5  # of each word of pprof's help
PROMPT = b"(pprof) "

# A program that logs its name, its arguments, and the content of the file it is to show.
VIEWER = r"""#!/bin/sh
name=${0##*/}
while [ $# -gt 1 ]; do name="$name $1"; shift; done
sum=$(LC_ALL=C SED '/CreationDate/d' "$1" | MD5SUM)
echo "$name ${1##*/} $sum" >>viewed.log
echo "$name shows a file" >&2
"""


class Surroundings:
    """The folders in which both shells run, one after the other, so that they see equal paths."""

    def __init__(self, tmp):
        self.work, self.home = os.path.join(tmp, "work"), os.path.join(tmp, "home")
        self.source, self.bin = os.path.join(tmp, "source"), os.path.join(tmp, "bin")
        for i, j in itertools.product(range(3), range(7)):
            os.makedirs(f"{self.source}/dir{i}", exist_ok=True)
            with open(f"{self.source}/dir{i}/file{j}.cc", "w") as f:
                f.writelines(f"\tline {n} of file {j}\n" for n in range(1, 300 + 10 * j))
        self.viewer = VIEWER.replace("SED", shutil.which("sed"))
        self.viewer = self.viewer.replace("MD5SUM", shutil.which("md5sum"))

    def prepare(self, session):
        """Makes the folders anew, and returns the environment."""
        for folder in (self.work, self.home, self.bin):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        os.makedirs(f"{self.work}/dir")
        os.makedirs(f"{self.work}/tmp")
        os.symlink(self.source, f"{self.work}/source")
        with open(f"{self.work}/old.txt", "w") as f:
            f.write("old\n" * 2000)
        env = dict(os.environ, TZ="UTC", TERM="dumb", NO_COLOR="1", HOME=self.home)
        env.update(TMPDIR=f"{self.work}/tmp", PPROF_TMPDIR=f"{self.work}/tmp")
        for name in ("BROWSER", "DISPLAY", "PPROF_TOOLS", "PPROF_BINARY_PATH", "XDG_CONFIG_HOME"):
            env.pop(name, None)
        if session.viewers is not None:
            env["PATH"] = self.bin
            if session.dot:
                os.symlink(shutil.which("dot"), f"{self.bin}/dot")
            for name in session.viewers.split():
                with open(f"{self.bin}/{name}", "w") as f:
                    f.write(self.viewer)
                os.chmod(f"{self.bin}/{name}", 0o755)
        if session.browser:
            env["BROWSER"] = session.browser
        return env

    def run(self, program, session):
        """What a shell did: the parts that are compared first, and those of stderr, by name."""
        env = self.prepare(session)
        cmd = [*program, "-symbolize=none", *session.flags, *session.sources]
        try:
            p = subprocess.run(
                cmd,
                cwd=self.work,
                env=env,
                input=session.script,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if session.joined else subprocess.PIPE,
                timeout=120,
            )
            code, stdout, stderr = p.returncode, p.stdout, p.stderr or b""
        except subprocess.TimeoutExpired as e:
            code, stdout, stderr = "none after 120 s", e.stdout or b"", e.stderr or b""
        first = {"exit code": str(code).encode()}
        lines = dict(enumerate(session.script.split(b"\n"), 1))
        blocks = {}
        for i, block in enumerate(stdout.split(PROMPT)):
            part = f"stdout of line {i}, {shown(lines.get(i, b''))}"
            blocks[part] = stated(part, inflated(block))
        if session.joined:
            return first | self.files(), {f"joined {k}": v for k, v in blocks.items()}
        notes = {f"stderr line {i + 1}": v for i, v in enumerate(stderr.split(b"\n"))}
        return first | blocks | self.files(), notes

    def files(self):
        """The files of the working folder, with their content."""
        found = {}
        for folder, _, names in os.walk(os.fsencode(self.work)):
            for name in names:
                path = os.path.join(folder, name)
                part = "file " + shown(os.path.relpath(path, os.fsencode(self.work)))
                with open(path, "rb") as f:
                    found[part] = stated(part, inflated(f.read()))
        return found


def inflated(data):
    """The content of gzip data, which compressors pack differently; other data as it is."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return zlib.decompress(data, wbits=31)
    except zlib.error:
        return data


def stated(part, data):
    for of, known, instead in STATED:
        if re.fullmatch(of, part):
            data = re.sub(known, instead, data)
    return data


def shown(data):
    text = repr(data.decode("utf-8", "backslashreplace"))
    return text if len(text) <= 90 else f"{text[:60]}… ({len(data)} bytes)"


def judge(want, got, again):
    """Which parts are wrong, and which can't be judged, because pprof's own change from run to run.

    `again` has functions that return what pprof did in more and more runs: it breaks some ties by
    the order of a map. No tie makes a part come or go, so a missing part needs no other run.
    """
    parts, seen = [part for part in want | got if want.get(part) != got.get(part)], [want]
    missing = [part for part in parts if part not in want or part not in got]
    if missing:
        return missing, []
    for more in again if parts else []:
        seen = [want, *more()]
        parts = [p for p in parts if got.get(p) not in [s.get(p) for s in seen]]
        if all(any(s.get(p) != want.get(p) for s in seen) for p in parts):
            break
    wrong = [p for p in parts if all(s.get(p) == want.get(p) for s in seen)]
    return wrong, [p for p in parts if p not in wrong]


def report(kind, session, wrong, want, got):
    """Prints the first part that is wrong, and its first differing line."""
    part = wrong[0]
    w, g = ((side.get(part) or b"").split(b"\n") for side in (want, got))
    at = next((i for i, (x, y) in enumerate(itertools.zip_longest(w, g)) if x != y), 0)
    print(
        f"MISMATCH {session.name}, {kind}: {' '.join(session.flags)}"
        f" {' '.join(os.path.basename(s) for s in session.sources)}"
    )
    for number, line in enumerate(session.script.split(b"\n"), 1):
        print(f"  {number:3}  {shown(line)}")
    print(f"  {part}: difference in line {at + 1}, and in {len(wrong) - 1} parts more")
    for name, side, lines in (("pprof", want, w), ("heapprof", got, g)):
        line = shown(lines[at]) if at < len(lines) else "<end>"
        print(f"    {name:<8} {line if part in side else '<nothing>'}")


def sample_types(pprof, path):
    """The sample types of a profile, as pprof lists them when it is asked for another one."""
    cmd = [pprof, "-symbolize=none", "-top", "-sample_index=no such type", path]
    said = subprocess.run(cmd, capture_output=True).stderr.decode(errors="replace")
    types = re.search(r"must be one of: \[(.*)\]", said)
    return types[1].split() if types else []


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pprof", required=True)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default=".")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--sessions", type=int, default=400)
    ap.add_argument("--random", type=int, default=50)
    ap.add_argument("--stderr", action="store_true", help="compare messages, too")
    ap.add_argument("--coverage", action="store_true", help="only count the words of help")
    ap.add_argument("profiles", nargs="*")
    a = ap.parse_args()
    pprof, heapprof = (
        shutil.which(p) or sys.exit(f"{p}: no such program") for p in (a.pprof, a.heapprof)
    )
    pprof, heapprof = [os.path.abspath(pprof)], [os.path.abspath(heapprof), "pprof"]
    tmp = tempfile.mkdtemp()
    rng = random.Random(a.seed)
    files = [os.path.abspath(p) for p in a.profiles]
    for i in range(a.random):
        files.append(os.path.join(tmp, f"random-{a.seed}-{i}.pb.gz"))
        random_profile(files[-1], rng)
    odd = os.path.join(tmp, "odd.pb.gz")
    odd_profile(odd)
    files.append(odd)
    profiles = {f: sample_types(pprof[0], f) for f in files}
    small = [f for f in files if os.path.getsize(f) < SMALL]
    made = sessions(profiles, small, odd, a.seed, a.sessions)
    uses = HelpWords(pprof[0], files[0], dict(os.environ, TERM="dumb", HOME=tmp)).uses(made)
    rare = [use for use, times in uses.items() if times < LEAST_USES]
    if a.coverage:
        print("\n".join(f"{times:6} {use}" for use, times in sorted(uses.items())))
    if rare:
        print(f"less than {LEAST_USES} times: {', '.join(rare)}")
    left_out = bool(rare) and a.sessions >= ap.get_default("sessions")
    if a.coverage:
        shutil.rmtree(tmp)
        sys.exit(left_out)
    surroundings = Surroundings(tmp)
    good, bad, unstable = [0, 0], [0, 0], 0
    for session in made:
        name = f"{session.name}: {shown(session.script)}"
        if not re.search(a.only, name):
            continue
        want, got = (surroundings.run(p, session) for p in (pprof, heapprof))
        runs = []

        def more(upto):
            while len(runs) < upto:
                runs.append(surroundings.run(pprof, session))
            return runs

        # Each viewer costs pprof a second. Of hundreds of ties, some come out in the same way six
        # times.
        limits = (2,) if session.viewers is not None else (5, 35)
        for kind, where in enumerate(("what it writes", "stderr")[: 1 + a.stderr]):
            again = [lambda n=n: [run[kind] for run in more(n)] for n in limits]
            wrong, open_parts = judge(want[kind], got[kind], again)
            bad[kind] += bool(wrong)
            good[kind] += not wrong and not open_parts
            unstable += not wrong and bool(open_parts)
            if wrong:
                report(where, session, wrong, want[kind], got[kind])
    shutil.rmtree(tmp)
    print(f"{unstable} left out: pprof's own output changes from run to run there")
    if a.stderr:
        print(f"stderr: {good[1]} passed, {bad[1]} failed")
    print(f"{good[0]} passed, {bad[0]} failed")
    sys.exit(sum(bad) > 0 or left_out)


main()

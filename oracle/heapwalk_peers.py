#!/usr/bin/env python3
"""Compares heapwalk with valgrind and LeakSanitizer on real programs, in which known blocks are
planted (heapwalk_planted.c). Their heaps are larger and odder than those of small test programs.

usage: python3 oracle/heapwalk_peers.py HEAPPROF [PROGRAM...]

Each program runs three times, up to the same place: heapwalk looks at it there from outside,
valgrind and LeakSanitizer (gcc's) check there for leaks. The numbers of blocks must be equal: each
state's with valgrind's, and all that leaked with LeakSanitizer's. So must be the sizes, block by
block: heapwalk has what the program may use, which follows from what it asked for.

Exit code 0: all is equal, or differs as EXPLAINED says. A program that is not installed is named
and left out.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STATES = ["leaked", "leaked, indirectly", "maybe"]
WORDS = {"definitely lost": 0, "indirectly lost": 1, "possibly lost": 2}
PATH = "/usr/bin:/bin"

# What heapwalk_planted.c plants: the sizes that it asks for, by state.
PLANTED = [
    [1000] * 5 + [300000, 640, 1234, 777, 0, 56, 72, 1100, 104],
    [56] * 19 + [72] * 2 + [1200],
    [500, 600],
]

SQL = """
create table t (a integer primary key, b text, c blob);
create index i on t (b);
with recursive n (x) as (select 1 union all select x + 1 from n where x < 3000)
insert into t select x, 'row ' || x, randomblob(x % 90) from n;
create view v as select b, count(*) as n from t group by substr(b, 1, 5);
select count(*), sum(length(c)) from t where b like 'row 1%';
select * from v order by n desc limit 3;
begin;
delete from t where a % 3 = 0;
select json_group_array(b) from (select b from t limit 5);
.exit 3
"""

PERL = r"""
use strict; use POSIX (); use Data::Dumper; use List::Util qw(sum);
package Thing { sub new { my ($c, %f) = @_; bless {%f, tags => [1 .. 5]}, $c } sub n { $_[0]{n} } }
my @things = map { Thing->new(n => $_, name => "thing $_") } 1 .. 400;
my %by = map { $_->{name} => $_ } @things;
my $text = join ',', map { sprintf '%04x', $_->n } @things;
my @words = sort { $b cmp $a } $text =~ /([0-9a-f]{4})/g;
my $ring = {}; $ring->{self} = $ring; undef $ring;
my $code = eval 'sub { my $x = shift; return sub { $x++ } }';
my @closures = map { $code->($_) } 1 .. 9;
splice @words, 3, 50; $text =~ s/^.{100}//; local $Data::Dumper::Indent = 1;
my $dumped = Dumper([@things[0 .. 9]]);
print sum(map { $_->n } @things), ' ', length $dumped, "\n";
POSIX::_exit(0);
"""

PYTHON = r"""
import json, os, re
rows = [{"n": n, "all": list(range(n)), "text": "x" * n} for n in range(300)]
again = json.loads(json.dumps(rows))
found = re.findall(r"(\d+), (\d+)", json.dumps(rows))
class Node:
    def __init__(self, n): self.n, self.next, self.parts = n, None, {n: str(n)}
nodes = [Node(n) for n in range(500)]
for one, two in zip(nodes, nodes[1:]): one.next = two
del nodes[100:400]
print(len(again), len(found), len(nodes), flush=True)
os._exit(0)
"""

BASH = r"""
declare -A by; declare -a list
for ((i = 0; i < 300; i++)); do by[key$i]="value $i"; list+=("${by[key$i]}"); done
f() { local x=$1; [[ $x =~ ^value\ ([0-9]+)$ ]] && echo "${BASH_REMATCH[1]}"; }
g() { case $1 in *7) echo seven;; *) f "$1";; esac; }
for x in "${list[@]:0:40}"; do y=$(g "$x"); z=${y//1/one}; done
unset 'list[3]' 'by[key9]'; trap 'echo no' USR1; alias ll='ls -l'; export SOME=$z
read -r a b <<< "${list[*]}"; printf '%s\n' "${#b}" "$z"
exit 0
"""

AWK = r"""
BEGIN { for (i = 0; i < 2000; i++) { a["key " i] = i * 1.5; b[i % 50] = b[i % 50] " " i }
  n = split(b[7], c, " "); for (k in a) if (k ~ /9$/) delete a[k]
  s = sprintf("%d %s", n, substr(b[3], 1, 20)); gsub(/[0-9]/, "<&>", s); print s
  print length(b[9]) }
{ count[$1]++; line[NR] = $0 }
END { for (w in count) t += count[w]; print t, NR; exit 0 }
"""

JQ = r"""
[range(400) | {n: ., text: ("x" * . // ""), all: [range(. % 9)]}]
  | map(select(.n % 3 == 0)) | group_by(.n % 7) | map({k: (.[0].n), s: (map(.n) | add)})
  | (map(.s) | add), (tojson | test("[0-9]+")), length
"""


def xml(here):
    rows = "".join(f'<row n="{n}"><a>{n * n}</a><!-- {n} --><b x:t="y">t &amp; {n}</b></row>'
                   for n in range(500))
    (here / "rows.xml").write_text(
        f'<?xml version="1.0"?><!DOCTYPE rows [<!ENTITY e "text"><!ELEMENT rows ANY>]>'
        f'<rows xmlns:x="urn:x">&e;{rows}</rows>')
    return ["--xpath", "sum(//row/a) + count(//@n)", "rows.xml"]


def repository(here):
    def git(*words):
        subprocess.run(["git", *words], cwd=here, env=environment(here), check=True,
                       stdout=subprocess.DEVNULL)
    git("init", "-q", "-b", "main", ".")
    for n in range(30):
        (here / f"file{n % 9}").write_text("".join(f"line {i * n}\n" for i in range(60)))
        git("add", "-A")
        git("-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", f"no. {n}")
        if n == 20:
            git("gc", "-q")
    (here / "file3").write_text("changed\n")
    (here / "new").write_text("new\n")


def git_log(here):
    repository(here)
    return ["--no-pager", "log", "--stat", "--graph", "--all"]


def git_status(here):
    repository(here)
    return ["status", "--branch"]


def script(text, *before):
    def words(here):
        (here / "script").write_text(text)
        (here / "words").write_text("".join(f"{n % 17} some {n}\n" for n in range(900)))
        return [*before, "script"]
    return words


# A name, the program, its package, how its words are made, the function at which it is looked at
# (otherwise its end), and variables.
PROGRAMS = {
    "true": ("true", "coreutils", lambda here: [], None, {}),
    "sqlite3": ("sqlite3", "sqlite3", lambda here: ["x.db", "-init", script(SQL)(here)[-1]], None,
                {}),
    "git log": ("git", "git", git_log, None, {}),
    "git status": ("git", "git", git_status, None, {}),
    "xmllint": ("xmllint", "libxml2-utils", xml, "xmlFreeDoc", {}),
    "perl": ("perl", "perl", script(PERL), None, {}),
    "python3": ("python3", "python3", script(PYTHON, "-I"), None, {}),
    "python3, malloc": ("python3", "python3", script(PYTHON), None, {"PYTHONMALLOC": "malloc"}),
    "bash": ("bash", "bash", script(BASH, "--norc"), None, {}),
    "gawk": ("gawk", "gawk", lambda here: [*script(AWK, "-f")(here), "words"], None, {}),
    "mawk": ("mawk", "mawk", lambda here: [*script(AWK, "-f")(here), "words"], None, {}),
    "jq": ("jq", "jq", script(JQ, "-n", "-f"), "jq_teardown", {}),
}

# Fills memory that malloc gives and takes, so that no old pointers are left in it. (The caches of
# threads would leave it as it is.)
WIPED = {"GLIBC_TUNABLES": "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"}

EXPLAINED = {
    "old": "Without GLIBC_TUNABLES, old pointers are left in memory that was used again and not "
           "written to. valgrind knows that, and nobody else can. Checked: the column 'wiped', "
           "where malloc fills what it gives and takes, is what is compared with the others.",
    "reuse": "The program keeps old pointers in memory of its own. Where they lead depends on when "
             "freed memory is used again, which valgrind delays. Checked: valgrind's own number "
             "is another one with --freelist-vol=0, and heapwalk's is within a quarter of it.",
    "low": "valgrind's heap lies at low addresses, so that numbers and texts look like pointers to "
           "it. Checked: the block is planted, and heapwalk finds nothing that points to it.",
    "slack": "malloc gave a block more bytes than were asked for, and an old pointer is in these, "
             "or it left a link of its own in the middle of a block. Checked: every word that "
             "points to the block is in the last 8 bytes of another one, or points to the block's "
             "last 8 bytes, where the head of the next one is.",
    "lsan": "Below LeakSanitizer, too, old pointers are left. Checked: only planted blocks are "
            "missing, and for each of them its log (log_pointers) has a word that points there.",
}


def environment(here, **more):
    return {"PATH": PATH, "LC_ALL": "C", "HOME": str(here), "TERM": "dumb",
            "PERL_HASH_SEED": "0", "PYTHONHASHSEED": "0", **more}


def usable(size, is_mapped):
    """How many bytes glibc gives for so many that are asked for."""
    if is_mapped:
        return -(-(size + 16) // 4096) * 4096 - 16
    return max(24, -(-(size + 8) // 16) * 16 - 8)


def is_slack(place):
    """Whether a word is in the last 8 bytes of a block, which nobody may have asked for."""
    found = re.match(r"\+(\d+) of the block \S+, (\d+) B", place)
    return bool(found) and int(found[1]) == int(found[2]) - 8


class Run:
    """One program, at its place."""

    def __init__(self, name, libraries, folder):
        program, _, self.words, at, self.variables = PROGRAMS[name]
        self.program = str(pathlib.Path(shutil.which(program, path=PATH)).resolve())
        self.library = libraries(at)
        self.folder = folder

    def prepared(self, peer, preload, **more):
        here = pathlib.Path(tempfile.mkdtemp(prefix=peer, dir=self.folder))
        words = [self.program, *self.words(here)]
        return here, words, environment(
            here, LD_PRELOAD=":".join([*preload, self.library]), HEAPWALK_READY=str(here / "ready"),
            HEAPWALK_PROGRAM=self.program, **self.variables, **more)

    def heapwalk(self, heapprof, is_wiped):
        """The sizes of each state's blocks, and of those to which only slack points."""
        here, command, variables = self.prepared("heapwalk", [], **(WIPED if is_wiped else {}))
        with open(here / "out", "w") as out:
            child = subprocess.Popen(command, cwd=here, env=variables, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=subprocess.STDOUT)
        try:
            until = time.monotonic() + 60
            while not (here / "ready").exists():
                if child.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{command}: it did not come to its place: "
                                     + (here / "out").read_text()[-500:])
                time.sleep(0.02)
            time.sleep(0.05)
            found = self.ask(heapprof, child.pid)
            if found["unwalked"]:
                raise SystemExit(f"{command}: {found['unwalked']} bytes were not walked")
            walked, slack = [[], [], []], []
            for group in found["groups"]:
                size = group["bytes"] // group["blocks"]
                walked[STATES.index(group["state"])] += [size] * group["blocks"]
                if group["blocks"] == 1 and group["state"] == "maybe":
                    who = self.ask(heapprof, child.pid, "--who", hex(group["example"]))
                    if all(word["offset"] == size - 8 or is_slack(word["in"])
                           for word in who["referrers"]):
                        slack.append(size)
            return walked, slack
        finally:
            child.kill()
            child.wait()

    @staticmethod
    def ask(heapprof, pid, *words):
        done = subprocess.run([heapprof, "heapwalk", f"pid:{pid}", "-f", "json", *words],
                              capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"heapwalk: {done.stderr}")
        return json.loads(done.stdout)

    def valgrind(self, *options):
        """The sizes of each state's blocks."""
        here, command, variables = self.prepared("valgrind", [])
        log = here / "log"
        with open(here / "out", "w") as out:
            child = subprocess.Popen(
                ["valgrind", "--leak-check=full", "--show-leak-kinds=all", "--num-callers=1",
                 "--leak-resolution=high", "--default-suppressions=no", *options,
                 f"--log-file={log}.%p", *command],
                cwd=here, env=variables, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT)
            child.wait(timeout=300)
        text = pathlib.Path(f"{log}.{child.pid}").read_text(errors="replace")
        text = re.sub(r"^==\d+== ?", "", text, flags=re.M)
        totals = [0, 0, 0]
        for state, number in re.findall(
                r"^ *((?:definit|indirect|possib)e?ly lost): .* bytes in ([\d,]+) blocks",
                text.split("LEAK SUMMARY:")[1], re.M)[:3]:
            totals[WORDS[state]] = int(number.replace(",", ""))
        blocks = [[], [], []]
        record = re.compile(
            r"^[\d,]+ (?:\(.*?\) )?bytes in [\d,]+ blocks are ([a-z]+ [a-z]+) in loss record.*\n"
            r"(?: +(?:at|by) .*\n)*((?: *0x[0-9A-F]+\[\d+\].*\n)+)", re.M)
        for state, listed in record.findall(text):
            if state in WORDS:
                sizes = re.findall(r"^0x[0-9A-F]+\[(\d+)\]", listed, re.M)
                blocks[WORDS[state]] += map(int, sizes)
        if [len(some) for some in blocks] != totals:
            raise SystemExit(f"{command}: valgrind's list is not what it sums up: {totals}, "
                             f"{[len(some) for some in blocks]}")
        return blocks

    def sanitizer(self, library):
        """The sizes of what has leaked, and of all blocks that something points to."""
        here, command, variables = self.prepared("sanitizer", [library])
        variables["LSAN_OPTIONS"] = (f"leak_check_at_exit=0:report_objects=1:log_pointers=1:"
                                     f"max_leaks=0:log_path={here}/log")
        with open(here / "out", "w") as out:
            child = subprocess.Popen(command, cwd=here, env=variables, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=subprocess.STDOUT)
            child.wait(timeout=300)
        report = here / f"log.{child.pid}"
        text = report.read_text(errors="replace") if report.exists() else ""
        found = re.search(r" leaked in (\d+) allocation", text)
        sizes = [int(size) for size in re.findall(r"^0x[0-9a-f]+ \((\d+) bytes\)", text, re.M)]
        if not found or int(found[1]) != len(sizes):
            raise SystemExit(f"{command}: LeakSanitizer's list is not what it sums up: "
                             f"{text[-300:]}")
        pointed = re.findall(r"pointing into chunk .* of size (\d+)", text)
        return sizes, {int(size) for size in pointed}


def paired(walked, asked):
    """Takes what is equal out of both: what is left are sizes that one of them lacks."""
    left, lacks = collections.Counter(walked), sorted(asked)
    # A chunk may be larger by what is too little for a chunk of its own: 16 bytes, and 32 where it
    # is aligned.
    for more in (0, 16, 32):
        rest = []
        for size in lacks:
            fits = [usable(size, False) + more, usable(size, True)]
            fit = next((fit for fit in fits if left[fit]), None)
            if fit is None:
                rest.append(size)
            else:
                left[fit] -= 1
        lacks = rest
    return sorted(left.elements()), lacks


def compare(run, heapprof, sanitizer):
    """What each of them found, what differs, and which explanations were needed."""
    plain, _ = run.heapwalk(heapprof, False)
    walked, slack = run.heapwalk(heapprof, True)
    blocks = run.valgrind()
    leaked, pointed = run.sanitizer(sanitizer)
    counts = [[len(some) for some in one] for one in (plain, walked, blocks)]
    differs, needed = [], []
    if counts[0] != counts[1]:
        needed.append("old")
    # Blocks that heapwalk has in another state than valgrind, because of slack.
    _, lost = paired(walked[0], blocks[0])
    moved = [size for size in slack if size in [usable(one, False) for one in lost]]
    # What heapwalk says of planted blocks.
    for number, state in enumerate(STATES):
        _, lacks = paired(walked[number], PLANTED[number])
        lacks = [size for size in lacks if number or usable(size, False) not in moved]
        # Old pointers may lead to two of them where nothing is wiped.
        _, lacks_plain = paired(plain[number], PLANTED[number])
        if len(lacks_plain) > 2:
            differs.append(f"heapwalk lacks what is planted: {state}, not wiped: {lacks_plain}")
        if lacks:
            differs.append(f"heapwalk lacks what is planted: {state}: {lacks}")
    if moved:
        needed.append("slack")
    for number, state in enumerate(STATES):
        ours, theirs = paired(walked[number], blocks[number])
        if number == 0:
            theirs = [size for size in theirs if usable(size, False) not in moved]
            if ours and all(usable(size, size > 1 << 17) in ours for size in PLANTED[0]
                            if size not in blocks[0]) and len(ours) == sum(
                                (collections.Counter(PLANTED[0])
                                 - collections.Counter(blocks[0])).values()):
                needed.append("low")
                ours = []
        if number == 2:
            ours = [size for size in ours if size not in moved]
            if ours or theirs:
                again = run.valgrind("--freelist-vol=0")
                is_near = abs(len(walked[2]) - len(blocks[2])) <= len(blocks[2]) / 4
                if len(again[2]) != len(blocks[2]) and is_near:
                    needed.append("reuse")
                    ours = theirs = []
        if ours or theirs:
            differs.append(f"{state}: heapwalk alone has {ours[:20]}, valgrind {theirs[:20]}")
    ours, theirs = paired(walked[0] + walked[1], leaked)
    theirs = [size for size in theirs if usable(size, False) not in moved]
    # It gives one byte where none is asked for.
    planted = [max(size, 1) for size in PLANTED[0] + PLANTED[1]]
    lacks = collections.Counter(planted) - collections.Counter(leaked)
    if ours and len(ours) == lacks.total() and all(size in pointed for size in lacks):
        needed.append("lsan")
        ours = []
    if ours or theirs:
        differs.append(f"heapwalk alone has {ours[:20]} that leaked, LeakSanitizer {theirs[:20]}")
    return counts, len(leaked), differs, needed


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    heapprof = str(pathlib.Path(sys.argv[1]).resolve())
    names = sys.argv[2:] or list(PROGRAMS)
    if unknown := [name for name in names if name not in PROGRAMS]:
        raise SystemExit(f"no such program: {unknown}; there are: {', '.join(PROGRAMS)}")
    needed = {"gcc": "gcc", "valgrind": "valgrind", "git": "git"}
    if lacks := [package for tool, package in needed.items() if not shutil.which(tool)]:
        raise SystemExit(f"install {' '.join(lacks)}")
    sanitizer = subprocess.run(["gcc", "-print-file-name=liblsan.so"], capture_output=True,
                               text=True, check=True).stdout.strip()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        def libraries(at):
            library = pathlib.Path(folder) / f"planted-{at}.so"
            if not library.exists():
                subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", library,
                                *([f"-DAT={at}"] if at else []), HERE / "heapwalk_planted.c"],
                               check=True)
            return str(library)

        heads = ["heapwalk L/I/M", "wiped L/I/M", "valgrind D/I/P"]
        print(f"{'program':16}", *(f"{head:>15}" for head in heads), f"{'LSan':>5}")
        explained = set()
        for name in names:
            program, package, *_ = PROGRAMS[name]
            if not shutil.which(program, path=PATH):
                print(f"{name:16} LEFT OUT: install {package}")
                continue
            # Addresses are others each time, and a number may look like one by chance: what
            # differs has to do so again.
            for _ in range(3):
                with tempfile.TemporaryDirectory(dir=folder) as here:
                    counts, total, differs, needed = compare(
                        Run(name, libraries, pathlib.Path(here)), heapprof, sanitizer)
                if not differs:
                    break
            rows = ["/".join(map(str, one)) for one in counts]
            said = "explained: " + ", ".join(needed) if needed else "equal"
            said = "DIFFERS" if differs else said
            print(f"{name:16}", *(f"{row:>15}" for row in rows), f"{total:>5}  {said}", flush=True)
            for one in differs:
                print(f"    {one}", flush=True)
            explained.update(needed)
            wrong += bool(differs)
    for name in sorted(explained):
        print(f"\n{name}: {EXPLAINED[name]}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

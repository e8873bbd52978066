#!/usr/bin/env python3
"""Holds `heapprof watch` and `heapprof compare-allocators` against the kernel's own counts, and
prints a Markdown table with a verdict for each measurement.

usage: watching.py --heapprof PATH [--only watch,marks,until,compare,same] [--folder DIR]

  watch    100 perls, children of one, are watched for 30 seconds: what watching costs, and whether
           every row is in the database that should be
  marks    a perl program asks Memory::Usage and sets a mark at the same 20 points: both must say
           the same, to the page
  until    a program grows by 1 MiB every 100 ms and notes when it crosses a limit: --then must run
           once, within one look
  compare  five programs with four allocators: the figures beside those of GNU time and of perf
           stat, which run the same command with the same LD_PRELOAD; each sentence is worked out
           again from the runs
  same     the same allocator under two names, ten times: a difference is told wrongly how often?

Needs gcc, perl with its headers, GNU time, perf, redis, and Debian's libmemory-usage-perl,
libjemalloc2, libtcmalloc-minimal4 and libmimalloc2.0. It takes about five minutes on two cores, and
3 GiB of memory. Other work on the machine makes times differ: a median of the CPU's time that is
off is measured once more before it counts, and the time on the clock is off only if the runs of
heapprof and of GNU time do not overlap. The exit code is 1 if something is not as it
should be. Everything is written to the folder, which must not be there before and is removed.
"""

import argparse, collections, glob, itertools, json, os, re, shutil, signal, sqlite3
import statistics, subprocess, sys, tempfile, time

PROCESSES, SECONDS, MOST_MB = 100, 30, 50
LIMIT_MIB, INTERVAL_MS, SLACK_MS, ROUNDS = 30, 200, 50, 6
ALLOCATORS = ("glibc", "jemalloc", "tcmalloc", "mimalloc")
RUNS, OTHER_RUNS, TIMES = 7, 5, 10
MIB = 1 << 20

# --- the programs ---

# The children end when the pipe on their stdin does. Every tenth one works a little.
FAMILY = r"""use strict; use warnings;
$| = 1;
my ($count, $most) = @ARGV;
for my $number (1 .. $count) {
  next if fork;
  my ($x, $piece) = ('', 'x' x 1048576);
  $x .= $piece for 1 .. 1 + $number * 7 % ($most - 6);
  print "ready\n";
  my $ready = '';
  vec($ready, fileno(STDIN), 1) = 1;
  my $pause = $number % 10 ? undef : 0.1;
  my $sum = 0;
  until (select(my $in = $ready, undef, undef, $pause)) { $sum += $_ for 1 .. 10000 }
  exit;
}
1 while wait > 0;
"""

# The mark is set first, because Memory::Usage keeps what it has read, and the heap may grow by it.
MARKED = r"""use strict; use warnings;
use Memory::Usage; use Devel::HeapProf;
my ($usage, $n) = (Memory::Usage->new, 0);
sub point { my $text = sprintf '%02d %s', ++$n, shift; Devel::HeapProf::mark($text);
  $usage->record($text) }
my ($piece, %kept) = ('x');
sub text { my $size = shift; my $text = ''; vec($text, $size - 1, 8) = 1; return $text }
point('begun');
$kept{small} = [map { $_ } 1 .. 1000]; point('1000 numbers');
$kept{numbers} = [1 .. 200000]; point('200,000 numbers');
$kept{strings} = [map { "string $_" } 1 .. 50000]; point('50,000 strings');
$kept{large} = text(10_000_000); point('10 MB');
undef $kept{large}; delete $kept{large}; point('and freed');
$kept{hash} = {map { $_ => 1 } 1 .. 30000}; point('a hash');
delete $kept{strings}; point('the strings freed');
require POSIX; point('POSIX loaded');
require Socket; point('Socket loaded');
require Data::Dumper; point('Data::Dumper loaded');
$kept{"t$_"} = text(100_000) for 1 .. 50; point('50 of 100 kB');
delete $kept{"t$_"} for 1 .. 25; point('half of them freed');
$kept{"u$_"} = text(1_000_000 + $_ * 5000) for 1 .. 20; point('20 of about 1 MB');
$kept{deep} = do { my $deep = []; $deep = [$deep] for 1 .. 20000; $deep }; point('20,000 deep');
$kept{code} = eval 'sub {' . ('my $x = 1 + $_[0]; ' x 3000) . '}'; point('a long sub');
my $matched = () = ('ab' x 100000) =~ /(a)(b)/g; point('a match');
open my $file, '<', $^X or die; read $file, $kept{file}, 3_000_000; point('a file read');
%kept = (); point('all freed');
$kept{last} = text(33_333_333); point('33 MB');
$usage->dump;
"""

# It notes the time and what it has when it crosses the limit, and goes on for ten steps.
GROWING = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}
int main(int argc, char **argv) {
    long long limit = atoll(argv[1]), size, rss;
    int left = -1;
    (void)argc;
    while (left) {
        struct timespec step = {0, 100000000};
        memset(malloc(1 << 20), 1, 1 << 20);
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%lld %lld", &size, &rss) != 2) return 1;
        fclose(f);
        rss *= sysconf(_SC_PAGESIZE);
        if (left < 0 && rss > limit) {
            FILE *log = fopen(argv[2], "w");
            fprintf(log, "%lld %lld %d\n", now(), rss, (int)getpid());
            fclose(log);
            left = 11;
        }
        if (left > 0) left--;
        nanosleep(&step, 0);
    }
    return 0;
}
"""

CHURN = r"""
#include <stdlib.h>
#include <string.h>
int main(void) {
    enum { SLOTS = 20000 };
    static char *slots[SLOTS];
    unsigned long long seed = 7;
    for (int i = 0; i < 4000000; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned at = (seed >> 33) % SLOTS, size = 16 + (seed >> 50) % 2000;
        free(slots[at]);
        slots[at] = malloc(size);
        slots[at][0] = slots[at][size - 1] = 1;
    }
    return 0;
}
"""

# Of 600,000 small blocks each second one is freed; what comes then fits into no gap.
FRAGMENTING = r"""
#include <stdlib.h>
#include <string.h>
int main(void) {
    enum { SMALL = 600000, LARGE = 200000 };
    static char *small[SMALL], *large[LARGE];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SMALL; i++)
            if (!small[i]) memset(small[i] = malloc(32 + i % 64), 1, 32);
        for (int i = 0; i < SMALL; i += 2) {
            free(small[i]);
            small[i] = 0;
        }
        for (int i = 0; i < LARGE; i++) {
            free(large[i]);
            memset(large[i] = malloc(150 + round * 50 + i % 100), 1, 150);
        }
    }
    return 0;
}
"""

# The server says in the fifo when it is ready, so that nothing needs to ask it again and again.
# It ends after 30 seconds even if all else was killed.
REDIS = """timeout 30 redis-server --port 0 --unixsocket @DIR@/redis.sock --save '' \\
  --appendonly no --dir @DIR@ >@DIR@/redis.fifo &
exec 3<@DIR@/redis.fifo
while read -r line <&3; do case $line in *ccept*connections*) break ;; esac; done
redis-benchmark -s @DIR@/redis.sock -n 20000 -t set,get -q
redis-cli -s @DIR@/redis.sock shutdown nosave
wait
"""

# The shell has less in memory than its child, and that less than heapprof itself.
SMALL_CHILD = """perl -e 'my $x = ""; vec($x, 3000000, 8) = 1; $x = length $x'
true
"""


def generated():
    """A C file of about 3000 lines."""
    lines = ["#include <stdio.h>", "#include <string.h>"]
    for i in range(230):
        lines += [
            f"struct s{i} {{ int a, b[{i % 7 + 1}]; const char *name; double d; }};",
            f"double f{i}(struct s{i} *s, int n, const char *text)", "{",
            f"    double sum = {i}.5; int k;",
            f"    for (k = 0; k < n; k++) {{ s->b[k % {i % 7 + 1}] += k * {i + 3};",
            "        sum += s->d * k; }",
            f'    if (strcmp(text, "name{i}") == 0) s->name = text;',
            f"    switch (n % {i % 5 + 3}) {{",
            f"    case 0: sum += s->a; break; case 1: sum -= {i}; break;",
            f"    default: sum *= strlen(text) + {i};",
            "    }", '    printf("%s %f\\n", s->name, sum);', "    return sum;", "}",
        ]
    return "\n".join(lines) + "\n"


class Folder:
    """Where everything is written."""

    def __init__(self, path):
        self.path = path
        os.makedirs(path)
        os.makedirs(self.at("cache"))
        # The module and the library are built here, and not where root's others are.
        self.env = dict(os.environ, XDG_CACHE_HOME=self.at("cache"), LC_ALL="C.UTF-8")

    def at(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        with open(self.at(name), "w") as f:
            f.write(text)
        return self.at(name)

    def read(self, name):
        with open(self.at(name), errors="replace") as f:
            return f.read()

    def compiled(self, name, source):
        command = ["gcc", "-O2", "-o", self.at(name), self.write(name + ".c", source)]
        subprocess.run(command, check=True)
        return self.at(name)


# --- tables and verdicts ---


class Verdicts:
    """What was found to be off."""

    def __init__(self):
        self.wrong = []

    def __call__(self, is_right, what):
        if not is_right:
            self.wrong.append(what)
        return "ok" if is_right else "OFF"


def title(text):
    print(f"\n## {text}\n")


def head(*columns):
    """The first lines of a table. A column's name that begins with < is aligned to the left."""
    print("| " + " | ".join(name.lstrip("<") for name in columns) + " |")
    print("| " + " | ".join(":---" if name[0] == "<" else "---:" for name in columns) + " |")


def row(*cells):
    cells = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    print("| " + " | ".join(cells) + " |", flush=True)


def measured(command, report, env, **more):
    """Runs a command under GNU time. Returns what that says, and the command's output."""
    words = ["/usr/bin/time", "-v", "-o", report, *command]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, **more)
    with open(report) as f:
        said = dict(line.strip().rsplit(": ", 1) for line in f if ": " in line)
    clock = said["Elapsed (wall clock) time (h:mm:ss or m:ss)"].split(":")
    return done, {
        "cpu": float(said["User time (seconds)"]) + float(said["System time (seconds)"]),
        "wall": sum(float(part) * 60**i for i, part in enumerate(reversed(clock))),
        "peak": int(said["Maximum resident set size (kbytes)"]) * 1024,
        "faults": int(said["Minor (reclaiming a frame) page faults"]),
        "switches": int(said["Voluntary context switches"])
        + int(said["Involuntary context switches"]),
    }


# --- watch ---


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def in_memory(pid):
    """What the kernel says of a process now, in bytes: rss and pss."""
    with open(f"/proc/{pid}/statm") as f:
        rss = int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    with open(f"/proc/{pid}/smaps_rollup") as f:
        pss = next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
    return rss, pss


def watch(heapprof, folder, verdict):
    title(f"watch: {PROCESSES} perls and their parent, every second for {SECONDS} s")
    script = folder.write("family.pl", FAMILY)
    words = ["perl", script, str(PROCESSES), str(MOST_MB)]
    family = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for _ in range(PROCESSES):
            family.stdout.readline()
        db = folder.at("watch.db")
        command = [heapprof, "watch", str(family.pid), "--interval", "1s", "--for", f"{SECONDS}s",
                   "--db", db, "--format", "json"]
        done, said = measured(command, folder.at("time"), folder.env, stdout=subprocess.PIPE)
        now = {pid: in_memory(pid) for pid in [family.pid, *children(family.pid)]}
    finally:
        family.stdin.close()
        family.wait()
    report = json.loads(done.stdout)
    ask = sqlite3.connect(db).execute
    count = len(now)
    rows, times, with_pss = ask(
        "SELECT count(*), count(DISTINCT time_ms), count(pss) FROM watch_moment").fetchone()
    looks = report["looks"]
    # At a process's first look, and then at every tenth one.
    full = sum(look == 1 or (look + process) % 10 == 0
               for look in range(1, looks + 1) for process in range(1, count + 1))
    last = {pid: (rss, pss) for pid, rss, pss in ask(
        "SELECT pid, m.rss, (SELECT pss FROM watch_moment n WHERE n.watch = m.watch AND"
        " n.process = m.process AND pss IS NOT NULL ORDER BY time_ms DESC LIMIT 1)"
        " FROM watch_moment m JOIN watch_process USING (watch, process)"
        " WHERE time_ms = (SELECT max(time_ms) FROM watch_moment)")}
    same_rss = sum(last.get(pid, (0, 0))[0] == rss for pid, (rss, _) in now.items())
    same_pss = sum(abs((last.get(pid, (0, 0))[1] or 0) - pss) <= max(pss / 50, 100 << 10)
                   for pid, (_, pss) in now.items())
    most = max(rss for rss, _ in now.values())
    whole = sum(rss for rss, _ in now.values())
    span = (report["ended_ms"] - report["began_ms"]) / 1000
    own, all_cpu = report["cost_us"] / 1e6, said["cpu"]

    def cost(seconds, of):
        return f"{seconds:.2f} s in {of:.1f} s, {seconds / of:.2%} of a core"

    head("<what", "<found", "<expected", "<verdict")
    row("cost as heapprof says it (cost_us)", cost(own, span), "< 2 %",
        verdict(own / span < 0.02, "watch: cost_us"))
    row("cost of the process by GNU time", cost(all_cpu, said["wall"]), "< 2 %",
        verdict(all_cpu / said["wall"] < 0.02, "watch: the process's cost"))
    row("cost_us beside GNU time", f"{own:.2f} s of {all_cpu:.2f} s", "all but start and report",
        verdict(own <= all_cpu + 0.02 and own >= all_cpu * 0.7 - 0.02, "watch: cost_us is wrong"))
    row("heapprof's own memory", f"{said['peak'] / MIB:.1f} MiB at most", "", "")
    row("what the perls have", f"{most / MIB:.1f} MiB at most, {whole / MIB:,.0f} MiB in all", "",
        "")
    row("processes", count, PROCESSES + 1, verdict(count == PROCESSES + 1, "watch: processes"))
    row("looks", looks, f"{SECONDS} or {SECONDS + 1}",
        verdict(looks in (SECONDS, SECONDS + 1) and times == looks, "watch: looks"))
    row("rows of watch_moment", rows, f"{looks} x {count} = {looks * count:,}",
        verdict(rows == looks * count, "watch: rows"))
    row("of them with pss", with_pss, f"{full:,}", verdict(with_pss == full, "watch: pss"))
    row("last rss = statm afterwards", f"{same_rss} of {count}", count,
        verdict(same_rss >= count - PROCESSES // 10, "watch: rss is not statm's"))
    row("last pss = smaps_rollup afterwards", f"{same_pss} of {count}", "within 2 % or 100 KiB",
        verdict(same_pss == count, "watch: pss is not smaps_rollup's"))


# --- marks ---

FIGURES = ("size", "rss", "shared", "code", "data")  # Memory::Usage's vsz, rss, shared, code, data


def marks(heapprof, folder, verdict):
    title("marks: Memory::Usage and Devel::HeapProf::mark at the same points, KiB")
    others = set(glob.glob("/var/cache/heapprof/*/perl"))
    built = subprocess.run([heapprof, "perl-install"], env=folder.env, check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    module = re.search(r" is in (.*); ", built)[1]
    inside = module.startswith(folder.at("cache")) and not (
        set(glob.glob("/var/cache/heapprof/*/perl")) - others)
    script = folder.write("marked.pl", MARKED)
    db = folder.at("marks.db")
    command = [heapprof, "watch", "--db", db, "--format", "json", "--", "perl", "-I" + module,
               script]
    done = subprocess.run(command, env=folder.env, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = re.compile(r"\s*\d+" + r"\s+(-?\d+) \(\s*-?\d+\)" * 5 + r" (.*)")
    theirs = [line.fullmatch(one) for one in done.stderr.splitlines()]
    theirs = [(one[6], [int(one[i]) for i in range(1, 6)]) for one in theirs if one]
    events = json.loads(done.stdout)["events"]
    ours = [(event["text"], [event["figures"][name] // 1024 for name in FIGURES])
            for event in events if event["kind"] == "mark"]
    page = os.sysconf("SC_PAGESIZE") // 1024
    head("<mark", "vsz", "rss", "shared", "code", "data", "<heapprof's, less", "<verdict")
    found = dict(ours)
    off = collections.Counter()
    for text, figures in theirs:
        less = [a - b for a, b in zip(found.get(text, [0] * 5), figures)]
        off[max(map(abs, less))] += 1
        row(text, *figures, " ".join(f"{one:+d}" if one else "0" for one in less),
            verdict(max(map(abs, less)) <= page, f"marks: {text}"))
    in_order = [text for text, _ in ours] == [text for text, _ in theirs]
    print(f"\n{len(ours)} marks and {len(theirs)} records, in the same order: "
          + verdict(in_order and len(theirs) == 20, "marks: their number or order")
          + f"; to the KiB in {off[0]} of {len(theirs)}. The module was built in the folder alone: "
          + verdict(inside, "marks: the module is somewhere else") + ".")


# --- until and then ---


def until(heapprof, folder, verdict):
    title(f"--until 'rss > {LIMIT_MIB}MiB' --interval {INTERVAL_MS}ms: when --then ran, ms")
    program = folder.compiled("growing", GROWING)
    head("round", "<how", "rss at the crossing, MiB", "<events until, then",
         "looked after the crossing", "file written after it", "looks later", "<verdict")
    for number in range(1, ROUNDS + 1):
        log, db = folder.at(f"crossed{number}"), folder.at(f"until{number}.db")
        fired = folder.at(f"fired{number}")
        own = [program, str(LIMIT_MIB * MIB), log]
        command = [heapprof, "watch", "--until", f"rss > {LIMIT_MIB}MiB", "--interval",
                   f"{INTERVAL_MS}ms", "--then", f"touch {fired}-{{pid}}", "--db", db,
                   "--format", "json"]
        child = None
        if number % 2:
            how, command = "started by it", [*command, "--", *own]
        else:
            child = subprocess.Popen(own, stdin=subprocess.DEVNULL)
            time.sleep(number * 0.037)  # so that looks come at other moments of a step
            how, command = "by its pid", [*command, str(child.pid)]
        try:
            done = subprocess.run(command, env=folder.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        finally:
            if child:
                child.wait()
        crossed, rss, pid = map(int, folder.read(f"crossed{number}").split())
        report = json.loads(done.stdout)
        of = {kind: [event for event in report["events"] if event["kind"] == kind]
              for kind in ("until", "then")}
        files = glob.glob(glob.escape(fired) + "-*")
        once = (files == [f"{fired}-{pid}"] and len(of["until"]) == len(of["then"]) == 1
                and of["then"][0]["text"].endswith("exit status: 0"))
        noted = of["until"][0]["time_ms"] - crossed / 1000 if of["until"] else -1e9
        written = os.stat(files[0]).st_mtime * 1000 - crossed / 1000 if files else -1e9
        later = sum(look["time_ms"] > crossed / 1000 + INTERVAL_MS for look in report["sums"])
        # The file's time is that of the kernel's last tick. The look may see the step's pages a
        # moment before the program has looked itself.
        in_time = (-5 <= noted <= INTERVAL_MS + SLACK_MS
                   and -10 <= written <= INTERVAL_MS + SLACK_MS)
        row(number, how, f"{rss / MIB:.2f}", f"{len(of['until'])}, {len(of['then'])}",
            f"{noted:.0f}", f"{written:.0f}", later,
            verdict(once and in_time and later >= 3 and done.returncode == 0,
                    f"until: round {number}"))


# --- compare-allocators ---


def compared(heapprof, folder, allocators, command, *more):
    words = [heapprof, "compare-allocators", "--allocators", ",".join(allocators), "--runs",
             str(RUNS), "--format", "json", *more, "--", *command]
    done = subprocess.run(words, env=folder.env, check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def environment(folder, library):
    return dict(folder.env, LD_PRELOAD=library) if library else folder.env


def by_time(folder, command, library):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done, said = measured(command, folder.at("time"), environment(folder, library), **quiet)
    assert done.returncode == 0, command
    return said


def by_perf(folder, command, library):
    events = "task-clock,page-faults,context-switches"
    words = ["perf", "stat", "-x", ",", "-e", events, "-o", folder.at("perf"), "--", *command]
    subprocess.run(words, env=environment(folder, library), check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = [line.split(",") for line in folder.read("perf").splitlines() if "," in line]
    found = {cells[2].split(":")[0]: float(cells[0]) for cells in rows}
    return {"cpu": found["task-clock"] / 1000, "faults": found["page-faults"],
            "switches": found["context-switches"]}


def median(runs, name):
    return statistics.median(run[name] for run in runs)


def near(ours, theirs, part, least=0):
    """Whether medians differ by this part of theirs at most, or by less than what counts."""
    return abs(ours - theirs) <= max(part * theirs, least)


def apart(ours, theirs):
    """Whether no value of one is among those of the other. The time on the clock is longer while
    others use the machine, too, so that medians of it need not be near."""
    return max(ours) < min(theirs) or max(theirs) < min(ours)


def same_magnitude(a, b):
    """Whether one is less than ten times the other. Some switches more are of no matter."""
    return abs(a - b) <= 20 or max(a, b) <= 10 * min(a, b)


def of_heapprof(candidate):
    figures = candidate["figures"]
    values = {name: figures[name]["runs"] for name in figures}
    return [{"cpu": (values["user"][i] + values["system"][i]) / 1e6,
             "wall": values["wall"][i] / 1e6, "peak": values["peak_rss"][i],
             "faults": values["minor_faults"][i],
             "switches": values["voluntary"][i] + values["involuntary"][i]}
            for i in range(len(values["wall"]))]


def expected_part(base, other):
    """The difference that should be told: the exact test of rank sums over all ways to deal the
    values out, with a chance below 1 %, and at least 1 %."""
    everything = sorted(base + other)
    rank = {value: statistics.mean(i for i, one in enumerate(everything) if one == value)
            for value in everything}
    ranks = [rank[value] for value in base + other]
    mean = sum(ranks) * len(other) / len(ranks)
    found = abs(sum(rank[value] for value in other) - mean)
    sums = [abs(sum(chosen) - mean) for chosen in itertools.combinations(ranks, len(other))]
    chance = sum(one >= found - 1e-6 for one in sums) / len(sums)
    part = statistics.median(other) / statistics.median(base) - 1
    return part if chance < 0.01 and abs(part) >= 0.01 else 0


def expected_sentence(base, candidate):
    def part(name):
        return expected_part(base["figures"][name]["runs"], candidate["figures"][name]["runs"])

    wall, peak = part("wall"), part("peak_rss")
    if not wall and not peak:
        return "no difference"
    told = f"{abs(wall):.0%}".replace("%", " %") + (" slower" if wall > 0 else " faster")
    memory = f"{abs(peak):.0%}".replace("%", " %") + (" more" if peak > 0 else " less")
    return ", ".join([told if wall else "as fast", (memory if peak else "as much") + " memory"])


def programs(folder):
    os.mkfifo(folder.at("redis.fifo"))
    script = folder.write("redis.sh", REDIS.replace("@DIR@", folder.path))
    source = folder.write("generated.c", generated())
    return {
        "churn": [folder.compiled("churn", CHURN)],
        "gcc -O1 -c": ["gcc", "-O1", "-c", source, "-o", folder.at("generated.o")],
        "sh: redis under load": ["sh", script],
        "sh: a small perl": ["sh", folder.write("small.sh", SMALL_CHILD)],
        "fragmenting": [folder.compiled("fragmenting", FRAGMENTING)],
    }


def compare(heapprof, folder, verdict):
    for name, command in programs(folder).items():
        title(f"compare-allocators: {name} (heapprof / time -v / perf stat, medians)")
        libraries = {}

        def measure(rounds):
            for _ in range(rounds):
                for allocator in ALLOCATORS:
                    library = libraries[allocator]
                    timed[allocator].append(by_time(folder, command, library))
                    perfed[allocator].append(by_perf(folder, command, library))

        timed, perfed = collections.defaultdict(list), collections.defaultdict(list)
        report = compared(heapprof, folder, ALLOCATORS, command)
        candidates = {one["name"]: one for one in report["candidates"]}
        libraries = {one: candidates[one]["what"] for one in ALLOCATORS}
        measure(OTHER_RUNS)
        ours = {one: of_heapprof(candidates[one]) for one in ALLOCATORS}

        def clocks_differ(allocator):
            return not near(median(ours[allocator], "cpu"), median(timed[allocator], "cpu"),
                            0.15, 0.02)

        again = any(clocks_differ(one) for one in ALLOCATORS)
        if again:  # once more, because others use the machine, too
            more = compared(heapprof, folder, ALLOCATORS, command, "--no-heap")
            measure(2)
            for one in more["candidates"]:
                ours[one["name"]] += of_heapprof(one)
        head("<allocator", "peak rss, MiB", "faults", "user+system, s", "wall, s", "switches",
             "loaded", "<verdict")
        for allocator in ALLOCATORS:
            us, them, perf = ours[allocator], timed[allocator], perfed[allocator]

            def cells(figure, form, of_perf=True):
                all_ = [us, them] + ([perf] if of_perf else [])
                return " / ".join(format(median(runs, figure), form) for runs in all_)

            checks = {
                "peak": near(median(us, "peak"), median(them, "peak"), 0.02, 0.3 * MIB),
                # The child that GNU time forks makes some faults before it becomes the program.
                "faults": near(median(us, "faults"), median(them, "faults"), 0.02)
                or near(median(us, "faults"), median(perf, "faults"), 0.02),
                "cpu": near(median(us, "cpu"), median(them, "cpu"), 0.15, 0.02),
                "wall": near(median(us, "wall"), median(them, "wall"), 0.15, 0.02)
                or not apart([run["wall"] for run in us], [run["wall"] for run in them]),
                "switches": same_magnitude(median(us, "switches"), median(them, "switches")),
            }
            loaded = candidates[allocator]["loaded"]
            checks["loaded"] = loaded is (None if allocator == "glibc" else True)
            words = []
            for figure, is_near in checks.items():
                if is_near:
                    continue
                text = f"compare: {name}, {allocator}: {figure}"
                if figure in us[0]:
                    text += "".join(f", {who} {min(values):,.10g} to {max(values):,.10g}"
                                    for who, values in (("heapprof", [run[figure] for run in us]),
                                                        ("time -v", [run[figure] for run in them])))
                words.append(f"{figure} {verdict(False, text)}")
            mib = [median(runs, "peak") / MIB for runs in (us, them)]
            row(allocator, f"{mib[0]:.2f} / {mib[1]:.2f}", cells("faults", ",.0f"),
                cells("cpu", ".3f"), cells("wall", ".2f", False), cells("switches", ",.0f"),
                {None: "-", True: "yes", False: "no"}[loaded], ", ".join(words) or "ok")
        heap = report["heap_in_use"]
        print(f"\nheap in use: {heap['peak'] / MIB:.2f} MiB at most, {heap['end'] / MIB:.2f} MiB "
              f"at the end{'; times were measured twice' if again else ''}\n")
        for allocator in ALLOCATORS[1:]:
            sentence = candidates[allocator]["sentence"]
            expected = expected_sentence(candidates["glibc"], candidates[allocator])
            is_right = sentence == f"{allocator}: {expected} (beside glibc)"
            print(f"- {sentence}: "
                  + verdict(is_right, f"compare: {name}: {sentence!r}, by its runs: {expected}"))


def same(heapprof, folder, verdict):
    title(f"compare-allocators: glibc beside glibc:perturb=0 on churn, {TIMES} times")
    program = folder.compiled("churn", CHURN)
    head("time", "wall, ms", "peak rss, MiB", "<sentence", "<time", "<memory")
    told = collections.Counter()
    for number in range(1, TIMES + 1):
        report = compared(heapprof, folder, ("glibc", "glibc:perturb=0"), [program], "--no-heap")
        one, other = report["candidates"]
        parts = {figure: other["figures"][figure]["difference"] for figure in ("wall", "peak_rss")}
        for figure, part in parts.items():
            told[figure] += part != 0
        cells = [" / ".join(f"{each['figures'][figure]['median'] / unit:.2f}"
                            for each in (one, other))
                 for figure, unit in (("wall", 1000), ("peak_rss", MIB))]
        row(number, *cells, other["sentence"], *(f"{part:+.1%}" if part else "none"
                                                for part in parts.values()))
    print(f"\nA difference was told in {told['wall']} of {TIMES} for time: "
          + verdict(told["wall"] <= 1, "same: time") + f"; in {told['peak_rss']} for memory: "
          + verdict(told["peak_rss"] <= 1, "same: memory") + ".")


PARTS = {"watch": watch, "marks": marks, "until": until, "compare": compare, "same": same}


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default=",".join(PARTS))
    ap.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "heapprof-watching"))
    a = ap.parse_args()
    heapprof, verdict = os.path.abspath(a.heapprof), Verdicts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Folder(os.path.abspath(a.folder))
    began = time.monotonic()
    try:
        for name in a.only.split(","):
            PARTS[name](heapprof, folder, verdict)
    finally:
        shutil.rmtree(folder.path)
    print(f"\n{time.monotonic() - began:.0f} s. " + ("Everything is as it should be."
                                                     if not verdict.wrong else "Off:"))
    for line in verdict.wrong:
        print(f"- {line}")
    sys.exit(bool(verdict.wrong))


if __name__ == "__main__":
    main()

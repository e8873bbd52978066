#!/usr/bin/env python3
"""Attaches to real programs under load, again and again, and looks whether any of them notices.

usage: oracle/attach.py HEAPPROF [ROUNDS [PROGRAM ...]]

Each program does work whose results it, or its client, checks. It must end as it does without
heapprof. Programs that are not installed are named and left out.
"""

import json
import mmap
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAPPROF = str(pathlib.Path(sys.argv[1]).resolve())
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 150

PYTHON = r"""
import hashlib, json, signal, sqlite3, sys, threading, zlib
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
wrong = []
def work(number):
    database = sqlite3.connect(":memory:")
    database.execute("create table t (a, b)")
    rounds = 0
    while not over.is_set():
        rounds += 1
        given = {"n": number, "all": list(range(rounds % 300)), "text": "x" * (rounds % 1000)}
        if json.loads(json.dumps(given)) != given:
            wrong.append("json")
        text = ("%d " % rounds).encode() * 100
        if zlib.decompress(zlib.compress(text)) != text:
            wrong.append("zlib")
        database.execute("insert into t values (?, ?)", (rounds, hashlib.sha256(text).hexdigest()))
        if database.execute("select count(*) from t").fetchone()[0] != rounds:
            wrong.append("sqlite")
        if rounds % 2000 == 0:
            database.execute("delete from t")
            rounds = 0
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]
print("ready", flush=True)
over.wait()
[t.join() for t in threads]
sys.exit(5 if wrong else 3)
"""

PERL = r"""
$| = 1; my $over = 0; $SIG{TERM} = sub { $over = 1 }; my %all; my $n = 0; my $wrong = 0;
print "ready\n";
until ($over) {
    $n++;
    my $text = join ",", map { $_ * $n } 1 .. 50;
    my @back = split /,/, $text;
    $wrong++ if @back != 50 or $back[49] != 50 * $n;
    $all{$n % 5000} = { text => $text, list => \@back };
    $wrong++ unless eval { die { n => $n } } or $@->{n} == $n;
}
exit($wrong ? 5 : 3);
"""

JAVA = r"""
import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
public class Work {
    static volatile boolean over, wrong;
    public static void main(String[] words) throws Exception {
        List<Thread> all = new ArrayList<>();
        for (int k = 0; k < 3; k++) {
            Thread t = new Thread(() -> {
                Random random = new Random(1);
                byte[] given = new byte[20000];
                while (!over) {
                    random.nextBytes(given);
                    Deflater d = new Deflater(); d.setInput(given); d.finish();
                    byte[] packed = new byte[40000]; int n = d.deflate(packed); d.end();
                    Inflater i = new Inflater(); i.setInput(packed, 0, n); byte[] back = new byte[20000];
                    try { i.inflate(back); } catch (Exception e) { wrong = true; } i.end();
                    if (!Arrays.equals(given, back)) wrong = true;
                }
            });
            t.start(); all.add(t);
        }
        System.out.println("ready"); System.out.flush();
        System.in.read(); over = true;
        for (Thread t : all) t.join();
        System.exit(wrong ? 5 : 3);
    }
}
"""


def attach(pid, *words):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [HEAPPROF, "attach", str(pid), *words, "-o", folder + "/p.pb.gz"],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        return done.returncode, done.stderr


def attach_and_count(pid, read_counts):
    """Attaches until interrupted. Returns what was said, and what is wrong with the number of
    recorded allocations: the program's own counts before and after are its bounds."""
    with tempfile.TemporaryDirectory() as folder:
        file = folder + "/p.pb.gz"
        _, done_before = read_counts()
        running = subprocess.Popen([HEAPPROF, "attach", str(pid), "--exact", "-o", file],
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        said = ""
        while "recording every" not in said:
            line = running.stderr.readline()
            if not line:
                return running.wait(), said, None
            said += line
        begun_inside, _ = read_counts()
        time.sleep(0.05)
        _, done_inside = read_counts()
        running.send_signal(signal.SIGINT)
        said += running.stderr.read()
        code = running.wait()
        begun_after, _ = read_counts()
        if code:
            return code, said, None
        top = subprocess.run([HEAPPROF, "top", "-n", "0", "-t", "alloc_objects", "--focus", "work",
                              "--all-code", "-f", "json", file], capture_output=True, text=True)
        rows = json.loads(top.stdout)["rows"]
        seen = max((row["cum"] for row in rows if row["function"] == "work"), default=0)
        least, most = done_inside - begun_inside, begun_after - done_before
        wrong = None if least <= seen <= most else f"{seen} requests, and not {least} to {most}"
        return code, said, wrong


class Program:
    """A program that runs, and whoever keeps it at work."""

    def __init__(self, command, pid=None, load=(), end=None, code=3, **more):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, **more)
        self.pid = pid or (lambda: self.process.pid)
        self.load = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) for each in load]
        self.end = end or (lambda: self.process.send_signal(signal.SIGTERM))
        self.code = code

    def finish(self):
        """Ends it; returns what was wrong."""
        wrong = []
        self.end()
        try:
            out, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return ["it does not end"]
        if self.process.returncode != self.code:
            wrong.append(f"exit {self.process.returncode}: {out[-500:]}")
        self.out = out
        return wrong


def wait_for(test, seconds=20):
    until = time.time() + seconds
    while time.time() < until:
        if test():
            return
        time.sleep(0.1)
    raise SystemExit("a program does not begin")


def redis(folder):
    port = "7391"
    program = Program(["redis-server", "--port", port, "--save", "", "--dir", folder], code=0)
    wait_for(lambda: subprocess.run(["redis-cli", "-p", port, "ping"], capture_output=True,
                                    text=True).stdout.strip() == "PONG")
    load = subprocess.Popen(
        ["redis-benchmark", "-p", port, "-q", "-l", "-t", "set,get,lpush,lpop,sadd,hset,zadd",
         "-c", "20", "-n", "100000", "-r", "10000", "-d", "200"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def check():
        wrong = []
        if load.poll() is not None:
            wrong.append("redis-benchmark ended: " + load.stderr.read()[-300:])
        load.kill()
        for n in range(200):
            value = f"value {n}" * 20
            run = lambda *words: subprocess.run(["redis-cli", "-p", port, *words],
                                                capture_output=True, text=True).stdout.strip()
            run("set", f"check{n}", value)
            if n % 20 == 0 and run("get", f"check{n}") != value:
                wrong.append(f"get check{n}")
        return wrong
    program.check = check
    return program


def nginx(folder):
    (pathlib.Path(folder) / "index.html").write_text("x" * 5000)
    os.chmod(folder, 0o755)
    conf = pathlib.Path(folder) / "nginx.conf"
    conf.write_text(f"""daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;
        user root; events {{ }} http {{ access_log off; gzip on; gzip_types text/html;
        server {{ listen 127.0.0.1:7392; root {folder}; }} }}""")
    program = Program(["nginx", "-p", folder, "-c", str(conf)], code=0)
    worker = lambda: int(subprocess.run(["pgrep", "-P", str(program.process.pid)],
                                        capture_output=True, text=True).stdout.split()[0])
    time.sleep(1)
    program.pid = worker
    first = worker()
    load = subprocess.Popen(["ab", "-q", "-l", "-H", "Accept-Encoding: gzip", "-c", "4", "-t", "600", "-n", "100000000",
                             "http://127.0.0.1:7392/index.html"],
                            stdout=subprocess.PIPE, text=True)

    def check():
        load.send_signal(signal.SIGINT)
        out, _ = load.communicate(timeout=30)
        failed = re.search(r"Failed requests:\s+(\d+)", out)
        done = re.search(r"Complete requests:\s+(\d+)", out)
        program.note = f"{done and done[1]} requests"
        wrong = [] if failed and failed[1] == "0" and int(done[1]) > 1000 else ["ab: " + out[-800:]]
        return wrong + ([] if worker() == first else ["the worker was replaced"])
    program.check = check
    return program


def postgres(folder):
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    os.chmod(folder, 0o777)
    data = folder + "/data"
    bin_dir = str(pathlib.Path(shutil.which("postgres")).resolve().parent)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([*as_user, bin_dir + "/initdb", "-D", data, "-A", "trust"], check=True, **quiet)
    program = Program([*as_user, bin_dir + "/postgres", "-D", data, "-p", "7393", "-k", folder],
                      code=0, stderr=subprocess.DEVNULL, cwd=folder)
    words = ["-h", folder, "-p", "7393", "-U", "postgres"]
    wait_for(lambda: subprocess.run([*as_user, "psql", *words, "-c", "select 1"], **quiet).returncode == 0)
    subprocess.run([*as_user, "pgbench", *words, "-i", "-s", "2", "postgres"], check=True, **quiet)
    load = subprocess.Popen([*as_user, "pgbench", *words, "-c", "3", "-T", "900", "-n", "postgres"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    time.sleep(1)
    turn = [0]

    def pid():
        """A backend that works for pgbench, or the postmaster."""
        found = subprocess.run(["pgrep", "-P", str(program.process.pid)], capture_output=True,
                               text=True).stdout.split()
        turn[0] += 1
        backends = [p for p in found if b"postgres postgres" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes()]
        choice = backends + [program.process.pid]
        return int(choice[turn[0] % len(choice)])
    program.pid = pid

    def check():
        wrong = [] if load.poll() is None else ["pgbench ended: " + load.stdout.read()[-500:]]
        load.terminate()
        load.wait(30)
        sums = subprocess.run([*as_user, "psql", *words, "-At", "-c",
                               "select (select sum(abalance) from pgbench_accounts) = "
                               "(select sum(bbalance) from pgbench_branches), "
                               "(select count(*) from pgbench_history)"],
                              capture_output=True, text=True, cwd=folder).stdout.strip()
        program.note = sums
        return wrong + ([] if sums.startswith("t|") else ["sums differ: " + sums])
    program.check = check
    return program


def java(folder):
    source = pathlib.Path(folder) / "Work.java"
    source.write_text(JAVA)
    subprocess.run(["javac", "-d", folder, str(source)], check=True)
    program = Program(["java", "-Xmx200m", "-cp", folder, "Work"])
    program.process.stdout.readline()
    program.end = lambda: None
    program.check = lambda: []
    return program


def simple(*command):
    def start(_folder):
        program = Program(list(command))
        program.process.stdout.readline()
        program.check = lambda: []
        return program
    return start


def checks_itself(folder):
    built = folder + "/checks_itself"
    source = str(ROOT / "tests/attach/checks_itself.c")
    subprocess.run(["cc", "-O2", "-g", "-pthread", "-o", built, source, "-lm"], check=True)
    program = Program([built, "0"], code=0)
    program.process.stdout.readline()

    def check():
        return []
    program.check = check
    return program


def pressed(threads):
    def start(folder):
        built, file = folder + "/pressed", folder + "/counts"
        source = str(ROOT / "oracle/attach_pressed.c")
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", built, source], check=True)
        program = Program([built, str(threads), file])
        program.process.stdout.readline()
        counts = mmap.mmap(os.open(file, os.O_RDONLY), 16, prot=mmap.PROT_READ)
        program.read_counts = lambda: struct.unpack("QQ", counts[:16])
        program.check = lambda: []
        return program
    return start


PROGRAMS = {
    "redis": (redis, ["redis-server", "redis-benchmark"]),
    "nginx": (nginx, ["nginx", "ab"]),
    "python": (simple(sys.executable, "-c", PYTHON), []),
    "perl": (simple("perl", "-e", PERL), ["perl"]),
    "java": (java, ["java", "javac"]),
    "postgres": (postgres, ["postgres", "pgbench"]),
    "checks_itself": (checks_itself, ["cc"]),
    "1 thread": (pressed(1), ["cc"]),
    "8 threads": (pressed(8), ["cc"]),
    "64 threads": (pressed(64), ["cc"]),
}


def rounds(name):
    start, needs = PROGRAMS[name]
    missing = [need for need in needs if not shutil.which(need)]
    if missing:
        print(f"{name}: left out: there is no {', '.join(missing)}")
        return 0, 0, 0
    refused, wrong, held, stopped, others = 0, [], [], [], []
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        program = start(folder)
        for n in range(ROUNDS):
            mode = ["--exact"] if n % 3 else ["--period", "4KiB"]
            if n % 3 and hasattr(program, "read_counts"):
                code, said, lost = attach_and_count(program.pid(), program.read_counts)
                wrong += [lost] if lost else []
            else:
                code, said = attach(program.pid(), *mode, "--for", "50ms")
            found = re.search(r"stopped for ([\d.]+) ms, and one thread for ([\d.]+) ms", said)
            if found:
                stopped.append(float(found[1]))
                held.append(float(found[2]))
            if "safe place" in said:
                refused += 1
            elif code:
                others.append(said.strip()[-300:])
            if "tries again" in said or "slots" in said or "not recorded" in said:
                others.append(said.strip()[-300:])
        wrong += program.check()
        wrong += program.finish()
        note = getattr(program, "note", "")
        for line in (program.out or "").splitlines():
            if "interrupted" in line and not line.endswith(" 0"):
                wrong.append(line)
            if "rounds" in line:
                note = line
    def shown(times):
        times = sorted(times) or [0]
        of = lambda part: times[min(len(times) - 1, int(part * len(times)))]
        return f"{of(0.5):.1f} ms (median), {of(0.99):.1f} ms (99 %), {times[-1]:.1f} ms (longest)"

    print(f"{name}: {ROUNDS} rounds in {time.time() - began:.0f} s, {refused} refused, "
          f"{len(others)} failed, {len(wrong)} wrong; all threads stopped {shown(stopped)}; "
          f"one thread {shown(held)} {note}", flush=True)
    for one in (wrong + others)[:5]:
        print("   ", one, flush=True)
    return ROUNDS, refused, len(wrong) + len(others)


if __name__ == "__main__":
    chosen = sys.argv[3:] or list(PROGRAMS)
    results = [rounds(name) for name in chosen]
    total, refused, wrong = (sum(column) for column in zip(*results))
    print(f"{total} rounds, {refused} refused, {wrong} wrong")
    sys.exit(1 if wrong or refused > total / 100 else 0)

#!/usr/bin/env python3
"""Puts `heapprof proc` beside the kernel's own sums and beside smem, on real programs.

usage: processes.py --heapprof PATH [--only REGEX]

`heapprof proc` says that its parts add up to what the kernel says of a process. A test with a few
processes of its own would not find the mappings that only a browser, a JVM or a database has. So
this starts some dozens of different programs, and asks four things:

  proc    Each process is stopped. Then each field of the JSON form must be what smaps_rollup says,
          to the byte; the kinds, and the mappings, must add up with the rounding; the counters
          must be those of /proc/PID/status; and the text form must explain each word in it.
  --diff  Then the programs are made to allocate, and the changes of the kinds must add up, too.
  pss     `heapprof proc` of all processes beside `smem`: less than 1 % may be between them.
  time    `heapprof proc PID` beside `cat /proc/PID/smaps`, for the largest process and for the one
          with the most mappings.

What a page is to one process depends on the others: each program that starts maps libc, too. So
heapprof is held while the sums are read, by a pipe that is full already; and if something else of
the machine has come or gone, it is asked again. The table says how often (tries). The heapprof that
is measured itself is a copy of the file, because the one that asks shares its pages with no other.

Needs root, gcc and smem. A program that is not installed is left out, and named. At the end all
that was started is stopped, and its folder is removed. It takes about one minute. The exit code
is 1 if a number or a word is not as it should be, or fewer than 20 programs ran.
"""

import argparse
import ctypes
import fcntl
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TRIES, MOST_PERCENT, LEAST_PROGRAMS, LIMIT = 8, 1.0, 20, 660
# The fields of the JSON form, and the kernel's lines that they are the sum of.
LINES = {
    "rss": ["Rss"],
    "pss": ["Pss"],
    "private_clean": ["Private_Clean"],
    "private_dirty": ["Private_Dirty"],
    "shared_clean": ["Shared_Clean"],
    "shared_dirty": ["Shared_Dirty"],
    "uss": ["Private_Clean", "Private_Dirty"],
    "anonymous": ["Anonymous"],
    "referenced": ["Referenced"],
    "locked": ["Locked"],
    "lazy_free": ["LazyFree"],
    "swap": ["Swap"],
    "swap_pss": ["SwapPss"],
    "huge": ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"],
    "hugetlb": ["Private_Hugetlb", "Shared_Hugetlb"],
}

# --- the programs ---

# Each mode gets into a state of its own, and then allocates for each line that it reads.
STEADY_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
static size_t more = 4 * MIB;
static char *map(size_t bytes, int flags, int fd) {
  char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) { perror("mmap"); exit(2); }
  return at;
}
static void *thread(void *number) {
  for (long i = 1; i < 200; i++) {
    size_t bytes = (i * 7919 + (long)number * 104729) % 60000 + 1;
    char *block = malloc(bytes);
    memset(block, 1, bytes);
    if (i % 3 == 0) free(block);
  }
  for (;;) pause();
}
static void threads(void) {
  pthread_t one;
  for (long i = 0; i < 30; i++) pthread_create(&one, 0, thread, (void *)i);
}
/* A tmpfs of huge pages that only this process sees, and that is gone when it ends. */
static void huge_files(void) {
  if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) ||
      mkdir("huge", 0700) || mount("tmpfs", "huge", "tmpfs", 0, "huge=always,size=64m")) {
    perror("huge");
    return;
  }
  int fd = open("huge/file", O_RDWR | O_CREAT, 0600);
  if (ftruncate(fd, 16 * MIB)) exit(2);
  memset(map(16 * MIB, MAP_SHARED, fd), 1, 9 * MIB);
}
static void huge(void) {
  huge_files();
  char *own = map(64 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  madvise(own, 64 * MIB, MADV_HUGEPAGE);
  memset(own, 1, 33 * MIB);
  char *shared = map(32 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
  madvise(shared, 32 * MIB, MADV_HUGEPAGE);
  memset(shared, 1, 17 * MIB);
  int id = shmget(IPC_PRIVATE, 4 * MIB, 0600);
  memset(shmat(id, 0, 0), 1, 3 * MIB);
  shmctl(id, IPC_RMID, 0);
  char name[64];
  snprintf(name, sizeof name, "/heapprof-steady-%d", getpid());
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  shm_unlink(name);
  if (ftruncate(fd, 8 * MIB)) exit(2);
  memset(map(8 * MIB, MAP_SHARED, fd), 1, 5 * MIB);
  /* There are such pages only if root has reserved some. */
  char *tlb = mmap(0, 2 * MIB, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (tlb != MAP_FAILED) tlb[0] = 1;
  char *lazy = map(4 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  memset(lazy, 1, 4 * MIB);
  madvise(lazy, 2 * MIB, MADV_FREE);
}
static void locked(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) { perror("mlockall"); exit(2); }
}
static void names(void) {
  static const char *all[] = {"a b", "new\nline", "back\\slash", "Rss: 9 kB", "\xff\xfe", "\u00e4",
                              "Size:", "gone (deleted)", "gone", "[heap]", "tab\there"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int fd = open(all[i], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 64 << 10)) exit(2);
    memset(map(64 << 10, i % 2 ? MAP_SHARED : MAP_PRIVATE, fd), 1, 20 << 10);
  }
  unlink("gone");
  int fd = memfd_create("Pss: 7 kB", 0);
  if (ftruncate(fd, 64 << 10)) exit(2);
  memset(map(64 << 10, MAP_SHARED, fd), 1, 40 << 10);
  char *anon = map(64 << 10, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  memset(anon, 1, 10 << 10);
  prctl(0x53564d41 /* PR_SET_VMA */, 0, anon, 64 << 10, "Locked: 1 kB");
  prctl(PR_SET_NAME, "a) R 1 (\nb");
}
/* Three processes share thousands of mappings, whose parts are no whole KiB. */
static void forked(void) {
  size_t page = 4096, count = 2000;
  char *all = map(2 * count * page, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  memset(all, 1, 2 * count * page);
  for (size_t i = 0; i < count; i++) mprotect(all + 2 * i * page, page, PROT_READ);
  for (int i = 0; i < 2; i++)
    if (!fork()) {
      for (size_t j = 0; j < count / 2; j++) all[(2 * j + 1) * page] = 2;
      for (;;) pause();
    }
}
int main(int argc, char **argv) {
  const char *mode = argv[1];
  if (!strcmp(mode, "threads")) threads();
  if (!strcmp(mode, "huge")) huge(), more = 20 * MIB;
  if (!strcmp(mode, "locked")) locked();
  if (!strcmp(mode, "names")) names();
  if (!strcmp(mode, "forked")) forked();
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    for (int i = 0; i < 2000; i++) memset(malloc(500), 1, 500);
    char *block = aligned_alloc(2 * MIB, more);
    if (!strcmp(mode, "huge")) madvise(block, more, MADV_HUGEPAGE);
    memset(block, 1, more);
  }
}
"""
HOLD_JAVA = """import java.util.*;
public class Hold {
  public static void main(String[] words) throws Exception {
    List<byte[]> kept = new ArrayList<>();
    for (int i = 0; i < 2000; i++) kept.add(new byte[i * 10]);
    while (System.in.read() >= 0) kept.add(new byte[8 << 20]);
  }
}
"""
PERL_HASH = (
    "my %h = map { ('key ' . $_ => 'value ' x 5) } 1 .. 50_000;"
    "while (<STDIN>) { my $n = keys %h; $h{'more ' . $_} = 'x' x 50 for $n .. $n + 100_000 }"
)
PYTHON_DICT = (
    "import sys, json, decimal, sqlite3, ctypes, socket, threading\n"
    "kept = {n: str(n) for n in range(200_000)}\n"
    "for line in sys.stdin: kept.update({len(kept) + n: str(n) for n in range(100_000)})\n"
)
PYTHON_NUMPY = (
    "import sys, numpy\n"
    "kept = [numpy.ones(32 << 20)]\n"
    "for line in sys.stdin: kept.append(numpy.ones(1 << 20))\n"
)
NODE = (
    "let kept = []; setInterval(() => {}, 1000); process.stdin.on('data', () => {"
    " for (let i = 0; i < 200000; i++) kept.push({ i, text: 'value ' + i }) })"
)
AWK = (
    "BEGIN { while ((getline line) > 0) for (i = 0; i < 50000; i++) kept[n++] = \"value \" n }"
)
SQL = (
    "create table if not exists t(a); with recursive c(n) as (select 1 union all select n + 1"
    " from c limit 5000) insert into t select randomblob(1000) from c;\n"
)
APACHE_CONF = """ServerRoot "@DIR@"
ServerName 127.0.0.1
Listen 127.0.0.1:@PORT@
PidFile "@DIR@/apache.pid"
Mutex file:@DIR@ default
ErrorLog "@DIR@/error.log"
DocumentRoot "@DIR@"
User www-data
Group www-data
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
StartServers 3
"""
NGINX_CONF = """daemon off;
worker_processes 2;
user www-data;
pid @DIR@/nginx.pid;
error_log @DIR@/error.log;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path @DIR@/body; proxy_temp_path @DIR@/proxy; fastcgi_temp_path @DIR@/fcgi;
  uwsgi_temp_path @DIR@/uwsgi; scgi_temp_path @DIR@/scgi;
  server { listen 127.0.0.1:@PORT@; root @DIR@; }
}
"""


class Missing(Exception):
    """A program that is not here."""


def find(name, *places):
    path = shutil.which(name, path=":".join([os.environ["PATH"], "/usr/sbin", *places]))
    if not path:
        raise Missing(name)
    return path


def library(name):
    found = sorted(glob.glob(f"/usr/lib/*/lib{name}.so.?"))
    if not found:
        raise Missing(f"lib{name}")
    return found[0]


class Program:
    """A program that runs. Its command comes from a method of Programs, which may set how it is
    known to be ready (`port`, `file`), what makes it grow (`say` to its stdin, or `poke`), and
    with which signal it ends."""

    def __init__(self, folder, heapprof):
        self.dir, self.heapprof = folder, heapprof
        self.env, self.user, self.stop = {}, None, signal.SIGTERM
        self.port = self.file = self.say = self.child = None
        self.ready = self.poke = lambda: None

    def free_port(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        return self.port

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text.replace("@DIR@", self.dir).replace("@PORT@", str(self.port)))
        os.chmod(path, 0o644)
        return path

    def call(self, *words):
        return subprocess.run(words, check=True, timeout=60, cwd=self.dir, env=self.environment(),
                              user=self.user, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def environment(self):
        own = {"HOME": self.dir, "TMPDIR": self.dir, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        return {**os.environ, **own, **self.env}

    def start(self, words):
        if self.user:
            shutil.chown(self.dir, self.user)
        with open(self.dir + "/stdout", "wb") as out, open(self.dir + "/stderr", "wb") as err:
            self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=err,
                                          cwd=self.dir, env=self.environment(), user=self.user,
                                          start_new_session=True)

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.child.poll() is None:
            if self.port:
                with socket.socket() as s:
                    is_there = s.connect_ex(("127.0.0.1", self.port)) == 0
            else:
                is_there = not self.file or os.path.exists(self.file)
            if is_there:
                self.ready()
                return
            time.sleep(0.1)

    def get(self, method="GET", path="/"):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        link.request(method, path, headers={"Connection": "close"})
        link.getresponse().read()
        link.close()

    def grow(self):
        """Makes it allocate; False if there is no easy way."""
        if self.say:
            self.child.stdin.write(self.say.encode())
            self.child.stdin.flush()
            return True
        return self.poke() is not None


class Programs:
    """The command of each program, by its name in the table."""

    def perl(self, of):
        of.say = "\n"
        return [find("perl"), "-e", PERL_HASH]

    def perl__mimalloc(self, of):
        of.say, of.env = "\n", {"LD_PRELOAD": library("mimalloc")}
        return [find("perl"), "-e", PERL_HASH]

    def perl__recorded(self, of):
        of.say = "\n"
        out = os.path.join(of.dir, "profile.pb.gz")
        return [of.heapprof, "record", "-o", out, "--", find("perl"), "-e", PERL_HASH]

    def python3(self, of):
        of.say = "\n"
        return [os.path.realpath(sys.executable), "-c", PYTHON_DICT]

    def python3__jemalloc(self, of):
        of.say, of.env = "\n", {"LD_PRELOAD": library("jemalloc")}
        return [os.path.realpath(sys.executable), "-c", PYTHON_DICT]

    def python3__numpy(self, of):
        for python in [os.path.realpath(sys.executable), "/usr/bin/python3"]:
            done = subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                of.say = "\n"
                return [python, "-c", PYTHON_NUMPY]
        raise Missing("numpy")

    def java(self, of):
        of.say = "\n"
        return [find("java"), "-Xmx256m", of.write("Hold.java", HOLD_JAVA)]

    def jshell(self, of):
        of.say = "var more = new byte[16_000_000]; Arrays.fill(more, (byte) 1);\n"
        return [find("jshell"), "-s", "-"]

    def chromium(self, of):
        of.poke = lambda: of.get("PUT", "/json/new?about:blank") or True
        return [find("chromium"), "--headless", "--no-sandbox", f"--user-data-dir={of.dir}/data",
                f"--remote-debugging-port={of.free_port()}", "about:blank"]

    def node(self, of):
        of.say = "\n"
        return [find("node"), "-e", NODE]

    def postgres(self, of):
        postgres, initdb = (find(name, "/usr/lib/postgresql/15/bin")
                            for name in ["postgres", "initdb"])
        of.user, of.stop, of.file = "postgres", signal.SIGINT, of.dir + "/.s.PGSQL.5432"
        shutil.chown(of.dir, of.user)
        of.call(initdb, "-A", "trust", "--no-sync", "-D", of.dir + "/data")
        return [postgres, "-D", of.dir + "/data", "-k", of.dir, "-c", "listen_addresses=",
                "-c", "fsync=off"]

    def psql(self, of):
        host = os.path.join(os.path.dirname(of.dir), "postgres")
        if not os.path.exists(host + "/.s.PGSQL.5432"):
            raise Missing("a postgres that runs")
        of.user = "postgres"
        of.say = "create table t as select n, 'value ' || n from generate_series(1, 100000) n;\n"
        return [find("psql", "/usr/lib/postgresql/15/bin"), "-qXh", host, "-d", "postgres"]

    def redis(self, of):
        of.file = of.dir + "/socket"

        def poke():
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(of.file)
                s.sendall(b"EVAL \"for i = 1, 100000 do redis.call('set', 'key' .. i, 'value')"
                          b" end\" 0\r\n")
                return s.recv(99)

        of.poke = poke
        return [find("redis-server"), "--port", "0", "--unixsocket", of.file, "--save", "",
                "--dir", of.dir]

    def apache2(self, of):
        of.poke = lambda: [of.get() for _ in range(20)]
        of.free_port()
        conf = of.write("apache.conf", APACHE_CONF)
        return [find("apache2"), "-d", of.dir, "-f", conf, "-DFOREGROUND"]

    def nginx(self, of):
        of.poke = lambda: [of.get() for _ in range(20)]
        of.free_port()
        conf = of.write("nginx.conf", NGINX_CONF)
        return [find("nginx"), "-e", of.dir + "/error.log", "-c", conf]

    def sqlite3(self, of):
        of.say = SQL
        return [find("sqlite3"), ":memory:"]

    def bash(self, of):
        of.say = "for i in {1..50000}; do kept[i]=\"value $i\"; done\n"
        return [find("bash"), "--norc"]

    def vim(self, of):
        of.say = "call setline(1, map(range(50000), '\"line \" . v:val'))\n"
        return [find("vim"), "-u", "NONE", "-es"]

    def ed(self, of):
        of.say = "r " + of.write("text", "a line of text\n" * 100_000) + "\n"
        return [find("ed"), "-s"]

    def gdb(self, of):
        of.say = "python kept = [str(n) for n in range(200000)]\n"
        return [find("gdb"), "-q", "-nx", find("bash")]

    def git_daemon(self, of):
        return [find("git"), "daemon", "--listen=127.0.0.1", f"--port={of.free_port()}",
                "--base-path=" + of.dir, of.dir]

    def sshd(self, of):
        return [find("sshd"), "-D", "-e", "-p", str(of.free_port())]

    def ssh_agent(self, of):
        of.file = of.dir + "/socket"
        return [find("ssh-agent"), "-D", "-a", of.file]

    def gpg_agent(self, of):
        os.chmod(of.dir, 0o700)
        return [find("gpg-agent"), "--homedir", of.dir, "--server"]

    def dbus_daemon(self, of):
        of.file = of.dir + "/bus"
        return [find("dbus-daemon"), "--session", "--nofork", "--nopidfile",
                "--address=unix:path=" + of.file]

    def tmux(self, of):
        tmux, of.file = find("tmux"), of.dir + "/socket"
        session = [tmux, "-S", of.file, "new-session", "-d", "bash --norc"]
        of.ready = of.poke = lambda: of.call(*session)
        return [tmux, "-S", of.file, "-f", "/dev/null", "-D"]

    def tclsh(self, of):
        of.say = "for {set i 0} {$i < 50000} {incr i} {set kept($i) \"value $i\"}\n"
        return [find("tclsh")]

    def bc(self, of):
        of.say = "for (i = 0; i < 60000; i++) a[i] = i\n"
        return [find("bc"), "-q"]

    def mawk(self, of):
        of.say = "\n"
        return [find("mawk"), "-W", "interactive", AWK]

    def tail_f(self, of):
        path = of.write("log", "a line\n" * 1000)

        def poke():
            with open(path, "a") as f:
                return f.write("another line\n" * 100_000)

        of.poke = poke
        return [find("tail"), "-f", path]

    def top(self, of):
        return [find("top"), "-b", "-d", "900"]

    def valgrind(self, of):
        return [find("valgrind"), "-q", find("sleep"), "900"]

    def terraform(self, of):  # a Go program
        of.env = {"CHECKPOINT_DISABLE": "1"}
        of.say = "length([for i in range(1000) : [for j in range(100) : i * j]])\n"
        return [find("terraform"), "console"]

    def rustc(self, of):  # a Rust program with large libraries; it waits for the source
        rustc = find("rustc")
        found = subprocess.run([rustc, "--print", "sysroot"], stdout=subprocess.PIPE, text=True)
        return [found.stdout.strip() + "/bin/rustc", "--emit=metadata", "-"]

    def heapprof_listen(self, of):
        return [of.heapprof, "listen", "--udp", "127.0.0.1:0"]

    def ruby(self, of):
        of.say = "\n"
        return [find("ruby"), "-e", "k = []; while gets; 99999.times { |i| k << \"v #{i}\" }; end"]

    def php(self, of):
        of.say = "\n"
        return [find("php"), "-r", "$k = []; while (fgets(STDIN)) for ($i = 0; $i < 99999; $i++)"
                " $k[] = \"value $i\";"]

    def socat(self, of):
        return [find("socat"), f"TCP-LISTEN:{of.free_port()},bind=127.0.0.1,fork", "SYSTEM:cat"]

    def ncat(self, of):
        return [find("ncat"), "-lk", "127.0.0.1", str(of.free_port())]

    def C__30_threads(self, of):
        return self.steady(of, "threads")

    def C__huge_and_shared(self, of):
        return self.steady(of, "huge")

    def C__mlockall(self, of):
        return self.steady(of, "locked")

    def C__odd_names(self, of):
        return self.steady(of, "names")

    def C__forked(self, of):
        return self.steady(of, "forked")

    def C__static(self, of):
        return self.steady(of, "static", "-static")

    def steady(self, of, mode, *flags):
        of.say = "\n"
        source, path = of.write("steady.c", STEADY_C), of.dir + "/steady"
        of.call(find("gcc"), "-O1", "-pthread", "-w", *flags, source, "-o", path)
        return [path, mode]


# --- what the kernel says ---


def read(pid, name):
    with open(f"/proc/{pid}/{name}", errors="replace") as f:
        return f.read()


def kib_lines(text):
    """Lines such as `Rss:  12 kB`, in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)
    return {name: int(kib) * 1024 for name, kib in found}


def state(pid):
    """The kernel's letter for what a process does; empty if it is gone."""
    try:
        return read(pid, "stat").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def tree(pid):
    """A process and those that descend from it, without those that have ended."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        if state(one) in ("", "Z", "X"):
            continue
        found.append(one)
        for path in glob.glob(f"/proc/{one}/task/*/children"):
            try:
                with open(path) as f:
                    left += map(int, f.read().split())
            except OSError:
                pass
    return found


def signal_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def rss(pids):
    total = 0
    for pid in pids:
        try:
            total += int(read(pid, "statm").split()[1])
        except (OSError, IndexError):
            pass
    return total


def settle(programs, limit):
    """Waits until no program has grown, shrunk or made a process for two seconds."""
    before, quiet, end = None, 0, time.monotonic() + limit
    while quiet < 4 and time.monotonic() < end:
        pids = [tree(program.child.pid) for program in programs]
        now = [(len(of), rss(of) >> 6) for of in pids]
        quiet = quiet + 1 if now == before else 0
        before = now
        time.sleep(0.5)


# --- asking heapprof ---


def ask(words, pid):
    """What heapprof prints, and the kernel's sums while heapprof is there: it has read all that it
    will, and waits to write into a pipe that is full."""
    source, sink = os.pipe()
    fcntl.fcntl(sink, 1031, 4096)  # F_SETPIPE_SZ
    os.write(sink, b"\n" * fcntl.fcntl(sink, 1032))  # F_GETPIPE_SZ
    child = subprocess.Popen(words, stdout=sink, stderr=subprocess.PIPE)
    os.close(sink)
    with open(source, "rb") as pipe, child.stderr:
        end = time.monotonic() + 60
        while "pipe_write" not in read(child.pid, "wchan") and child.poll() is None:
            if time.monotonic() > end:
                child.kill()
            time.sleep(0.002)
        sums = kib_lines(read(pid, "smaps_rollup"))
        counters = kib_lines(read(pid, "status"))
        text, errors = pipe.read().decode(), child.stderr.read().decode()
    if child.wait() != 0:
        raise ValueError(f"exit code {child.returncode}: {errors.strip()[:200]}")
    return json.loads(text), sums, counters


def of_kernel(sums):
    return {field: sum(sums.get(line, 0) for line in lines) for field, lines in LINES.items()}


def unlike(what, found, expected):
    """A line for each number that is not the expected one."""
    return [f"{what}: {name} is {found.get(name)}, not {number}"
            for name, number in expected.items() if found.get(name) != number]


def added(rows):
    return {field: sum(row[field] for row in rows) for field in ["size", *LINES]}


def check_proc(heapprof, pid):
    """One process's JSON and text forms: the JSON, how often it was asked, what is wrong."""
    for tries in range(1, TRIES + 1):
        found, sums, counters = ask([heapprof, "proc", str(pid), "--format", "json"], pid)
        if "total" not in found:
            return found, tries, [f"no total: {found['missing']}"]
        wrong = unlike("smaps_rollup", found["total"], of_kernel(sums))
        wrong += unlike("status", counters, found["counters"])
        if not wrong and found["as_smaps_rollup"]:
            break
        time.sleep(0.1 * tries)
    if found["as_smaps_rollup"] is not True or found["missing"]:
        wrong.append(f"as_smaps_rollup is {found['as_smaps_rollup']}: {found['missing']}")
    for name in ["kinds", "mappings"]:
        sums = added(found[name])
        for field, cut in found["rounding"].items():
            sums[field] = sums.get(field, 0) + cut
        wrong += unlike(name + " and total", sums, found["total"])
        count = len(read(pid, "maps").splitlines())
        wrong += unlike(name, {"mappings": sum(row["mappings"] for row in found[name])},
                        {"mappings": count})
    # The kernel does not count the page that is at the same place in all processes.
    beyond = sum(row["size"] for row in found["mappings"] if row["name"] == "[vsyscall]")
    wrong += unlike("VmSize", found["total"], {"size": counters["VmSize"] + beyond})
    return found, tries, wrong + check_words(heapprof, pid, found)


def section(text, title):
    """The rows of a table below its title and its head; [] if there is none."""
    lines = iter(text.splitlines())
    if title and title not in lines:
        return []
    rows = []
    for line in lines:
        if not line and (rows or title):
            break
        if line:
            rows.append(line)
    return rows[1:]


def check_words(heapprof, pid, found):
    """Whether the text form explains each kind, each column and each counter that it has."""
    done = subprocess.run([heapprof, "proc", str(pid)], check=True, stdout=subprocess.PIPE)
    text = done.stdout.decode()
    rows = [re.split(r"\s{2,}", row, maxsplit=1) for row in section(text, "What the words mean")]
    words = {row[0] for row in rows if len(row) == 2 and row[1].strip()}
    head = re.search(r"^what +maps .*$", text, re.M)
    needed = {row["kind"] for row in found["kinds"]}
    needed |= set(head.group().split()) - {"what", "maps"} if head else {"a table"}
    wrong = [f"no words for {word}" for word in sorted(needed - words)]
    rows = [re.split(r"\s{2,}", row) for row in section(text, "What the kernel counts")]
    counters = {row[0] for row in rows if len(row) == 3 and row[2].strip()}
    for name, number in found["counters"].items():
        if number is not None and name not in counters:
            wrong.append(f"no words for the counter {name}")
    return wrong


def check_diff(heapprof, pid, before, file):
    """The same process later: how much more it has, how often it was asked, what is wrong."""
    with open(file, "w") as f:
        json.dump(before, f)
    for tries in range(1, TRIES + 1):
        words = [heapprof, "proc", "--diff", file, str(pid), "--format", "json"]
        found, sums, _ = ask(words, pid)
        rows = {row["what"]: row for row in found["rows"]}
        if "total" not in rows:
            return 0, tries, [f"no total: {found['missing']}"]
        total = rows.pop("total")
        wrong = unlike("--diff, now", total["now"], of_kernel(sums))
        if not wrong:
            break
        time.sleep(0.1 * tries)
    if found["missing"]:
        wrong.append(f"--diff: {found['missing']}")
    wrong += unlike("--diff, before", total["before"], before["total"])
    for part in ["before", "now", "change"]:
        sums = added([row[part] for row in rows.values()])
        wrong += unlike(f"--diff, {part}, rows and total", sums, total[part])
    for name, row in [*rows.items(), ("total", total)]:
        change = {field: row["now"][field] - row["before"][field] for field in sums}
        wrong += unlike(f"--diff, {name}, change", row["change"], change)
    known = {row["kind"]: row for row in before["kinds"]}
    for name, row in rows.items():
        if name != "(rounding)":
            expected = {field: known.get(name, {}).get(field, 0) for field in sums}
            wrong += unlike(f"--diff, {name}, before", row["before"], expected)
    return total["change"]["rss"], tries, wrong


# --- the measurements ---


class Row:
    """What was found of a program."""

    def __init__(self, program):
        self.program, self.wrong, self.kinds = program, [], set()
        self.seen = {}  # the JSON of each process
        self.tries = self.diff_tries = self.diffed = self.grown = self.ended = 0

    def each(self, look):
        """Stops the program, and calls `look` with each of its processes."""
        pids = tree(self.program.child.pid)
        signal_all(pids, signal.SIGSTOP)
        try:
            for pid in pids:
                end = time.monotonic() + 5
                while state(pid) not in ("T", "t", "") and time.monotonic() < end:
                    time.sleep(0.002)
            for pid in pids:
                try:
                    look(pid)
                except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
                    self.ended += state(pid) in ("", "Z", "X")
                    if state(pid) not in ("", "Z", "X"):
                        self.wrong.append(f"{pid}: {type(e).__name__}: {e}")
        finally:
            signal_all(pids, signal.SIGCONT)

    def look(self, heapprof):
        def one(pid):
            found, tries, wrong = check_proc(heapprof, pid)
            self.seen[pid] = found
            self.tries += tries
            self.wrong += [f"{pid} {found['name']}: {line}" for line in wrong]
            self.kinds |= {row["kind"] for row in found.get("kinds", [])}

        self.each(one)

    def look_again(self, heapprof):
        def one(pid):
            before = self.seen.get(pid)
            if before and "total" in before:
                file = os.path.join(self.program.dir, "before.json")
                grown, tries, wrong = check_diff(heapprof, pid, before, file)
                self.diffed += 1
                self.diff_tries += tries
                self.grown += grown
                self.wrong += [f"{pid} {before['name']}: {line}" for line in wrong]

        self.each(one)

    def total(self, field):
        return sum(found["total"][field] for found in self.seen.values() if "total" in found)


def mib(number):
    return f"{number / (1 << 20):,.1f}" if number else "-"


def table(rows):
    right = [":---", *["---:"] * (len(rows[0]) - 1)]
    for row in [rows[0], right, *rows[1:]]:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def show_proc(rows, skipped):
    lines = [["program", "processes", "mappings", "kinds", "rss, MiB", "pss", "shared", "huge",
              "locked", "rounding, KiB", "tries", "diffs", "tries", "rss since, MiB", "wrong"]]
    for row in rows:
        count = sum(kind["mappings"] for of in row.seen.values() for kind in of.get("kinds", []))
        shared = row.total("shared_clean") + row.total("shared_dirty")
        rounding = sum(of.get("rounding", {}).get("pss", 0) for of in row.seen.values()) >> 10
        lines.append([row.program.name, len(row.seen), f"{count:,}", len(row.kinds),
                      mib(row.total("rss")), mib(row.total("pss")), mib(shared),
                      mib(row.total("huge")), mib(row.total("locked")), rounding or "-",
                      row.tries, row.diffed, row.diff_tries, mib(row.grown),
                      len(row.wrong) or "-"])
    table(lines)
    if skipped:
        print("Left out: " + "; ".join(skipped) + "\n")
    processes, diffed = sum(len(row.seen) for row in rows), sum(row.diffed for row in rows)
    more = sum(row.tries for row in rows) + sum(row.diff_tries for row in rows)
    kinds = set().union(*(row.kinds for row in rows))
    bad = [row for row in rows if row.wrong or not row.seen]
    for row in bad:
        for line in row.wrong or ["no process was seen"]:
            print(f"  {row.program.name}: {line}", file=sys.stderr)
    is_good = not bad and len(rows) >= LEAST_PROGRAMS
    print(f"Verdict of proc: {'good' if is_good else 'WRONG'}. {len(rows)} programs, {processes} "
          f"processes and {diffed} differences, asked again {more - processes - diffed} times; "
          f"something is wrong with {len(bad)} of the programs. "
          f"Kinds: {', '.join(sorted(kinds))}.\n")
    return is_good


def compare_pss(heapprof):
    """heapprof's sum of all processes beside smem's, for those that both have."""
    words = [heapprof, "proc", "--format", "json"]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    ours = {row["pid"]: row["usage"]["pss"] for row in found["rows"] if row.get("usage")}
    words = ["smem", "-c", "pid pss", "-H"]
    text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    theirs = {int(pid): int(kib) * 1024 for pid, kib in map(str.split, text.splitlines())}
    both = sorted(set(ours) & set(theirs))
    rounding = 0
    for pid in both:
        done = subprocess.run([heapprof, "proc", str(pid), "--format", "json"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            rounding += json.loads(done.stdout).get("rounding", {}).get("pss", 0)
    our_sum, their_sum = (sum(of[pid] for pid in both) for of in [ours, theirs])
    apart = our_sum - their_sum
    percent = 100 * abs(apart) / their_sum
    kib = lambda number: f"{number / 1024:,.0f}"
    table([
        ["pss", "processes", "KiB"],
        ["heapprof proc, all", len(ours), kib(found["total"]["pss"])],
        ["heapprof proc, of which smem has too", len(both), kib(our_sum)],
        ["smem, the same", len(both), kib(their_sum)],
        ["between them", "", f"{kib(apart)} ({percent:.3f} %)"],
        ["of which smem loses by rounding", "", kib(rounding)],
        ["the rest, which has come and gone", "", kib(apart - rounding)],
        ["only in heapprof", len(set(ours) - set(theirs)), ""],
        ["only in smem", len(set(theirs) - set(ours)), ""],
        ["can't be read", found["unread"], ""],
    ])
    adds_up = found["total"]["pss"] == sum(ours.values())
    is_good = percent < MOST_PERCENT and adds_up and bool(both)
    rows = "the rows" if adds_up else "NOT what the rows"
    print(f"Verdict of pss: {'good' if is_good else 'WRONG'}. heapprof and smem are "
          f"{percent:.3f} % apart; the total is {rows} add up to.\n")
    return is_good


def compare_time(heapprof, rows):
    """How long heapprof takes beside one reading of the same file."""
    seen = {pid: of for row in rows for pid, of in row.seen.items() if state(pid)}
    count = {pid: len(read(pid, "maps").splitlines()) for pid in seen}
    if not seen:
        return
    largest = max(seen, key=lambda pid: rss([pid]))
    most = max(seen, key=lambda pid: count[pid])
    lines = [["time", "rss, MiB", "mappings", "cat smaps, ms", "heapprof proc, ms", "ratio"]]
    ratios = []
    for why, pid in [("the largest", largest), ("the most mappings", most)]:
        took = {}
        for run in range(3):
            for words in (["cat", f"/proc/{pid}/smaps"], [heapprof, "proc", str(pid)]):
                began = time.perf_counter()
                subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
                took.setdefault(words[0], []).append((time.perf_counter() - began) * 1000)
        cat, own = took.values()
        ratios.append(statistics.median(own) / statistics.median(cat))
        all_of = lambda times: ", ".join(f"{of:.1f}" for of in times)
        lines.append([f"{why}: {seen[pid]['name']!r}", mib(rss([pid]) * 4096), f"{count[pid]:,}",
                      all_of(cat), all_of(own), f"{ratios[-1]:.2f}"])
    table(lines)
    print(f"heapprof takes {ratios[0]:.2f} times as long as one reading of smaps for the largest "
          f"process, and {ratios[1]:.2f} times for the one with the most mappings (medians).\n")


def start(folder, heapprof, only):
    """The programs that run, and those that are not here."""
    programs, skipped, wrong = [], [], []
    commands, copy = Programs(), shutil.copy(heapprof, os.path.join(folder, "heapprof"))
    for method in [name for name in vars(Programs) if name not in ("steady",)]:
        name = method.replace("__", ", ").replace("_", " ")
        if method.startswith("_") or not re.search(only, name):
            continue
        program = Program(os.path.join(folder, method), copy)
        program.name = name
        os.mkdir(program.dir)
        os.chmod(program.dir, 0o755)
        try:
            program.start(getattr(commands, method)(program))
        except Missing as e:
            skipped.append(f"{name} (no {e})")
            continue
        except subprocess.CalledProcessError as e:
            wrong.append(f"{name}: {e} {e.stderr[:300]!r}")
            continue
        programs.append(program)
        if method == "postgres":  # the next one is its client
            program.wait()
    for program in programs:
        if program.name != "postgres":
            program.wait()
    with open("/proc/meminfo") as f:
        memory = f.read()
    for line, what in [("SwapTotal", "what is swapped out"), ("HugePages_Total", "hugetlbfs")]:
        if re.search(rf"^{line}: +0\b", memory, re.M):
            skipped.append(f"{what} (this machine has {line} 0)")
    return programs, skipped, wrong


def ended(programs):
    """A line for each program that has ended although it should not have."""
    lines = []
    for program in programs:
        if program.child.poll() is not None:
            with open(program.dir + "/stderr", errors="replace") as f:
                lines.append(f"{program.name}: ended with {program.child.returncode}: "
                             f"{f.read().strip()[-300:]}")
    return lines


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def stop(programs):
    """Stops all that was started, and what has lost its parent: that became this one's child."""
    for program in reversed(programs):
        if program.child.poll() is None:
            signal_all([program.child.pid], program.stop)
    for number in [0, signal.SIGTERM, signal.SIGKILL]:
        if number:
            signal_all(tree(os.getpid())[1:], number)
        end = time.monotonic() + 5
        while len(tree(os.getpid())) > 1 and time.monotonic() < end:
            for program in programs:
                program.child.poll()
            reap()
            time.sleep(0.05)
    return tree(os.getpid())[1:]


def measure(heapprof, folder, only):
    programs, skipped, wrong = [], [], []
    try:
        programs, skipped, wrong = start(folder, heapprof, only)
        settle(programs, 60)
        wrong += ended(programs)
        rows = [Row(program) for program in programs if program.child.poll() is None]
        for row in rows:
            row.look(heapprof)
        is_good = compare_pss(heapprof) if not only else True
        for row in rows:
            try:
                row.program.grow()
            except (OSError, http.client.HTTPException, subprocess.SubprocessError) as e:
                wrong.append(f"{row.program.name}: does not grow: {type(e).__name__}: {e}")
        time.sleep(1)
        settle(programs, 60)
        for row in rows:
            row.look_again(heapprof)
        wrong += ended([row.program for row in rows])
        is_good &= show_proc(rows, skipped)
        compare_time(heapprof, rows)
    finally:
        left = stop(programs)
    for line in [*wrong, *(f"process {pid} is left" for pid in left)]:
        print(f"  {line}", file=sys.stderr)
    return is_good and not wrong and not left


def main():
    ap = argparse.ArgumentParser(usage=__doc__)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default="")
    a = ap.parse_args()

    def give_up(number, frame):
        raise SystemExit(f"ended by signal {number}")

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, give_up)
    signal.alarm(LIMIT)
    # What loses its parent becomes this process's child, so that it can be found at the end.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    folder = tempfile.mkdtemp(prefix="heapprof-processes-")
    os.chmod(folder, 0o755)
    try:
        is_good = measure(os.path.abspath(a.heapprof), folder, a.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Walks the heaps of servers under load, to see whether any request or signal is lost by the hold.

usage: oracle/heapwalk_load.py HEAPPROF [ROUNDS=200] [KILLS=100]
needs: cc, memcached, nginx; wrk is used too, if it is there; root, or ptrace of one's own processes

memcached with some hundred MB of values, a worker of nginx, and a program that counts its signals
(SIGNALS below) are walked ROUNDS times each while clients check every reply. Then heapprof is
killed in the middle of KILLS walks of each, most of them while it holds the target, which has to go
on each time. Exit code 0 only if no request is lost, no signal is lost, comes twice or out of
order, no system call is interrupted by a walk, and no walk fails.
"""

import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HEAPPROF = str(pathlib.Path(sys.argv[1]).resolve())
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 100
CLIENTS, KEYS, VALUE = 3, 1000, 100_000  # 300 MB in memcached

SIGNALS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Signals of three kinds: numbered and handled, numbered and waited for, of a timer.
#define HANDLED (SIGRTMIN + 1)
#define WAITED (SIGRTMIN + 2)
#define TIMER (SIGRTMIN + 3)
#define MS 1000000L

static atomic_ulong handled, handled_wrong, waited, waited_wrong, ticks;
static atomic_ulong interrupted, allocations, threads;
static char *volatile kept[4096];

static void number(siginfo_t *info, atomic_ulong *next, atomic_ulong *wrong) {
    unsigned long n = (unsigned)info->si_value.sival_int;
    if (n != *next) ++*wrong;
    *next = n + 1;
}
static void on_signal(int which, siginfo_t *info, void *context) {
    (void)context;
    if (which == TIMER) ticks += 1 + info->si_overrun;
    else number(info, &handled, &handled_wrong);
}
static void churn(unsigned *seed) {
    char *blocks[64] = {0};
    for (int i = 0; i < 200; i++) {
        char **one = &blocks[rand_r(seed) % 64];
        free(*one);
        size_t size = 1 + rand_r(seed) % (rand_r(seed) % 64 ? 2000 : 300000);
        *one = malloc(size);
        memset(*one, 7, size < 64 ? size : 64);
        allocations++;
    }
    for (int i = 0; i < 64; i++) free(blocks[i]);
}
static void *allocates(void *arg) {
    unsigned seed = (unsigned)(long)arg;
    for (;;) {
        churn(&seed);
        usleep(300);
    }
}
static void *handles(void *arg) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, HANDLED);
    sigaddset(&set, TIMER);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return allocates(arg);
}
static void *waits(void *arg) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, WAITED);
    for (;;)
        if (sigwaitinfo(&set, &info) == WAITED) number(&info, &waited, &waited_wrong);
        else interrupted++;
    return arg;
}
// All signals are blocked in this thread, so none of its calls may be interrupted.
static void *calls(void *arg) {
    int pair[2], epoll = epoll_create1(0), sem = semget(IPC_PRIVATE, 1, 0600);
    struct timespec wait = {0, 5 * MS};
    struct timeval limit = {0, 5000};
    sigset_t none;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sigemptyset(&none);
    sigaddset(&none, SIGUSR2);
    semctl(sem, 0, SETVAL, 0);
    struct sembuf take = {0, -1, 0};
    struct epoll_event event;
    char byte;
    for (;;) {
        if (epoll_wait(epoll, &event, 1, 5) != 0) interrupted++;
        if (recv(pair[0], &byte, 1, 0) < 0 && errno == EINTR) interrupted++;
        if (clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL) != 0) interrupted++;
        if (sigtimedwait(&none, NULL, &wait) < 0 && errno == EINTR) interrupted++;
        if (semtimedop(sem, &take, 1, &wait) < 0 && errno == EINTR) interrupted++;
        if (poll(NULL, 0, 5) != 0) interrupted++;
    }
    return arg;
}
static void *is_short(void *arg) {
    unsigned seed = (unsigned)(long)arg;
    churn(&seed);
    return NULL;
}
static void *begins_threads(void *arg) {
    for (long n = 0;; n++) {
        pthread_t one;
        if (pthread_create(&one, NULL, is_short, (void *)n) == 0) pthread_join(one, NULL);
        threads++;
        usleep(500);
    }
    return arg;
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}
static void *answers(void *arg) {
    char line[64];
    double *began = arg;
    while (fgets(line, sizeof line, stdin)) {
        double due = now() - *began;
        printf("{\"handled\": %lu, \"handled_wrong\": %lu, \"waited\": %lu, \"waited_wrong\": %lu,"
               " \"ticks\": %lu, \"due\": %.0f, \"interrupted\": %lu, \"allocations\": %lu,"
               " \"threads\": %lu}\n", handled, handled_wrong, waited, waited_wrong, ticks, due,
               interrupted, allocations, threads);
        fflush(stdout);
    }
    _exit(0);
}
static int sends(pid_t to) {
    struct pollfd in = {0, POLLIN, 0};
    unsigned n = 0;
    for (; poll(&in, 1, 0) == 0; n++) {
        union sigval value = {.sival_int = (int)n};
        while (sigqueue(to, HANDLED, value) < 0 && errno == EAGAIN) usleep(1000);
        while (sigqueue(to, WAITED, value) < 0 && errno == EAGAIN) usleep(1000);
        usleep(150);
    }
    printf("%u\n", n);
    return 0;
}
int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "send")) return sends(atoi(words[2]));
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t all;
    pthread_t one;
    static double began;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    sigaction(HANDLED, &action, NULL);
    sigaction(TIMER, &action, NULL);
    for (int i = 0; i < 4096; i++) memset(kept[i] = malloc(16384), 1, 16384);
    for (long i = 0; i < 4; i++) pthread_create(&one, NULL, allocates, (void *)(i + 1));
    pthread_create(&one, NULL, handles, (void *)99);
    pthread_create(&one, NULL, waits, NULL);
    for (int i = 0; i < 3; i++) pthread_create(&one, NULL, calls, NULL);
    pthread_create(&one, NULL, begins_threads, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = TIMER};
    struct itimerspec each = {{0, MS}, {0, MS}};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    began = now();
    timer_settime(timer, 0, &each, NULL);
    pthread_create(&one, NULL, answers, &began);
    if (count > 1 && !strcmp(words[1], "leaderless")) pthread_exit(NULL);
    while (count > 1 && !strcmp(words[1], "spins")) allocations++;
    for (;;) pause();
}
"""

NGINX = """
worker_processes 1;
daemon off;
error_log %(folder)s/error.log;
pid %(folder)s/pid;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %(folder)s/a; proxy_temp_path %(folder)s/b;
    fastcgi_temp_path %(folder)s/c; uwsgi_temp_path %(folder)s/d; scgi_temp_path %(folder)s/e;
    keepalive_requests 1000;
    server {
        listen 127.0.0.1:%(port)d;
        gzip on; gzip_min_length 100; gzip_types *;
        root %(folder)s/www;
    }
}
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(check, seconds=10.0):
    """Waits until something is so; returns whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if check():
                return True
        except OSError:
            pass
        time.sleep(0.01)
    return False


def fields(pid, tid, *names):
    text = pathlib.Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return [re.search(rf"^{name}:\s*(\S+)", text, re.M).group(1) for name in names]


def not_running(pid):
    """What is wrong with the threads of a process that nobody should hold."""
    wrong = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            state, tracer = fields(pid, tid, "State", "TracerPid")
        except OSError:
            continue
        if state in "Tt" or tracer != "0":
            wrong.append(f"thread {tid}: state {state}, traced by {tracer}")
    return wrong


class Load:
    """Clients that ask until they are told to end, and count what they got."""

    def __init__(self):
        self.lock = threading.Lock()
        self.is_over = False
        self.done, self.lost, self.reasons = 0, 0, []
        self.threads = []

    def begin(self, ask, count):
        def loop(number):
            asked = ask(number)
            while not self.is_over:
                try:
                    reason = next(asked)
                except Exception as error:  # any is a lost request
                    reason, asked = repr(error), ask(number)
                with self.lock:
                    self.done += 1
                    if reason:
                        self.lost += 1
                        self.reasons.append(reason)
        self.threads = [threading.Thread(target=loop, args=(i,)) for i in range(count)]
        for one in self.threads:
            one.start()

    def end(self):
        self.is_over = True
        for one in self.threads:
            one.join()


class Memcached:
    name = "memcached"

    def __init__(self, folder):
        self.port = free_port()
        words = ["memcached", "-m", "2048", "-t", "4", "-l", "127.0.0.1", "-p", str(self.port)]
        words += ["-u", "nobody"] if os.getuid() == 0 else []
        self.process = subprocess.Popen(words)
        self.pid = self.process.pid
        assert until(self.answers), "memcached does not answer"
        self.versions = [[0] * KEYS for _ in range(CLIENTS)]
        for number in range(CLIENTS):
            one = self.connect()
            for key in range(KEYS):
                assert self.set(one, number, key, 0) is None
        self.load = Load()
        self.load.begin(self.ask, CLIENTS)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 20).makefile("rwb")

    @staticmethod
    def value(number, key, version):
        text = f"{number} {key} {version} ".encode()
        return (text * (VALUE // len(text) + 1))[:VALUE]

    def set(self, one, number, key, version):
        data = self.value(number, key, version)
        one.write(b"set %d-%d 0 0 %d\r\n%b\r\n" % (number, key, len(data), data))
        one.flush()
        line = one.readline()
        return None if line == b"STORED\r\n" else f"set: {line}"

    def get(self, one, number, key, version):
        one.write(b"get %d-%d\r\n" % (number, key))
        one.flush()
        line = one.readline()
        if line != b"VALUE %d-%d 0 %d\r\n" % (number, key, VALUE):
            return f"get: {line}"
        data = one.read(VALUE)
        end = one.read(7)
        right = data == self.value(number, key, version) and end == b"\r\nEND\r\n"
        return None if right else "get: another value"

    def ask(self, number):
        one, versions = self.connect(), self.versions[number]
        draw = random.Random(number)
        while True:
            key = draw.randrange(KEYS)
            if draw.random() < 0.3:
                reason = self.set(one, number, key, versions[key] + 1)
                versions[key] += 1
                yield reason
            else:
                yield self.get(one, number, key, versions[key])

    def answers(self):
        one = self.connect()
        one.write(b"version\r\n")
        one.flush()
        return one.readline().startswith(b"VERSION")

    def end(self):
        self.load.end()
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        return [] if alive else ["memcached has ended"]


class Nginx:
    name = "nginx"

    def __init__(self, folder):
        self.port, folder = free_port(), pathlib.Path(folder)
        folder.chmod(0o755)
        (folder / "www").mkdir()
        self.text = b"some words of a page\n" * 500
        (folder / "www/page").write_bytes(self.text)
        (folder / "conf").write_text(NGINX % {"folder": folder, "port": self.port})
        self.process = subprocess.Popen(["nginx", "-c", str(folder / "conf")],
                                        stderr=subprocess.DEVNULL)
        assert until(self.answers), "nginx does not answer"
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        self.pid = int(children.split()[0])
        self.load = Load()
        self.load.begin(self.ask, 4)
        self.wrk = None
        if shutil.which("wrk"):
            words = ["wrk", "-t1", "-c16", "-d3600", "--timeout", "20s", "-H",
                     "Accept-Encoding: gzip", f"http://127.0.0.1:{self.port}/page"]
            self.wrk = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def one(self, connection):
        connection.request("GET", "/page")
        reply = connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            return f"status {reply.status}"
        return None if body == self.text else "another body"

    def ask(self, _):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while True:
            yield self.one(connection)

    def answers(self):
        return self.one(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) is None

    def end(self):
        self.load.end()
        wrong = []
        if self.wrk:
            self.wrk.send_signal(signal.SIGINT)
            out, _ = self.wrk.communicate(timeout=30)
            self.load.done += int(re.search(r"(\d+) requests in", out).group(1))
            wrong = re.findall(r"Non-2xx.*|Socket errors.*", out)
        if not os.path.exists(f"/proc/{self.pid}") or self.process.poll() is not None:
            wrong.append("nginx or its worker has ended")
        self.process.terminate()
        self.process.wait()
        return wrong


class Signals:
    name = "signals"

    def __init__(self, folder, mode="run"):
        built = folder + "/signals"
        pathlib.Path(built + ".c").write_text(SIGNALS)
        subprocess.run(["cc", "-O2", "-pthread", "-o", built, built + ".c", "-lrt"], check=True)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([built, mode], **pipes)
        self.pid = self.process.pid
        self.counts()
        self.sender = subprocess.Popen([built, "send", str(self.pid)], **pipes)
        self.load = Load()
        self.before_kills, self.was_stopped = None, mode == "spins"

    def counts(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def answers(self):
        before = self.counts()
        return until(lambda: all(self.counts()[name] > before[name] for name in
                                 ("handled", "waited", "ticks", "allocations", "threads")))

    def end(self):
        sent = int(self.sender.communicate("\n")[0])
        until(lambda: self.counts()["handled"] == sent and self.counts()["waited"] == sent, 5)
        last = self.counts()
        wrong = []
        for name in "handled", "waited":
            self.load.done += last[name]
            if last[name] != sent or last[name + "_wrong"]:
                wrong.append(f"{sent} sent, {last[name]} {name}, {last[name + '_wrong']} wrong")
        if abs(last["ticks"] - last["due"]) > 3:
            wrong.append(f"a timer: {last['ticks']} ticks, {last['due']} are due")
        before = last if self.before_kills is None else self.before_kills
        # Where the kernel stops the whole process, some calls end with EINTR by its own rules.
        if before["interrupted"] and not self.was_stopped:
            wrong.append(f"{before['interrupted']} system calls interrupted by walks")
        print(f"    {sent} signals of two kinds each, {last['ticks']} ticks of {last['due']} due, "
              f"{last['threads']} threads begun, {before['interrupted']} calls interrupted by "
              f"walks, {last['interrupted'] - before['interrupted']} by kills")
        self.process.communicate()
        return wrong


def walk(pid):
    """Walks; returns how long it was held, how much was copied, and why it failed."""
    try:
        done = subprocess.run([HEAPPROF, "heapwalk", f"pid:{pid}", "-f", "json"],
                              capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None, None, "it takes more than 60 s"
    if done.returncode:
        return None, None, f"exit {done.returncode}: {done.stderr.strip()[:200]}"
    notes = json.loads(done.stdout)["notes"]
    found = re.search(r"suspended for ([\d.]+) ms while (\S+) were", notes[0])
    extra = [note for note in notes[1:] if "missing" in note or "could not be walked" in note]
    return float(found.group(1)), found.group(2), "; ".join(extra) or None


def kill_walks(target, duration, hold):
    """Kills heapprof in the middle of walks; returns how often it held then, and what is wrong."""
    draw, wrong, holding = random.Random(11), [], 0
    for number in range(KILLS):
        one = subprocess.Popen([HEAPPROF, "heapwalk", f"pid:{target.pid}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number % 4 == 0:
            time.sleep(draw.uniform(0, duration))
        else:
            # It holds the target from the moment at which it is the tracer.
            tracer = "0"
            while tracer == "0" and one.poll() is None:
                tracer, = fields(target.pid, target.pid, "TracerPid")
            # A hold that is shorter than a look would be over.
            time.sleep(draw.uniform(0, hold) if hold > 0.005 else 0)
        try:
            holding += fields(target.pid, target.pid, "TracerPid") == [str(one.pid)]
        except OSError:
            pass
        one.kill()
        one.wait()
        if not until(lambda: not not_running(target.pid), 2):
            wrong.append(f"kill {number}: {not_running(target.pid)[:2]}")
        try:
            if not target.answers():
                wrong.append(f"kill {number}: it does not answer")
        except (OSError, ValueError) as error:
            wrong.append(f"kill {number}: {error!r}")
            break
    return holding, wrong


def run(kind, folder):
    """All walks of one kind of server; returns what is wrong."""
    target = kind(folder)
    time.sleep(0.5)
    holds, copied, failed, times = [], "", [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        held, copy, reason = walk(target.pid)
        times.append(time.monotonic() - began)
        if held is not None:
            holds.append(held)
            copied = copy
        if reason:
            failed.append(reason)
    if isinstance(target, Signals):
        target.before_kills = target.counts()
    median = statistics.median(holds) if holds else 0
    holding, wrong = kill_walks(target, statistics.median(times), median / 1000)
    ended = target.end()
    load = target.load
    print(f"{target.name}: {ROUNDS} walks, {len(failed)} failed; {load.done} requests or signals, "
          f"{load.lost} lost; held for {median:.1f} ms in the median, "
          f"{max(holds, default=0):.1f} ms at most, while {copied} were copied; a walk takes "
          f"{statistics.median(times) * 1000:.0f} ms; killed {KILLS} times, {holding} of them "
          f"while it held, {len(wrong)} wrong")
    failures = failed + load.reasons + wrong + ended
    counts = {reason: failures.count(reason) for reason in failures}
    for reason, count in list(counts.items())[:8]:
        print(f"    {count} times: {reason}")
    return len(failures)


def run_leaderless(folder):
    """The main thread has ended, the others go on."""
    target = Signals(folder, "leaderless")
    until(lambda: fields(target.pid, target.pid, "State") == ["Z"])
    reasons = [walk(target.pid)[2] for _ in range(20)]
    failures = [reason for reason in reasons if reason] + target.end()
    print(f"a process without its main thread: 20 walks, {len(failures)} wrong")
    for reason in sorted(set(failures))[:4]:
        print("   ", reason)
    return len(failures)


def run_stopped(folder):
    """Stopped by SIGSTOP, it stays so, and nothing of it runs."""
    target = Signals(folder, "spins")
    os.kill(target.pid, signal.SIGSTOP)
    stats = pathlib.Path(f"/proc/{target.pid}/stat")
    words = lambda: stats.read_text().rpartition(")")[2].split()
    assert until(lambda: words()[0] == "T")
    failures = []
    ran = int(words()[11])
    for number in range(20):
        _, _, reason = walk(target.pid)
        failures += [reason] if reason else []
        states = []
        for tid in os.listdir(f"/proc/{target.pid}/task"):
            until(lambda: fields(target.pid, tid, "State") == ["T"], 1)
            states += fields(target.pid, tid, "State", "TracerPid")
        if set(states) != {"T", "0"}:
            failures.append(f"walk {number}: it is stopped no longer: {sorted(set(states))}")
    ran = int(words()[11]) - ran
    if ran > 2:
        failures.append(f"it has run for {ran}0 ms although it was stopped")
    os.kill(target.pid, signal.SIGCONT)
    failures += [] if target.answers() else ["it does not go on"]
    failures += target.end()
    print(f"a stopped process: 20 walks, {len(failures)} wrong")
    for reason in sorted(set(failures))[:4]:
        print("   ", reason)
    return len(failures)


def main():
    failures = 0
    for kind in Signals, Nginx, Memcached:
        with tempfile.TemporaryDirectory() as folder:
            failures += run(kind, folder)
        sys.stdout.flush()
    for more in run_leaderless, run_stopped:
        with tempfile.TemporaryDirectory() as folder:
            failures += more(folder)
    print(f"{failures} wrong")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

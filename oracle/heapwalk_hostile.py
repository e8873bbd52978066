#!/usr/bin/env python3
"""Walks damaged heaps, in core files and in processes, to see that heapwalk ends well on each.

usage: oracle/heapwalk_hostile.py HEAPPROF [CORES=10000] [LIVE=1000] [--only KIND] [--keep FOLDER]
needs: cc, gdb (gcore); glibc 2.27 to 2.41 as the libc of this machine

Mutants of a core file, cores made to be slow or large, cut cores, and processes that damage their
own heap. Each walk has to end within 20 s and 2 GiB of addresses, with exit code 0, or 2 and one
line that says why; a process has to live on; and of a cut core the output says what is missing.
Failures are told by kind and number, which --only core:N or live:N runs again, and --only made all
but those two kinds. --keep keeps the cores of failures.
"""

import argparse
import collections
import ctypes
import multiprocessing
import os
import pathlib
import random
import re
import resource
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ARGS = argparse.ArgumentParser(description=__doc__,
                               formatter_class=argparse.RawDescriptionHelpFormatter)
ARGS.add_argument("heapprof", type=lambda path: str(pathlib.Path(path).resolve()))
ARGS.add_argument("cores", type=int, nargs="?", default=10000)
ARGS.add_argument("live", type=int, nargs="?", default=1000)
ARGS.add_argument("--only")
ARGS.add_argument("--keep", type=pathlib.Path)
SECONDS, ADDRESSES = 20, 2 << 30
RESERVED = 64 << 20  # the bytes that a part of an arena reserves
NEXT, SYSTEM_MEMORY, TOP, FAST, BINS = 0x870, 0x888, 0x60, 0x10, 0x70  # in malloc_state
NO_ASLR = 0x40000

VICTIM = r"""
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
typedef uint64_t word;
#define MASK (~((64ull << 20) - 1))
enum { THREADS = 4, BLOCKS = 400, PLACES = 100000 };
static char *blocks[THREADS + 1][BLOCKS];
static char is_freed[THREADS + 1][BLOCKS];
static char *large[4], *mapped[4];
static pthread_barrier_t ready;
struct node { struct node *next; word number; };
static struct node *list;
static word state = 88172645463325252ull;
static word draw(word most) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (state >> 11) % most;
}
static void fill(int thread) {
    unsigned seed = thread + 1;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = i % 4 == 0 ? 24 : i % 4 == 1 ? 40 : 1 + rand_r(&seed) % 3000;
        char *one = blocks[thread][i] = malloc(size);
        memset(one, i % 3 ? 0 : 'x', size);
        if (i > 2 && size > 16) memcpy(one + 8, &blocks[thread][rand_r(&seed) % i], 8);
    }
    for (int i = 3; i < BLOCKS; i++)
        if (rand_r(&seed) % 2) free(blocks[thread][i]), is_freed[thread][i] = 1;
    free(malloc(5000));
}
static void *thread(void *arg) {
    fill((int)(long)arg);
    if ((long)arg == 1) for (int i = 0; i < 3; i++) large[i] = malloc(30 << 20), *large[i] = 1;
    pthread_barrier_wait(&ready);
    for (;;) syscall(SYS_pause);
}
static word *places[PLACES];
static int count;
static void place(word at, int words) {
    for (int i = 0; i < words && count < PLACES; i++) places[count++] = (word *)at + i;
}
static void damage(word seed) {
    word arenas[64], heaps[8], at = *(word *)((word)blocks[1][0] & MASK);
    int n = 0, h = 0;
    for (; n < 64 && (!n || at != arenas[0]); at = *(word *)(at + 0x870)) arenas[n++] = at;
    for (int i = 0; i < n; i++) {
        place(arenas[i], 4); place(arenas[i] + 0x60, 6); place(arenas[i] + 0x868, 6);
        place(arenas[i], 275);
        // The main one is libc's. The others begin behind the head of their first part.
        if ((arenas[i] & ~MASK) != (arenas[0] & ~MASK)) continue;
        for (int k = 0; k < 8; k++) place(arenas[i] & MASK, 4);
        for (word tcache = arenas[i] + 0x880; tcache < arenas[i] + 0x8c0; tcache += 8)
            if (*(word *)tcache == 0x295) place(tcache, 82);
    }
    place((word)blocks[0][0] & ~4095ull, 83);
    for (int i = 0; i < 3; i++) {
        heaps[h++] = (word)large[i] & MASK;
        for (int k = 0; k < 8; k++) place(heaps[i], 4);
        place((word)large[i] - 16, 2); place((word)mapped[i] - 16, 2);
    }
    for (int t = 0; t <= THREADS; t++)
        for (int i = 0; i < BLOCKS; i++)
            place((word)blocks[t][i] - 16, is_freed[t][i] ? 4 : 2);
    state ^= seed * 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < 20; i++) draw(2);
    for (word left = 1 + draw(12); left; left--) {
        word *to = places[draw(count)];
        word *from = places[draw(count)], own = (word)to, value;
        switch (draw(14)) {
        case 0: value = 0; break;
        case 1: value = 1ull << draw(64); break;
        case 2: value = -1ull << draw(64); break;
        case 3: value = own; break;
        case 4: value = own - 16; break;
        case 5: value = (own >> 12) ^ (word)from; break;
        case 6: value = (own >> 12) ^ own; break;
        case 7: value = arenas[draw(n)]; break;
        case 8: value = (arenas[draw(n)] & MASK); break;
        case 9: value = heaps[draw(h)]; break;
        case 10: value = *from; break;
        case 11: value = draw(1ull << 53); break;
        case 12: value = (1ull << 45) + 4096 * draw(100) + draw(8); break;
        default: value = (word)from; break;
        }
        *to = value;
        if (draw(16) == 0)
            for (word k = draw(64); k; k--)
                places[(to - (word *)0 + k) % count][0] = draw(1ull << 53) * draw(1ull << 53);
    }
}
int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    pthread_attr_t small;
    pthread_t one;
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    fill(0);
    for (int i = 0; i < 3; i++) memset(mapped[i] = malloc(300000 + i * 70000), 5, 4096);
    mapped[3] = memalign(65536, 400000);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    long nodes = !strcmp(mode, "list") ? number : 500;
    word last = 0;
    for (long i = 0; i < nodes; i++) {
        struct node *next = malloc(sizeof *next);
        *next = (struct node){list, i};
        list = next;
        // Hidden, so that the list alone leads there.
        if (i == 1) last = ~(word)next;
    }
    for (long i = 1; i <= THREADS; i++) pthread_create(&one, &small, thread, (void *)i);
    pthread_barrier_wait(&ready);
    if (!strcmp(mode, "reserve"))
        mmap(NULL, (word)number << 30, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!strcmp(mode, "maps"))
        for (long i = 0; i < number; i++) {
            char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
            *page = 1;
            mprotect(page + 4096, 4096, PROT_NONE);
        }
    if (!strcmp(mode, "abort")) abort();
    dprintf(1, "%#lx %#lx %#lx\n", (word)blocks[1][0], (word)blocks[0][0], last);
    if (!strcmp(mode, "damage")) damage(number);
    char byte;
    while (syscall(SYS_read, 0, &byte, 1) == 1) syscall(SYS_write, 1, &byte, 1);
    _exit(0);
}
"""

SEGMENT = struct.Struct("<IIQQQQQQ")
NOTE, LOAD, WRITE = 4, 1, 2


def elf(segments, notes, data):
    """A core file of (address, offset in data, bytes in the file, bytes of memory, flags)."""
    head = 64 + SEGMENT.size * (len(segments) + 1)
    begin = (head + len(notes) + 4095) & ~4095
    text = bytearray(struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 4, 62, 1, 0, 64, 0,
                                 0, 64, SEGMENT.size, len(segments) + 1, 0, 0, 0))
    text += SEGMENT.pack(NOTE, 0, head, 0, 0, len(notes), len(notes), 4)
    for at, offset, there, size, flags in segments:
        text += SEGMENT.pack(LOAD, flags, begin + offset, at, 0, there, size, 4096)
    text += notes
    text += bytes(begin - len(text))
    return bytes(text + data)


def note(kind, body):
    head = struct.pack("<III", 5, len(body), kind)
    return head + b"CORE\0\0\0\0" + body + b"\0" * (-len(body) % 4)


def thread_note(tid, stack):
    registers = [0] * 27
    registers[19] = stack
    return note(1, bytes(32) + struct.pack("<I", tid) + bytes(76)
                + struct.pack("<27Q", *registers) + bytes(8))


class Core:
    """A core file: where its segments are, and what malloc has in it."""

    def __init__(self, text):
        self.text = text
        offset, = struct.unpack_from("<Q", text, 32)
        count, = struct.unpack_from("<H", text, 56)
        self.table = range(offset, offset + count * SEGMENT.size, SEGMENT.size)
        self.loads, self.note = [], (0, 0)
        for at in self.table:
            kind, flags, offset, address, _, there, size, _ = SEGMENT.unpack_from(text, at)
            if kind == NOTE:
                self.note = (offset, there)
            elif kind == LOAD:
                self.loads.append((address, offset, there, size, flags))
        self.writable = [one for one in self.loads if one[4] & WRITE and one[2]]

    def missing(self, length):
        """How many bytes of what the program could write a file of this length lacks."""
        return sum(size - max(0, min(there, length - offset))
                   for _, offset, there, size, flags in self.loads if flags & WRITE)

    def compact(self):
        """The same without zeros: much smaller, and with the same blocks."""
        data, segments = bytearray(), []
        for address, offset, there, size, flags in self.loads:
            if not flags & WRITE:
                segments.append((address, 0, 0, size, flags))
                continue
            pages = range(0, there, 4096)
            is_full = [any(self.text[offset + page:offset + page + 4096]) for page in pages]
            for page, full in zip(pages, is_full):
                last = segments[-1] if segments else (0, 0, 0, 0, 0)
                if not full:
                    # It is listed, as the kernel does it with what it leaves out.
                    if last[0] + last[3] == address + page and last[4] == flags:
                        segments[-1] = (*last[:3], last[3] + 4096, flags)
                    else:
                        segments.append((address + page, 0, 0, 4096, flags))
                    continue
                if last[2] == last[3] and last[0] + last[2] == address + page and last[4] == flags:
                    segments[-1] = (last[0], last[1], last[2] + 4096, last[3] + 4096, flags)
                else:
                    segments.append((address + page, len(data), 4096, 4096, flags))
                data += self.text[offset + page:offset + page + 4096]
        notes = self.text[self.note[0]:sum(self.note)]
        return Core(elf(segments, notes, data))

    def at(self, address):
        """Where the word at an address is in the file, or None."""
        for start, offset, there, _, _ in self.writable:
            if start <= address and address + 8 <= start + there:
                return offset + address - start
        return None

    def word(self, address):
        at = self.at(address)
        return None if at is None else struct.unpack_from("<Q", self.text, at)[0]

    def find(self, block):
        """Finds what malloc has, from a block of a thread's arena."""
        first = self.word(block & -RESERVED)
        self.arenas, at = [], first
        while at not in self.arenas:
            self.arenas.append(at)
            at = self.word(at + NEXT)
        self.parts, self.main = [], None
        for arena in self.arenas:
            top = self.word(arena + TOP)
            if self.word(arena & -RESERVED) != arena:
                self.main = arena
                continue
            part = top & -RESERVED
            while part:
                self.parts.append(part)
                part = self.word(part + 8)
        self.heads, self.caches, self.links = [], [], []
        for start, _, there, _, _ in self.writable:
            for at in range(start, start + there - 24, 16):
                size = self.word(at + 8)
                near = self.word(at + (size & ~7) + 8) if 32 <= size < 1 << 26 else None
                if near is None or size & 8 or not 16 <= near < 1 << 26:
                    continue
                if size & ~7 == 0x290 and self.word(at + 16 + 128) is not None:
                    self.caches.append(at + 16)
                if len(self.heads) < 20000:
                    self.heads.append(at)
                if not near & 1:
                    self.links += [at + 16, at + 24]
        self.fields = {
            "arena": [a + 8 * i for a in self.arenas for i in range(275)],
            "arena's main fields": [a + i for a in self.arenas
                                    for i in (TOP, NEXT, NEXT + 8, SYSTEM_MEMORY, 0)],
            "part": [p + 8 * i for p in self.parts for i in range(4)],
            "cache": [c + 8 * i for c in self.caches for i in range(80)],
            "head": [h + 8 for h in self.heads],
            "link": self.links or self.heads,
            "fast": [a + FAST + 8 * i for a in self.arenas for i in range(10)],
            "bin": [a + BINS + 8 * i for a in self.arenas for i in range(254)],
        }


class Mutants:
    """Mutants by their numbers: what to write where, and how long the file is."""

    def __init__(self, core):
        self.core = core
        ends = [at for start, _, there, _, _ in core.writable
                for at in (start, start + there, start + there - 8, start + there - 16)]
        self.known = (core.arenas + core.parts + core.caches + core.heads[:2000] + ends
                      + [a + BINS - 16 for a in core.arenas])

    def value(self, draw, own):
        known = draw.choice(self.known) + draw.choice((0, 0, 0, 8, 16, -16, 1))
        return draw.choice((
            0, 1, 2, 8, 16, 17, 32, 33, 1 << 63, (1 << 64) - 1, (1 << 64) - 16, 1 << 62,
            (1 << 62) - 16, (1 << 46) - 4096, 1 << 45, (1 << 45) + 2, (1 << 26) - 16, 1 << 47,
            own, own - 16, own ^ own >> 12, known ^ own >> 12, known, known, known, known,
            draw.choice(self.core.arenas), draw.choice(self.core.parts),
            draw.getrandbits(64), draw.getrandbits(48), draw.getrandbits(12), draw.getrandbits(21),
        )) % (1 << 64)

    def of(self, number):
        draw, core = random.Random(f"mutant {number}"), self.core
        length, changes = len(core.text), []
        kind = draw.choices(("bytes", "words", "fields", "elf", "notes", "cut"),
                            (15, 15, 45, 12, 8, 5))[0]

        def put(address, value):
            at = core.at(address)
            if at is not None:
                changes.append((at, struct.pack("<Q", value)))

        if kind == "bytes":
            start, end = draw.choice(((0, length), (0, 8192), core.writable[0][1:3]))
            for _ in range(draw.choice((1, 10, 200, 2000))):
                changes.append((draw.randrange(start, max(end, start + 1)), draw.randbytes(1)))
        elif kind == "words":
            for _ in range(draw.choice((1, 10, 200, 2000))):
                one = draw.choice(core.writable)
                own = one[0] + 8 * draw.randrange(one[2] // 8)
                put(own, self.value(draw, own))
        elif kind == "fields":
            names = draw.sample(sorted(core.fields), draw.choice((1, 2, 3)))
            for _ in range(draw.choice((1, 2, 4, 8, 16, 60))):
                own = draw.choice(core.fields[draw.choice(names)])
                put(own, self.value(draw, own))
        elif kind == "elf":
            for _ in range(draw.choice((1, 2, 5, 20))):
                at = draw.choice((draw.randrange(0, 64), draw.choice(core.table)
                                  + draw.choice((0, 4, 8, 16, 32, 40)), draw.choice(core.table)
                                  + draw.randrange(SEGMENT.size)))
                if at < 20 and draw.random() < 0.8:
                    continue
                new = self.value(draw, draw.randrange(length))
                if draw.random() < 0.4:
                    new = SEGMENT.unpack_from(core.text, draw.choice(core.table))[
                        draw.choice((2, 3, 5))]
                changes.append((at, struct.pack("<Q", new)[:draw.choice((1, 2, 4, 8, 8))]))
        elif kind == "notes":
            start, size = core.note
            for _ in range(draw.choice((1, 3, 30, 300))):
                at = start + 4 * draw.randrange(size // 4)
                new = struct.pack("<Q", self.value(draw, at))
                changes.append((at, new[:draw.choice((1, 4, 8))]))
        else:
            length = draw.choice((draw.randrange(length), draw.randrange(8192)))
        changes = [(at, new) for at, new in changes if at + len(new) <= len(core.text)]
        return kind, changes, length


def run(heapprof, target, words, out):
    """Walks; returns what is wrong with how it ended, its exit code, what it said, the time."""
    began = time.monotonic()
    if "-o" in words and os.path.exists(out):
        os.unlink(out)
    try:
        done = subprocess.run(["prlimit", f"--as={ADDRESSES}", heapprof, "heapwalk", target,
                               *words], capture_output=True, text=True, timeout=SECONDS,
                              errors="replace", stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"it takes more than {SECONDS} s", None, "", SECONDS
    took = time.monotonic() - began
    error = done.stderr.strip()
    wrong = None
    if done.returncode not in (0, 2):
        wrong = f"exit code {done.returncode}: {error[:200]}"
    elif "panicked" in error:
        wrong = f"a panic: {error[:200]}"
    elif done.returncode == 2 and (len(error.splitlines()) != 1 or done.stdout):
        wrong = f"not one line of error: {error[:200]!r}"
    elif done.returncode == 0 and not done.stdout:
        wrong = "it says nothing"
    elif done.returncode == 0 and "-o" in words and not os.path.getsize(out):
        wrong = "it writes no profile"
    return wrong, done.returncode, done.stdout + error, took


def options(number, draw, known, out):
    """The options of a walk: none for all, and others for a tenth each."""
    more = {0: ["--allocator"], 1: ["--retained"], 2: ["--who", hex(draw.choice(known))],
            3: ["--bytes", hex(draw.choice(known))], 4: ["-o", out]}
    return [[], *([more[number % 10]] if number % 10 in more else [])]


class Worker:
    """What each of the two processes that run walks has."""

    def __init__(self, args, folder, mutants, built):
        self.args, self.mutants, self.built = args, mutants, built
        self.folder = pathlib.Path(folder) / str(os.getpid())
        self.folder.mkdir()
        self.path, self.out = self.folder / "core", str(self.folder / "out.pb.gz")
        self.path.write_bytes(mutants.core.text)

    def core(self, number):
        kind, changes, length = self.mutants.of(number)
        text = self.mutants.core.text
        with open(self.path, "r+b") as file:
            for at, new in changes:
                file.seek(at)
                file.write(new)
            file.truncate(length)
        draw = random.Random(f"options {number}")
        found = []
        for words in options(number, draw, self.mutants.known, self.out):
            wrong, code, _, took = run(self.args.heapprof, f"core:{self.path}", words, self.out)
            found.append((f"core:{number}", kind, words, wrong, code, took))
            if wrong and self.args.keep:
                shutil.copy(self.path, self.args.keep / f"core-{number}")
        with open(self.path, "r+b") as file:
            for at, new in changes:
                file.seek(at)
                file.write(text[at:at + len(new)])
            file.seek(length)
            file.write(text[length:])
        return found

    def live(self, number):
        mode = ["damage", str(number)]
        return walk_live(self.args, self.built, mode, number, self.out, f"live:{number}")


WORKER = None


def begin(*words):
    global WORKER
    WORKER = Worker(*words)


def work(job):
    kind, number = job
    return WORKER.core(number) if kind == "core" else WORKER.live(number)


def start(built, *mode, aslr=False):
    """Starts the victim; returns it with the addresses of two blocks and of the list's end."""
    libc = ctypes.CDLL(None)
    before = libc.personality(0xffffffff)
    libc.personality(before | (0 if aslr else NO_ASLR))
    one = subprocess.Popen([built, *mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    libc.personality(before)
    first, second, hidden = (int(word, 16) for word in one.stdout.readline().split())
    return one, [first, second, hidden ^ (1 << 64) - 1]


def state_of(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return re.findall(r"^(?:State|TracerPid):\s+(\S+)", status, re.M)


def walk_live(args, built, mode, number, out, name):
    victim, blocks = start(built, *mode)
    # The damage is done when it answers.
    found = []
    assert echo(victim), "the victim does not answer"
    draw = random.Random(f"live {number}")
    for words in options(number, draw, blocks, out):
        wrong, code, text, took = run(args.heapprof, f"pid:{victim.pid}", words, out)
        state = state_of(victim.pid)
        end = time.monotonic() + 2
        while state != ["S", "0"] and time.monotonic() < end:
            time.sleep(0.01)
            state = state_of(victim.pid)
        if not wrong and (state != ["S", "0"] or not echo(victim)):
            wrong = f"the process does not live on: {state}"
        held = re.search(r"suspended for ([\d.]+) ms", text)
        found.append((name, "live", words, wrong, code, took, held and float(held.group(1))))
    victim.kill()
    victim.communicate()
    return found


def echo(victim):
    victim.stdin.write(b"x")
    return bool(select.select([victim.stdout], [], [], 5)[0]) and victim.stdout.read(1) == b"x"


def crafted(core, whole_list, last):
    """Cores that are made to be slow or large: names, what is in them, options."""
    arena = next(a for a in core.arenas if a != core.main)
    part = arena & -RESERVED
    deep = next(p for p in core.parts if core.word(p + 8))
    owner, huge = core.word(deep), 1 << 45

    def patched(**words):
        text = bytearray(core.text)
        for key, value in words.items():
            struct.pack_into("<Q", text, core.at(int(key[1:])), value % (1 << 64))
        return bytes(text)

    def put(pairs):
        return patched(**{f"a{at}": value for at, value in pairs})

    yield "the first part leads to itself", put([(part + 8, part)]), []
    yield "and much memory", put([(part + 8, part), (arena + SYSTEM_MEMORY, huge)]), []
    before = core.word(deep + 8)
    yield "two parts in a ring", put([(before + 8, deep)]), []
    yield "and much memory, two parts", put([(before + 8, deep),
                                             (owner + SYSTEM_MEMORY, huge)]), []
    for size in 0, 8, 1 << 63, huge, (1 << 64) - 16:
        yield f"all heads of parts {size:#x}", put([(p + 16, size) for p in core.parts]), []
        yield f"all tops {size:#x}", put([(a + TOP, size) for a in core.arenas]), []
        yield f"all memory {size:#x}", put([(a + SYSTEM_MEMORY, size) for a in core.arenas]), []
        yield f"all next {size:#x}", put([(a + NEXT, size) for a in core.arenas]), []
        yield f"all heads {size:#x}", put([(h + 8, size | 1) for h in core.heads]), []
    for a in core.arenas:
        yield f"arena {a:#x} leads to itself", put([(a + NEXT, a)]), ["--allocator"]
        yield f"the top of {a:#x} is its beginning", put([(a + TOP, a)]), ["--allocator"]
        yield f"all bins of {a:#x} lead into them", put(
            [(f, a + BINS) for f in core.fields["bin"] if a <= f < a + NEXT]), []
    yield "all links to themselves", put([(f, (f - 16) ^ (f >> 12)) for f in core.links]), []
    yield "caches in rings", put(
        [(c + 128 + 8 * i, c + 128 + 8 * i) for c in core.caches for i in range(64)]), []
    lines = [(core.word(c + 128 + 8 * i), 0) for c in core.caches for i in range(64)]
    yield "lists of caches lead to themselves", put(
        [(at, at ^ at >> 12) for at, _ in lines if at and core.at(at) is not None]), []
    page = bytes(8) + struct.pack("<Q", huge | 2) + bytes(4080)
    base = [one for one in core.loads]
    begin = min(one[1] for one in core.writable)
    data, notes = core.text[begin:], core.text[core.note[0]:sum(core.note)]
    base = [(at, offset - begin if there else 0, there, size, flags)
            for at, offset, there, size, flags in base]
    for at in 0x10000, 0x7ff000000000:
        yield f"a mapped chunk of 32 TiB at {at:#x}", elf(
            [*base, (at, len(data), 4096, 4096, 6)], notes, data + page), []
    many = [(0x10000000000 + i * (1 << 24), 0, len(data), len(data), 6) for i in range(60000)]
    yield "60000 segments of the same bytes", elf(base + many, notes, data), []
    pages = [(0x10000000000 + i * 8192, 0, 4096, 4096, 6) for i in range(60000)]
    count = 400000
    files = struct.pack("<QQ", count, 4096) + b"".join(
        struct.pack("<QQQ", 0x20000000000 + i * 8192, 0x20000001000 + i * 8192, 0)
        for i in range(count)) + b"\0" * count
    yield "60000 segments, 400000 files", elf(base + pages, notes + note(0x46494c45, files),
                                              data), []
    threads = b"".join(thread_note(i, 0x10000000000 + i) for i in range(100000))
    yield "60000 segments, 100000 threads", elf(base + pages, notes + threads, data), []
    # Each 16th address may be where the heap begins, and each is wrong only after a while.
    yield "many beginnings of the heap", beginnings(), []
    # Many heads of parts beside each other, each before the next.
    records = bytearray(8 << 20)
    for i in range(0, len(records) - 64, 32):
        struct.pack_into("<QQQQ", records, i, arena, 0x30000000000 + i + 32, 1 << 25, 33)
    yield "many parts beside each other", elf(
        [(at, offset, there, size, flags) for at, offset, there, size, flags in base]
        + [(0x30000000000, len(data), len(records), len(records), 6)], notes,
        put([(part + 8, 0x30000000000), (arena + SYSTEM_MEMORY, huge)])[begin:] + records), []
    for words in [], ["--who", hex(last)], ["--retained"]:
        yield "a list of 200000 blocks", whole_list, words
    short = Core(whole_list)
    loop = bytearray(whole_list)
    yield "and of 200000, cut", bytes(loop[:short.writable[-1][1]]), ["--retained"]


def beginnings(size=48 << 20):
    """A main arena in the same piece as its heap, which is full of words that lead into it."""
    at = 0x555500000000
    text = bytearray(size)
    pattern = struct.pack("<QQ", 0, 33)
    text[:] = pattern * (size // 16)
    for bad in range(0, size, 24 << 10):
        struct.pack_into("<Q", text, bad + 8, 7)
    # A word of each chunk leads to another one, so that all are tried.
    for i in range(0, size, 16):
        struct.pack_into("<Q", text, i, at + i)
    arena = at + size - 8192
    offset = size - 8192
    text[offset:offset + 0x898] = bytes(0x898)
    for i in range(127):
        own = arena + BINS + 16 * i - 16
        struct.pack_into("<QQ", text, offset + BINS + 16 * i, own, own)
    struct.pack_into("<Q", text, offset + TOP, at + size - 4096)
    struct.pack_into("<QQ", text, offset + NEXT, arena, 0)
    struct.pack_into("<Q", text, offset + SYSTEM_MEMORY, size)
    struct.pack_into("<QQ", text, size - 4096, 0, 4097)
    return elf([(at, 0, size, size, 6)], thread_note(1, 0), bytes(text))


def copy_cut(path, to, length):
    subprocess.run(["cp", "--sparse=always", path, to], check=True)
    os.truncate(to, min(length, os.path.getsize(to)))


def check_cut(args, path, core, length, name):
    """Walks a core that lacks something; what it lacks has to be said."""
    found = []
    missing = core.missing(length)
    for words in [], ["--allocator"], ["--retained"]:
        wrong, code, text, took = run(args.heapprof, f"core:{path}", words, "")
        has = f"{missing} bytes" in text if code == 0 else re.search(
            r"missing|lacks|are not listed|its head", text.partition(f"core:{path}")[2])
        if not wrong and missing and not has:
            wrong = f"{missing} bytes are missing, and it says: {text.splitlines()[-1:]}" \
                if code else f"exit 0, and it does not say that {missing} bytes are missing"
        found.append((name, "cut", words, wrong, code, took))
    return found


def cuts(args, path, folder):
    """A core that is cut at many places, and one without the bytes of later segments."""
    text = pathlib.Path(path).read_bytes()
    core, found = Core(text), []
    cut = folder / "cut"
    draw = random.Random(5)
    places = [one[1] for one in draw.sample(core.writable, min(30, len(core.writable)))]
    places += [draw.randrange(len(text)) & -4096 for _ in range(15)]
    places += [draw.randrange(len(text)) for _ in range(5)]
    places += [core.note[0] + core.note[1] // 2, core.table[3], 64, 63, 1, 0]
    for length in sorted(set(places)):
        copy_cut(path, cut, length)
        found += check_cut(args, cut, core, length, f"cut at {length}")
    for first in draw.sample(range(1, len(core.table)), min(30, len(core.table) - 1)):
        subprocess.run(["cp", "--sparse=always", path, cut], check=True)
        with open(cut, "r+b") as file:
            for at in core.table[first:]:
                if struct.unpack_from("<I", text, at)[0] == LOAD:
                    file.seek(at + 32)
                    file.write(bytes(8))
        changed = Core(cut.read_bytes())
        found += check_cut(args, cut, changed, len(text), f"no segments from number {first}")
    return found


def cuts_of_kernel(args, built, folder):
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        print("cores of the kernel: left out, because core_pattern leads elsewhere")
        return []
    found, whole = [], None
    sizes = [-1, 100 << 20, 30 << 20, 3 << 20, 1 << 20, 300 << 10, 100 << 10, 30 << 10, 8 << 10]
    for size in sizes:
        place = folder / f"kernel{size}"
        place.mkdir()
        limit = size if size >= 0 else resource.RLIM_INFINITY
        subprocess.run(["prlimit", f"--core={limit}:", "setarch", "-R", built, "abort"],
                       cwd=place, capture_output=True)
        made = list(place.glob("core*"))
        if not made:
            continue
        text = made[0].read_bytes()
        whole = whole or (Core(text) if size < 0 else None)
        if whole:
            found += check_cut(args, made[0], whole, len(text), f"the kernel's, {size}")
        shutil.rmtree(place)
    print(f"cores of the kernel: {len(found) // 3} of {len(sizes)} sizes")
    return found


def reported(found):
    """Tells the failures; returns how many there are."""
    kinds = collections.defaultdict(list)
    for one in found:
        kinds[one[1]].append(one)
    for kind, all_ in sorted(kinds.items()):
        codes = collections.Counter(one[4] for one in all_)
        slow = max(one[5] for one in all_)
        wrong = [one for one in all_ if one[3]]
        holds = [one[6] for one in all_ if len(one) > 6 and one[6] is not None]
        held = f"; held for {max(holds):.1f} ms at most" if holds else ""
        print(f"{kind}: {len(all_)} walks, exit codes {dict(codes)}, the slowest {slow:.2f} s, "
              f"{len(wrong)} wrong{held}")
        shown = collections.Counter()
        for name, _, words, why, *_ in wrong:
            what = re.sub(r"\d+", "N", why)[:60]
            shown[what] += 1
            if shown[what] <= 5:
                print(f"    {name} {' '.join(words)}: {why}")
        for what, count in shown.items():
            if count > 5:
                print(f"    {count} of: {what}")
        sys.stdout.flush()
    return sum(1 for one in found if one[3])


def main():
    args = ARGS.parse_args()
    if args.keep:
        args.keep.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        built = str(folder / "victim")
        (folder / "victim.c").write_text(VICTIM)
        subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", built, built + ".c"], check=True)
        cores = {}
        for name, mode in ("core", []), ("list", ["list", "200000"]):
            victim, blocks = start(built, *mode)
            subprocess.run(["gcore", "-o", str(folder / name), str(victim.pid)], check=True,
                           capture_output=True)
            cores[name] = (str(folder / f"{name}.{victim.pid}"), blocks)
            victim.kill()
            victim.communicate()
        path, blocks = cores["core"]
        whole = Core(pathlib.Path(path).read_bytes())
        core = whole.compact()
        core.find(blocks[0])
        (folder / "compact").write_bytes(core.text)
        tables = [run(args.heapprof, f"core:{one}", [], "")[2].partition("\nstate")[2]
                  for one in (path, folder / "compact")]
        assert tables[0] == tables[1], "the small core has other blocks than the whole one"
        print(f"a core of {len(core.text) >> 10} KiB: {len(core.arenas)} arenas, "
              f"{len(core.parts)} parts, {len(core.caches)} caches, {len(core.heads)} heads, "
              f"{len(core.links)} links")
        mutants = Mutants(core)
        jobs = [("core", i) for i in range(args.cores)] + [("live", i) for i in range(args.live)]
        if args.only and args.only.partition(":")[0] in ("core", "live"):
            kind, _, number = args.only.partition(":")
            jobs = [(kind, int(number))]
        elif args.only:
            jobs = []
        found = []
        with multiprocessing.Pool(2, begin, (args, folder, mutants, built)) as pool:
            for one in pool.imap_unordered(work, jobs, 8 if len(jobs) > 100 else 1):
                found += one
        failures = reported(found)
        if args.only in (None, "made"):
            list_text = Core(pathlib.Path(cores["list"][0]).read_bytes()).compact().text
            made, found = folder / "made", []
            for number, (name, text, words) in enumerate(crafted(core, list_text,
                                                                 cores["list"][1][2])):
                made.write_bytes(text)
                wrong, code, _, took = run(args.heapprof, f"core:{made}", words, "")
                found.append((name, "made", words, wrong, code, took))
                if wrong and args.keep:
                    shutil.copy(made, args.keep / f"made-{number}")
            failures += reported(found)
            found = cuts(args, str(folder / "compact"), folder)
            found += cuts_of_kernel(args, built, folder)
            failures += reported(found)
            found = []
            for mode in ["reserve", "1024"], ["reserve", "20480"], ["maps", "20000"]:
                found += [(*one[:1], " ".join(mode), *one[2:]) for one in
                          walk_live(args, built, mode, 5, "", " ".join(mode))]
            failures += reported(found)
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        print(f"{failures} wrong; no walk took more than {used} MiB of memory")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

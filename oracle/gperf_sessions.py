#!/usr/bin/env python3
"""Runs scripted sessions in the shells of google-pprof, jeprof and heapprof, and compares them.

usage: gperf_sessions.py --google-pprof PATH --jeprof PATH --heapprof PATH [--only REGEX]
                         [--tcmalloc LIBRARY] [--jemalloc LIBRARY] [--folder FOLDER]
Two small programs are built with gcc and g++, and run with each allocator, so that all dumps are
real. Each case is OPTIONS x DUMP x COMMANDS. Compared byte for byte are stdout and the exit code. A
callgrind file and a graph have no order in Perl, so their parts are sorted, and numbers of names
are replaced by the names. The page of weblist is compared from its body on. Viewers are replaced by
a script that keeps the file it is given. The names of libc's own source files are not compared,
because addr2line confuses some of them. Prints each mismatch with the first differing line, then
the closing line `N passed, N failed`. Exit 1 on any failure. Needs gcc, g++, Graphviz, binutils,
and a jemalloc that is built with profiling.
"""

import argparse, difflib, glob, os, re, shutil, subprocess, sys, tempfile, time

TREE = r"""
#include <stdlib.h>
#include <string.h>

int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

struct node {
    struct node *left, *right;
    char text[600];
};

__attribute__((noinline)) struct node *grow(int depth)
{
    struct node *made = malloc(sizeof *made);

    memset(made, 0, sizeof *made);
    if (depth > 0) {
        made->left = grow(depth - 1);
        made->right = grow(depth - 1);
    }
    return made;
}

__attribute__((noinline)) void cut(struct node *from)
{
    if (from == 0)
        return;
    cut(from->left);
    cut(from->right);
    free(from);
}

__attribute__((noinline)) char *stock(size_t size)
{
    char *block = calloc(1, size);

    if (block != 0)
        block[1] = 2;
    return block;
}

int main(void)
{
    char on = 1;
    if (mallctl)
        mallctl("prof.active", 0, 0, &on, 1);
    struct node *kept = grow(7);
    struct node *other = grow(5);
    char *large = stock(3000000);
    char *small = stock(100000);

    cut(other->left);
    on = 0;
    if (mallctl)
        mallctl("prof.active", 0, 0, &on, 1);
    return kept == 0 || large == small;
}
"""

SHOP = r"""
#include <cstdlib>
#include <cstring>

extern "C" int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

namespace shop {
template <typename T>
struct Box {
  T *items;
  explicit Box(unsigned long n) : items(static_cast<T *>(malloc(n * sizeof(T)))) {
    memset(items, 1, n * sizeof(T));
  }
  T *more(unsigned long n) const {
    T *made = new T[n];
    made[0] = items[0];
    return made;
  }
};

class Shelf {
 public:
  explicit Shelf(int floor) : floor_(floor) {}

  void fill(unsigned long n) {
    for (unsigned long i = 0; i < n; i++) {
      items_[i % 8] = picture(20000 + 100 * i);

      items_[i % 8][0] = 'a';
    }
  }

  char *picture(unsigned long size) {
    char *memory = static_cast<char *>(malloc(size));
    memset(memory, floor_, size);
    return memory;
  }

 private:
  int floor_;
  char *items_[8];
};

int operator%(const Shelf &, int n) {
  char *rest = new char[50000 * n];
  rest[0] = 3;
  return rest[0];
}
}  // namespace shop

int main() {
  char on = 1;
  if (mallctl) mallctl("prof.active", nullptr, nullptr, &on, 1);
  shop::Shelf *shelf = new shop::Shelf(3);
  shelf->fill(40);
  shop::Box<int> numbers(500000);
  shop::Box<char> letters(700000);
  int *more = numbers.more(20000);
  int rest = *shelf % 4;
  delete[] letters.more(3000);
  on = 0;
  if (mallctl) mallctl("prof.active", nullptr, nullptr, &on, 1);
  return more[0] + letters.items[3] + rest == 7;
}
"""

# Commands of a session, one a line.
SESSIONS = [
    ("top", "top\n"),
    ("end-of-line", "top"),
    ("text", "text\ntext3\n"),
    ("limits", "top1\ntop0\ntop2\ntop100\ntop007\n"),
    ("cum", "top --cum\ntop3 -cum\ntop\n"),
    ("lines", "top1 --lines\ntop2 -lines --cum\ntop3\n"),
    ("ignore", "top -grow\ntop3 --cum -fill -stock\ntop -nothing\n"),
    ("ignore-all", "top -main\ntop\n"),
    ("ignore-address", "top -0000\n"),
    ("words", "top stock fill\ntop5 grow -stock|picture\n"),
    ("letters", "topmost\ntexting --cum\n  top2\ntop\t3\n"),
    ("dos", "top2\r\nlist grow\r\nquit\r\ntop\n"),
    ("unknown", "options\npeek main\ntags\nTOP\n?\n\n   \ntop1\n"),
    ("quit", "quit\ntop\n"),
    ("quitting", "  quitting time\ntop\n"),
    ("help", "help\nhelpless\ntop1\n"),
    ("nothing", ""),
    ("list", "list grow\nlist fill\n"),
    ("list-two", "list grow|stock|picture\n"),
    ("list-words", "list stock main -grow\n"),
    ("list-ignore", "list main -stock\nlist main -fill -grow\n"),
    ("list-none", "list nosuchfunction\nlist \nlist\ntop1\n"),
    ("list-joined", "listmain\nlist ^main\n"),
    ("list-operator", "list operator\nlist Box<int>.*more\nlist Box<char>::Box\n"),
    ("list-lines", "list main --lines --cum\ntop1\n"),
    ("disasm", "disasm grow\ndisasm picture\n"),
    ("disasm-main", "disasm ^main\n"),
    ("disasm-ignore", "disasm stock -grow\ndisasm Box<int> -picture\n"),
    ("disasm-none", "disasm nosuchfunction\ndisasm\ndisasm \ntop1\n"),
    ("weblist", "weblist grow|fill\n"),
    ("weblist-main", "weblist ^main\nweblist stock|picture -grow\n"),
    ("weblist-none", "weblist nosuchfunction\ntop1\n"),
    ("callgrind", "callgrind FILE\n"),
    ("callgrind-kcachegrind", "callgrind\ntop1\n"),
    ("gv", "gv\n"),
    ("gv-focus", "gv grow\ngv stock fill -main2\n"),
    ("evince", "evince -grow\n"),
    ("web", "web\nweb nosuchfunction\ntop1\n"),
    ("mixed", "top2\nlist grow\ntop2 --lines\ndisasm stock\ntop2 --cum\nquit\n"),
]

# Options, and the expression that the names of their sessions match.
OPTIONS = [
    ("", "."),
    ("--addresses", "^(top|cum|lines|list|gv)$"),
    ("--lines", "^(limits|disasm|mixed)$"),
    ("--show_bytes", "^(top|ignore|list|disasm|weblist|mixed)$"),
    ("--inuse_objects", "^(top|cum|list|disasm-ignore)$"),
    ("--alloc_space", "^(top|list|web)$"),
    ("--focus=grow|fill", "^(top|ignore|list-two|callgrind)$"),
    ("--ignore=stock|Box", "^(top|words|disasm-main)$"),
    ("--cum", "^(top|list)$"),
]

VIEWER = """#!/bin/sh
for file; do :; done
[ -f "$file" ] && cp "$file" "$KEPT/$(basename "$0").$(ls "$KEPT" | wc -l)"
exit 0
"""

DOT = """#!/bin/sh
tee "$KEPT/dot.$(ls "$KEPT" | wc -l)" | REAL_DOT "$@"
"""


LIBC_FILE = re.compile(r"\./csu/[^\s:]*")


def build(folder, options):
    """Builds the programs, runs them with each allocator, and returns the dumps."""
    dumps = []
    for name, text, compiler in [("tree.c", TREE, "gcc"), ("shop.cc", SHOP, "g++")]:
        source = os.path.join(folder, name)
        with open(source, "w") as out:
            out.write(text)
        stem = name.split(".")[0]
        for kind, flags in [("", ["-O0"]), ("-fixed", ["-O0", "-no-pie"])]:
            program = os.path.join(folder, stem + kind)
            subprocess.run([compiler, "-g", *flags, "-o", program, source], check=True)
            heap = program + ".gperf"
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            env = dict(os.environ, LD_PRELOAD=options.tcmalloc, HEAPPROFILE=heap)
            subprocess.run([program], env=env, check=True, **quiet)
            dumps.append(("google-pprof", program, sorted(glob.glob(heap + ".*.heap"))[-1]))
            dumps.append(("jeprof", *dumps[-1][1:]))
            heap = program + ".jemalloc"
            conf = f"prof:true,prof_active:false,prof_final:true,lg_prof_sample:0,prof_prefix:{heap}"
            env = dict(os.environ, LD_PRELOAD=options.jemalloc, MALLOC_CONF=conf)
            subprocess.run([program], env=env, check=True, **quiet)
            found = sorted(glob.glob(heap + ".*.heap"))
            if found:
                dumps.append(("jeprof", program, found[-1]))
            else:
                print(f"{options.jemalloc} is built without profiling: no dump", file=sys.stderr)
    return dumps


def is_left_out(tool, flags, dump, name):
    """Whether a case can't be compared."""
    if flags == "--alloc_space":
        return ".jemalloc." in dump
    # jeprof does not read a line with a discriminator, and then writes what it read before.
    return tool == "jeprof" and name.startswith("callgrind") and "shop" in dump


def run(command, commands, folder, viewers):
    """Runs a session, and returns its exit code, its stdout and the files that it left."""
    kept = os.path.join(folder, "kept")
    shutil.rmtree(kept, ignore_errors=True)
    os.mkdir(kept)
    written = os.path.join(kept, "callgrind.out")
    env = dict(os.environ, KEPT=kept, PATH=viewers + ":" + os.environ["PATH"], TZ="UTC")
    env.pop("DISPLAY", None)
    pipes = {name: subprocess.PIPE for name in ["stdin", "stdout", "stderr"]}
    done = subprocess.Popen(command, env=env, cwd=folder, **pipes)
    done.stdin.write(commands.replace("FILE", written).encode())
    done.stdin.flush()
    if re.search(r"^(gv|evince|callgrind$)", commands, re.M):
        # The shell removes the file of a viewer when it ends.
        expected = len(re.findall(r"^(?:gv|evince|callgrind$)", commands, re.M))
        wait_for_files(kept, expected)
    out, err = done.communicate()
    files = {}
    for name in sorted(os.listdir(kept)):
        with open(os.path.join(kept, name), errors="replace") as file:
            text = file.read()
        # The pictures themselves are Graphviz's. Its input is kept as well.
        if name.startswith(("gv.", "evince.")) or text.startswith("<?xml"):
            continue
        kind = name.split(".")[0]
        files.setdefault(kind, []).append(normal(text, written))
    out = LIBC_FILE.sub("./csu/", out.decode(errors="replace"))
    return done.returncode, out, files, err.decode(errors="replace")


def wait_for_files(kept, expected):
    """Waits until viewers have copied their files, but at most 20 seconds."""
    for _ in range(200):
        viewed = [name for name in os.listdir(kept) if not name.startswith("dot.")]
        if len(viewed) >= expected:
            break
        time.sleep(0.1)
    time.sleep(0.2)


def normal(text, written):
    """Sorts what Perl writes in the order of its hash tables."""
    text = LIBC_FILE.sub("./csu/", text)
    if text.startswith("events:"):
        names = {}

        def name(match):
            key = (match[1][-2:], match[2])
            if match[3]:
                names[key] = match[3]
            return f"{match[1]}={names[key]}"

        text = re.sub(r"^(c?f[ln])=\((\d+)\)(?: (.*))?$", name, text, flags=re.M)
        return "\n\n".join(sorted(text.split("\n\n")))
    if text.startswith("digraph"):
        return "\n".join(sorted(text.split("\n")))
    if "<body>" in text:
        return re.sub(r'<pre onClick=".*?">', "<pre>", text.split("<body>")[1])
    return text


def difference(theirs, ours):
    """Returns the first differing lines of two results."""
    if theirs[0] != ours[0]:
        return f"exit codes {theirs[0]} and {ours[0]}: {ours[3][-300:]}"
    pairs = [("stdout", theirs[1], ours[1])]
    for kind in sorted({*theirs[2], *ours[2]}):
        found, made = theirs[2].get(kind, []), ours[2].get(kind, [])
        if len(found) != len(made):
            return f"{kind}: {len(found)} files and {len(made)} files: {ours[3][-300:]}"
        pairs += [(kind, a, b) for a, b in zip(found, made)]
    for name, a, b in pairs:
        if a != b:
            lines = difflib.unified_diff(a.split("\n"), b.split("\n"), "perl", "heapprof", "", "", 0)
            return f"{name}:\n  " + "\n  ".join(list(lines)[2:9])
    return None


def library(name):
    found = glob.glob(f"/usr/lib/*/{name}") + glob.glob(f"/usr/lib/{name}")
    return found[0] if found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--google-pprof", default="google-pprof")
    parser.add_argument("--jeprof", default="jeprof")
    parser.add_argument("--heapprof", required=True)
    parser.add_argument("--only", default=".")
    parser.add_argument("--tcmalloc", default=library("libtcmalloc.so.4"))
    parser.add_argument("--jemalloc", default=library("libjemalloc.so.2"))
    parser.add_argument("--folder", help="where the dumps are kept and found again")
    options = parser.parse_args()
    if not options.tcmalloc or not options.jemalloc:
        sys.exit("libtcmalloc.so.4 and libjemalloc.so.2 are needed: name them with options")
    folder = options.folder or tempfile.mkdtemp(prefix="sessions.")
    viewers = os.path.join(folder, "viewers")
    os.makedirs(viewers, exist_ok=True)
    dot = DOT.replace("REAL_DOT", shutil.which("dot") or "dot")
    scripts = [(name, VIEWER) for name in ["gv", "evince", "google-chrome", "kcachegrind"]]
    for name, text in scripts + [("dot", dot)]:
        with open(os.path.join(viewers, name), "w") as out:
            out.write(text)
        os.chmod(os.path.join(viewers, name), 0o755)
    passed = failed = 0
    for tool, program, dump in build(folder, options):
        perl = options.google_pprof if tool == "google-pprof" else options.jeprof
        for flags, names in OPTIONS:
            for name, commands in SESSIONS:
                case = f"{tool} {flags} {os.path.basename(dump)} {name}"
                if not re.search(names, name) or not re.search(options.only, case):
                    continue
                if is_left_out(tool, flags, os.path.basename(dump), name):
                    continue
                words = [word for word in ["--interactive", flags, program, dump] if word]
                theirs = run([perl, *words], commands, folder, viewers)
                ours = run([options.heapprof, tool, *words], commands, folder, viewers)
                why = difference(theirs, ours)
                if why is None:
                    passed += 1
                else:
                    failed += 1
                    print(f"FAILED {case}\n  {why}", flush=True)
    if not options.folder:
        shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Builds programs, records their heaps, and compares `-disasm` and `-weblist` of the real pprof and
of `heapprof pprof` byte for byte.

usage: code.py --pprof PATH --heapprof PATH [--recorder PATH] [--folder DIR] [--only REGEX]
PATH of --pprof is the pprof-with-binutils of build-pprof.sh, or google/pprof's own program: Go's
own reads only Go's programs, and has no Intel syntax. The programs are C, C++ and Rust, with and
without optimization, symbols and debug information, at fixed and at any addresses, and a shared
library. --recorder is the heapprof that records them. A compiler that is missing is named, and its
programs are skipped. The tools are tried in all combinations that `-tools` can choose: those of
LLVM and of GNU, and none. The last line but one shows how many of the reports list a function; the
others are errors of both, and pages without a function.

pprof converts the addresses of a profile in random order, and fails if the first one is outside the
program's mapping, so pprof is run up to 40 times until it finds the function. Prints each mismatch
with the first differing line, then the closing line `N passed, N failed`. Exit 1 on any failure.
"""

import argparse, os, re, shutil, subprocess, sys, tempfile

C = r"""
#include <stdlib.h>
#include <string.h>
/* Code that moves the rest away from the start of the mapping. */
#define FILL(n) __attribute__((noinline, used)) int fill_##n(int x) { volatile int y = x; \
    y = y * 3 + n; y = y * 5 + n; y = y * 7 + n; y = y * 11 + n; y = y * 13 + n; return y; }
%(fill)s
struct node { struct node *next; char *text; };
static struct node *head;
static inline char *copy(const char *text, size_t size) {
    char *p = malloc(size);
    memset(p, text[0], size);
    return p;
}
static struct node *push(int i) {
    struct node *n = malloc(sizeof *n);
    n->next = head;
	n->text = copy("hello <&> 'x' + \"y\"", 100 + i % 7);	/* tabs	and "quotes" <here> */
    return head = n;
}
__attribute__((noinline)) static void work(int count) {
    for (int i = 0; i < count; i++)
        push(i);
}
__attribute__((noinline)) static int recurse(int depth) {
    char *volatile kept = malloc(64);
    kept[0] = (char)depth;
    return depth ? recurse(depth - 1) + kept[0] : 0;
}
__attribute__((noinline)) static void late(int count) {
    for (int i = 0; i < count; i++)
        push(i);
    recurse(9);
}
int main(void) {
    work(400);
    late(500);
    return head == 0;
}
"""
CPP = r"""
#include <map>
#include <string>
#include <vector>
namespace store {
template <class T> struct Keeper {
    std::vector<T *> kept;
    inline T *keep(size_t n) { T *p = new T[n]; kept.push_back(p); return p; }
};
struct Index {
    std::map<std::string, std::string> names;
    __attribute__((noinline)) void add(int i) {
        names["key <" + std::to_string(i) + "> & 'more'"] = std::string(200, 'x');
    }
    bool operator<(const Index &other) const { return names.size() < other.names.size(); }
};
template <class T, class U> __attribute__((noinline)) T *both(U count) { return new T[count + 3]; }
}
static store::Keeper<long> longs;
static store::Keeper<char> chars;
namespace {
__attribute__((noinline)) void fill(int count) {
    for (int i = 0; i < count; i++) {
        longs.keep(100 + i % 10);
        chars.keep(5000);
    }
}
}
int main() {
    static store::Index index;
    for (int i = 0; i < 50; i++) index.add(i);
    fill(300);
    auto more = [](int n) { return chars.keep(n); };
    for (int i = 0; i < 50; i++) more(3000 + i);
    chars.kept.push_back(store::both<char, int>(70));
    return longs.kept.empty();
}
"""
RUST = r"""
use std::collections::HashMap;
struct Shelf<T> { kept: Vec<Box<T>> }
impl<T: Default> Shelf<T> {
    #[inline(never)]
    fn fill(&mut self, count: usize) { for _ in 0..count { self.kept.push(Box::default()); } }
}
#[inline(never)]
fn index(count: usize) -> HashMap<String, Vec<u8>> {
    (0..count).map(|i| (format!("key {i}"), vec![0; 100 + i])).collect()
}
fn main() {
    let mut shelf: Shelf<[u64; 16]> = Shelf { kept: Vec::new() };
    shelf.fill(200);
    let map = index(200);
    std::mem::forget((shelf, map));
}
"""
LIBRARY = r"""
#include <stdlib.h>
#define FILL(n) __attribute__((noinline)) int filler_##n(int x) { volatile int y = x; \
    y = y * 3 + n; y = y * 5 + n; y = y * 7 + n; y = y * 11 + n; y = y * 13 + n; return y; }
FILL(1) FILL(2) FILL(3) FILL(4) FILL(5) FILL(6) FILL(7) FILL(8) FILL(9)
void *lib_make(int size) { char *p = malloc(size + 10); p[0] = 1; return p; }
"""
USER = "void *lib_make(int size);\nint main(void) { for (int i = 0; i < 300; i++) lib_make(i); }\n"

FILLS = " ".join(f"FILL({n})" for n in range(1, 13))
# Name, source, its file, the command that builds it.
PROGRAMS = [
    ("c-O0", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O0 -g -o {out} {src}"),
    ("c-O2", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O2 -g -o {out} {src}"),
    ("c-O2-stripped", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O2 -g -s -o {out} {src}"),
    ("c-O2-nodebug", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O2 -o {out} {src}"),
    ("c-fixed", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O1 -g -no-pie -o {out} {src}"),
    ("c-early", C.replace("%(fill)s", ""), "early.c", "gcc -O0 -g -o {out} {src}"),
    ("c-dwarf4", C.replace("%(fill)s", FILLS), "leak.c", "gcc -O2 -g -gdwarf-4 -o {out} {src}"),
    ("cc-O0", CPP, "keep.cc", "g++ -O0 -g -o {out} {src}"),
    ("cc-O2", CPP, "keep.cc", "g++ -O2 -g -o {out} {src}"),
    ("cc-fixed", CPP, "keep.cc", "g++ -O2 -g -no-pie -o {out} {src}"),
    ("rust", RUST, "shelf.rs", "rustc -g -o {out} {src}"),
    ("rust-O", RUST, "shelf.rs", "rustc -O -g -o {out} {src}"),
    ("library", USER, "user.c", "gcc -O1 -g -o {out} {src} -L. -lmade -Wl,-rpath,{dir}"),
]

COMMON = [
    "",
    "-intel_syntax",
    "-lines",
    "-noinlines",
    "-cum",
    "-sample_index=alloc_objects",
    "-sample_index=alloc_space -mean",
    "-focus=push|fill|index",
    "-ignore=work|add|index",
    "-hide=push|keep",
    "-show_from=main",
    "-unit=bytes",
    "-divide_by=3",
    "-compact_labels",
    "-relative_percentages -focus=push|fill",
    "-drop_negative",
    "-nodecount=2 -nodefraction=0.5",
    "-trim_path=/usr",
    "-source_path=/",
    "-symbolize=none",
    "-symbolize=fastlocal",
    "-base={other}",
    "-diff_base={other}",
]
NAMES = {
    "c": ["push", "^main$", "work|late", "recurse", "copy", "leak", "nothing.like.this"],
    "cc": ["fill", "keep", "Index::add", r"both<char, int>", r"operator new\(", "_ZN5store", "main"],
    "rust": ["fill", "index", "alloc::vec", "main"],
    "library": ["lib_make", "libmade", "main"],
}


def run(program, flags, env, output=None):
    args = [program, *flags]
    try:
        done = subprocess.run(args, env=env, capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return b"", b"timeout", 1
    text = done.stdout
    if output:
        text = open(output, "rb").read() if os.path.exists(output) else b""
        if os.path.exists(output):
            os.remove(output)
    return text, done.stderr, done.returncode


class Comparison:
    def __init__(self, args, folder):
        self.args, self.passed, self.failed, self.listed = args, 0, 0, 0
        self.output = os.path.join(folder, "page.html")
        self.env = dict(os.environ, TZ="UTC", HOME=folder, PPROF_TMPDIR=folder)
        self.env.pop("PPROF_TOOLS", None)

    def compare(self, flags, profile, env=None):
        title = " ".join(flags) + " " + os.path.basename(profile)
        if self.args.only and not re.search(self.args.only, title):
            return
        env = dict(self.env, **(env or {}))
        weblist = any(f.startswith("-weblist") for f in flags)
        output = self.output if weblist else None
        flags = [*flags, *([f"-output={output}"] if output else []), profile]
        ours = run(self.args.heapprof, ["pprof", *flags], env, output)
        # Both programs failing counts as equal, if pprof fails every time.
        for _ in range(40):
            theirs = run(self.args.pprof, flags, env, output)
            if theirs[0] == ours[0] and (theirs[2] == 0) == (ours[2] == 0):
                self.passed += 1
                self.listed += b"ROUTINE" in ours[0] or b"<h2>" in ours[0]
                return
            if weblist:
                break
        self.failed += 1
        print(f"MISMATCH {title}")
        for at, (a, b) in enumerate(zip(theirs[0].split(b"\n"), ours[0].split(b"\n"))):
            if a != b:
                print(f"  line {at + 1}\n  pprof    {a!r}\n  heapprof {b!r}")
                break
        else:
            print(f"  pprof {len(theirs[0])} bytes, exit {theirs[2]}: {theirs[1][-300:]!r}")
            print(f"  heapprof {len(ours[0])} bytes, exit {ours[2]}: {ours[1][-300:]!r}")


def build(folder, args):
    """Returns (kind, profile, another profile of the same program, address, program) rows."""
    made = []
    if shutil.which("gcc"):
        path = os.path.join(folder, "made.c")
        open(path, "w").write(LIBRARY)
        command = "gcc -O1 -g -shared -fPIC -o libmade.so made.c"
        subprocess.run(command.split(), cwd=folder, check=True)
    for name, text, file, command in PROGRAMS:
        if not shutil.which(command.split()[0]):
            print(f"{command.split()[0]} is missing: {name} is skipped")
            continue
        open(os.path.join(folder, file), "w").write(text)
        out = os.path.join(folder, name)
        src = os.path.join(folder, file)
        command = command.format(out=out, src=src, dir=folder).split()
        subprocess.run(command, cwd=folder, check=True)
        profiles = []
        for number in range(2):
            profile = f"{out}.{number}.pb.gz"
            command = [args.recorder, "record", "--exact", "-o", profile, "--", out]
            subprocess.run(command, check=True, capture_output=True)
            profiles.append(profile)
        made.append((name.split("-")[0], *profiles, out))
    return made


def addresses(pprof, profile):
    """Returns an address of the program, and one beyond."""
    raw = subprocess.run([pprof, "-raw", profile], capture_output=True, text=True).stdout
    found = re.findall(r"^ +\d+: (0x[0-9a-f]+) M=1 ", raw, re.M)
    return [*found[:2], "0x100000000000"]


def tool_folders(folder):
    """Folders with links to some tools only."""
    folders = {}
    for name, tools in {
        "gnu": ["objdump", "addr2line", "nm"],
        "llvm": ["llvm-objdump", "llvm-symbolizer", "llvm-nm"],
        "gnu-objdump": ["objdump", "nm", "llvm-symbolizer"],
        "no-lines": ["objdump", "nm"],
        "no-nm": ["objdump", "addr2line"],
        "none": [],
    }.items():
        folders[name] = os.path.join(folder, "tools-" + name)
        os.makedirs(folders[name], exist_ok=True)
        for tool in tools:
            link = os.path.join(folders[name], tool)
            if shutil.which(tool) and not os.path.lexists(link):
                os.symlink(shutil.which(tool), link)
    return folders


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pprof", required=True)
    parser.add_argument("--heapprof", required=True)
    parser.add_argument("--recorder")
    parser.add_argument("--folder")
    parser.add_argument("--only")
    args = parser.parse_args()
    args.pprof, args.heapprof = map(os.path.abspath, (args.pprof, args.heapprof))
    args.recorder = os.path.abspath(args.recorder or args.heapprof)
    folder = os.path.abspath(args.folder or tempfile.mkdtemp())
    os.makedirs(folder, exist_ok=True)
    comparison = Comparison(args, folder)
    folders = tool_folders(folder)
    for kind, profile, other, program in build(folder, args):
        names = NAMES[kind]
        for format in ["-disasm", "-weblist"]:
            for flags in COMMON:
                flags = flags.format(other=other).split()
                comparison.compare([f"{format}={names[0]}", *flags], profile)
            for name in names[1:]:
                comparison.compare([f"{format}={name}"], profile)
            # heapprof gives names to code without names, so there would be functions to list.
            bare = ["-symbolize=none"] if "stripped" in program else []
            for address in addresses(args.pprof, profile):
                comparison.compare([f"{format}={address}", *bare], profile)
            for tools in folders.values():
                for flags in [], ["-intel_syntax"]:
                    flags = [f"{format}={names[0]}", *flags]
                    comparison.compare([*flags, f"-tools={tools}"], profile)
                    # pprof takes a missing tool from PATH, too.
                    comparison.compare(flags, profile, {"PATH": tools, "PPROF_TOOLS": ""})
            comparison.compare([f"{format}={names[0]}"], profile, {"PPROF_TOOLS": folders["gnu"]})
            spec = f"-tools=objdump:{folders['gnu']},nm:{folders['llvm']},{folders['none']}"
            comparison.compare([f"{format}={names[0]}", spec], profile)
    print(f"{comparison.listed} of the reports list functions")
    print(f"{comparison.passed} passed, {comparison.failed} failed")
    sys.exit(1 if comparison.failed else 0)


if __name__ == "__main__":
    main()

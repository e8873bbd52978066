#!/usr/bin/env python3
"""Makes sample-profiles/cores/market.core and sample-profiles/perl/market-{1,2}.pb.gz: a core file of
docs/examples/market.pl without the pages that are zero and those of libraries, and two profiles of
its values. Of perl's own file the core file has what says which perl it is. Needs root, perl, nm,
setarch and gdb's gcore.
usage: oracle/sample_perl_core.py HEAPPROF SAMPLE-PROFILES"""
import pathlib
import struct
import subprocess
import sys
import tempfile

from heapwalk_hostile import Core, elf
from sample_core import PAGE, kept, segments

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "docs/examples/market.pl"
PERL = "/usr/bin/perl"
# What is read of perl's own file, besides its dynamic symbols.
CONSTANTS = ("PL_revision PL_version PL_subversion PL_interp_size PL_interp_size_5_18_0 PL_bincompat_options "
             "PL_op_name PL_thr_key PL_curinterp").split()
# Ops whose names are compared: their numbers differ between releases.
OPS = ("freed", "require", "dofile", "entereval", "nextstate", "dbstate")


def wanted_pages(memory, base):
    """The pages of perl's file that have its dynamic symbols and those constants."""
    pages = set()

    def want(start, end):
        pages.update(range(start & -PAGE, end, PAGE))

    sections = subprocess.run(["objdump", "-h", PERL], capture_output=True, text=True, check=True).stdout
    for line in sections.splitlines():
        words = line.split()
        if len(words) > 4 and words[1] in (".gnu.hash", ".dynsym", ".dynstr", ".dynamic", ".interp"):
            start = base + int(words[3], 16)
            want(start, start + int(words[2], 16))
    want(base, base + PAGE)
    symbols = subprocess.run(["nm", "-D", "-S", PERL], capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        words = line.split()
        if len(words) == 4 and words[3].split("@")[0] in CONSTANTS:
            start = base + int(words[0], 16)
            size = int(words[1], 16)
            want(start, start + size)
            if words[3] in ("PL_op_name", "PL_bincompat_options"):
                memory.seek(start)
                for (text,) in struct.iter_unpack("<Q", memory.read(size & -8)):
                    if base <= text < base + (64 << 20):
                        memory.seek(text)
                        if words[3] == "PL_bincompat_options" or memory.read(12).split(b"\0")[0].decode() in OPS:
                            want(text, text + 12)
    return pages


def run(count):
    child = subprocess.Popen(["setarch", "-R", PERL, EXAMPLE.name, str(count)], stdout=subprocess.PIPE,
                             cwd=EXAMPLE.parent,
                             env={"PATH": "/usr/bin", "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0", "LC_ALL": "C"})
    child.stdout.readline()
    return child


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    heapprof, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for number, count in ((1, 100), (2, 300)):
        child = run(count)
        try:
            profile = folder / f"perl/market-{number}.pb.gz"
            subprocess.run([heapprof, "perl-heap", f"pid:{child.pid}", "-o", profile], check=True, capture_output=True)
        finally:
            child.kill()
            child.wait()
    child = run(100)
    try:
        proc = pathlib.Path("/proc") / str(child.pid)
        (proc / "coredump_filter").write_text("0x3f")
        rows = [line.split() for line in (proc / "maps").read_text().splitlines()]
        base = int(next(row[0].split("-")[0] for row in rows if row[-1].startswith(PERL)), 16)
        with open(proc / "mem", "rb", 0) as memory:
            pages = wanted_pages(memory, base)
        with tempfile.TemporaryDirectory() as temporary:
            path = pathlib.Path(temporary) / "core"
            subprocess.run(["gcore", "-o", path, str(child.pid)], check=True, capture_output=True)
            core = Core(path.with_name(f"core.{child.pid}").read_bytes())
    finally:
        child.kill()
        child.wait()
    found, data = segments(core, pages.__contains__)
    notes = core.text[core.note[0]:sum(core.note)]
    (folder / "cores/market.core").write_bytes(elf(found, kept(notes), data))


if __name__ == "__main__":
    main()

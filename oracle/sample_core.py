#!/usr/bin/env python3
"""Makes sample-profiles/cores/sessions.core: a core file of docs/examples/sessions.cpp, without the
pages that are zero and without those of libraries. Needs root, g++, setarch and gdb's gcore.
usage: oracle/sample_core.py FILE"""
import pathlib
import struct
import subprocess
import sys
import tempfile

from heapwalk_hostile import WRITE, Core, elf

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent / "docs/examples/sessions.cpp"
# The core file names the program's file, so it lies where programs do.
PROGRAM = pathlib.Path("/usr/local/bin/sessions")
PAGE = 4096


def segments(core, is_own):
    """The pages that are no zeros, of what the program could write to and of its own file."""
    data, found = bytearray(), []
    for address, offset, there, _, flags in core.loads:
        first = len(found)
        for page in range(0, there, PAGE):
            content = core.text[offset + page:offset + page + PAGE]
            if not any(content) or not flags & WRITE and not is_own(address + page):
                continue
            last = found[-1] if len(found) > first else None
            if last and last[0] + last[2] == address + page:
                found[-1] = (*last[:2], last[2] + PAGE, last[3] + PAGE, flags)
            else:
                found.append((address + page, len(data), PAGE, PAGE, flags))
            data += content
    return found, data


def kept(notes):
    """The notes that are read: registers, the auxiliary vector, mapped files."""
    found, at = b"", 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, at)
        end = at + 12 + (name + 3 & ~3) + (size + 3 & ~3)
        if kind in (1, 6, 0x46494c45):
            found += notes[at:end]
        at = end
    return found


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    build = ["g++", "-O1", "-g", "-Wl,-z,noseparate-code", "-o", PROGRAM, EXAMPLE]
    subprocess.run(build, check=True)
    child = subprocess.Popen(["setarch", "-R", PROGRAM], stdout=subprocess.PIPE, cwd="/",
                             env={"PATH": "/usr/bin"})
    try:
        child.stdout.readline()
        proc = pathlib.Path("/proc") / str(child.pid)
        # Also what lies in files, so that the program's constants are there.
        (proc / "coredump_filter").write_text("0x3f")
        rows = [line.split() for line in (proc / "maps").read_text().splitlines()]
        own = [[int(end, 16) for end in row[0].split("-")] for row in rows
               if row[-1] == str(PROGRAM)]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "core"
            subprocess.run(["gcore", "-o", path, str(child.pid)], check=True, capture_output=True)
            core = Core(path.with_name(f"core.{child.pid}").read_bytes())
    finally:
        child.kill()
        child.wait()
        PROGRAM.unlink()
    found, data = segments(core, lambda page: any(start <= page < end for start, end in own))
    notes = core.text[core.note[0]:sum(core.note)]
    pathlib.Path(sys.argv[1]).write_bytes(elf(found, kept(notes), data))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Damages the memory of a core file of a perl, and files of Devel::MAT, and asks perl-heap about them:
it has to end with an answer or with one line of error, soon, and with memory that fits the file.
usage: oracle/perl_heap_hostile.py HEAPPROF [--cores N] [--files N] [--seed N]"""
import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import resource
import struct
import subprocess
import tempfile
import time

SAMPLES = pathlib.Path(__file__).resolve().parent.parent / "sample-profiles"
ADDRESSES = 4 << 30
SECONDS = 20
QUESTIONS = [[], ["--cycles"], ["--pads"], ["--size", "%CACHE"], ["--size", "$CACHE{7}{customer}", "--contents"],
             ["-f", "json"], ["--anonymize", "-n0"], ["-o", "OUT"]]


def segments(core):
    """The pieces of the file that are memory: where they are in the file, and their addresses."""
    count, = struct.unpack_from("<H", core, 56)
    table, = struct.unpack_from("<Q", core, 32)
    for at in range(table, table + 56 * count, 56):
        kind, _, offset, address, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", core, at)
        if kind == 1 and length:
            yield offset, address, length


def damaged_core(core, pieces, draw):
    core = bytearray(core)
    # Most of what is read lies in the heap, which is the largest piece.
    weights = [length for _, _, length in pieces]
    for _ in range(draw.choice([1, 2, 4, 16, 64, 256, 4096])):
        offset, address, length = draw.choices(pieces, weights)[0]
        at = offset + 8 * draw.randrange(length // 8)
        word, = struct.unpack_from("<Q", core, at)
        other = address + 8 * draw.randrange(length // 8)
        word = draw.choice([0, 2**64 - 1, 2**63, draw.getrandbits(64), draw.getrandbits(20), other, other + 4,
                            word ^ 1 << draw.randrange(64), word + 8, word - 8, address + length - 4])
        struct.pack_into("<Q", core, at, word % 2**64)
    if draw.random() < 0.1:
        del core[draw.randrange(len(core)):]
    return core


def damaged_file(file, draw):
    file = bytearray(file)
    for _ in range(draw.choice([1, 1, 2, 4, 16, 64])):
        # The head says how long everything is.
        at = draw.randrange(200 if draw.random() < 0.3 else len(file) - 8)
        how = draw.randrange(5)
        if how == 0:
            file[at] = draw.randrange(256)
        elif how == 1:
            file[at:at + 8] = b"\xff" * 8
        elif how == 2:
            file[at:at + 8] = struct.pack("<Q", draw.getrandbits(draw.choice([8, 16, 32, 48, 64])))
        elif how == 3:
            source = draw.randrange(len(file) - 8)
            file[at:at + 8] = file[source:source + 8]
        else:
            length = draw.randrange(200)
            del file[at:at + length]
    if draw.random() < 0.1:
        del file[draw.randrange(len(file)):]
    return file


def ask(heapprof, number, seed, core, pieces, file, folder):
    draw = random.Random(seed * 1_000_003 + number)
    path = f"{folder}/{number}.{'core' if core else 'pmat'}"
    with open(path, "wb") as out:
        out.write(damaged_core(core, pieces, draw) if core else damaged_file(file, draw))
    written = f"{path}.pb.gz"
    words = [word.replace("OUT", written) for word in draw.choice(QUESTIONS)]
    target = f"core:{path}" if core else path
    if not core:
        words = [word for word in words if word != "--contents"]
    began = time.monotonic()
    try:
        done = subprocess.run([heapprof, "perl-heap", target, *words], capture_output=True, timeout=SECONDS,
                              stdin=subprocess.DEVNULL,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)))
        error = done.stderr.decode(errors="replace")
        lines = error.strip().splitlines()
        wrong = None
        if done.returncode not in (0, 2):
            wrong = f"exit code {done.returncode}: {error[:300]}"
        elif "panicked" in error:
            wrong = error[:300]
        elif done.returncode == 2 and (len(lines) != 1 or done.stdout):
            wrong = f"not one line of error: {error[:300]}"
        elif done.returncode == 0 and not done.stdout:
            wrong = "it says nothing"
        elif done.returncode == 0 and words == ["-f", "json"]:
            found = json.loads(done.stdout)
            for rows in ("types", "parts"):
                if sum(row["bytes"] for row in found[rows]) != found["bytes"]:
                    wrong = f"{rows} do not add up to {found['bytes']}"
        code = done.returncode
    except subprocess.TimeoutExpired:
        wrong, code = f"more than {SECONDS} s", None
    took = time.monotonic() - began
    for one in (path, written):
        if os.path.exists(one) and not wrong:
            os.unlink(one)
    return wrong and f"{path} {' '.join(words)}: {wrong}", code, took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("heapprof")
    parser.add_argument("--cores", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    core = (SAMPLES / "cores/market.core").read_bytes()
    pieces = list(segments(core))
    file = gzip.decompress((SAMPLES / "foreign/pmat/shelf.pmat.gz").read_bytes())
    folder = tempfile.mkdtemp(dir="/dev/shm")
    bad = 0
    for name, count, of_core in (("cores", args.cores, core), ("files of Devel::MAT", args.files, None)):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            def one(number):
                return ask(args.heapprof, number, args.seed, of_core, pieces, file, folder)
            found = list(pool.map(one, range(count)))
        wrong = [text for text, _, _ in found if text]
        bad += len(wrong)
        refused = sum(code == 2 for _, code, _ in found)
        print(f"{count} damaged {name}: {len(wrong)} wrong, {refused} refused, the longest took "
              f"{max(took for _, _, took in found):.2f} s", flush=True)
        for text in wrong[:20]:
            print(f"  {text}")
    raise SystemExit(bad != 0)


main()

"""The reader of profiles says what `heapprof top` says of the same files."""

import gzip
import json
import subprocess

import pytest
from conftest import REPOSITORY

from heapprof_cli import Frame, Profile, ProfileError

SAMPLES = REPOSITORY / "sample-profiles"
NAMES = sorted(
    str(file.relative_to(SAMPLES))
    for folder in ("valid", "python", "perl")
    for file in (SAMPLES / folder).glob("*.pb.gz")
)


def _same_as_top(program, file):
    profile = Profile.read(file)
    for sample_type in profile.sample_types:
        command = [program, "top", "--all-code", "-n0", "-fjson", "-t", sample_type, str(file)]
        answer = json.loads(subprocess.check_output(command))
        flat = {}
        for frame, size in profile.places(sample_type):
            function = frame.function, frame.filename
            flat[function] = flat.get(function, 0) + size
        want = {(row["function"], row.get("file", "")): row["flat"] for row in answer["rows"]}
        assert {function: size for function, size in flat.items() if size} == {
            function: size for function, size in want.items() if size
        }
        assert profile.total(sample_type) == answer["net"]


@pytest.mark.parametrize("name", NAMES)
def test_sample_profiles_are_read_as_heapprof_reads_them(program, name):
    _same_as_top(program, SAMPLES / name)


RECORDED = """
import json, sys, threading, zlib
import heapprof_cli
kept = []
class Orders:
    def take(self, count):
        kept.extend({"number": n, "text": "x" * (n % 900)} for n in range(count))
with heapprof_cli.record("out.pb.gz", period=sys.argv[1]):
    Orders().take(5000)
    thread = threading.Thread(target=lambda: kept.append(json.dumps(kept[:500])))
    thread.start()
    thread.join()
    kept.append(zlib.compress(bytes(1000000)))
    del kept[::2]
"""


@pytest.mark.parametrize("period", ["0", "4KiB"])
def test_what_was_recorded_is_read_as_heapprof_reads_it(program, python, tmp_path, period):
    python(RECORDED, period, HEAPPROF_OUTPUT="/dev/null/%p", HEAPPROF_START="no")
    file = tmp_path / "out.pb.gz"
    profile = Profile.read(file)
    assert profile.period == {"0": 0, "4KiB": 4096}[period]
    assert profile.total("inuse_space") > 700_000
    _same_as_top(program, file)


def test_a_stack_is_read_with_files_and_lines(python, tmp_path):
    python(
        "import heapprof_cli\n"
        "def inner():\n"
        "    return bytearray(3000000)\n"
        "def outer():\n"
        "    return inner()\n"
        "with heapprof_cli.record('out.pb.gz', exact=True):\n"
        "    kept = outer()\n"
    )
    row = Profile.read(tmp_path / "out.pb.gz").rows("inuse_space")[0]
    script = str(tmp_path / "program.py")
    assert row.stack.frames == (
        Frame("inner", script, 3),
        Frame("outer", script, 5),
        Frame("<module>", script, 7),
    )
    assert 3000000 <= row.value < 3000100
    assert (row.samples, row.variance) == (0, 0)


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "gzip", "wire", "number"])
def test_damage_is_named(tmp_path, damage):
    data = (SAMPLES / "valid/made.labels.pb.gz").read_bytes()
    plain = gzip.decompress(data)
    damaged = {
        "cut": data[: len(data) // 2],
        "text": b"This is a text, and no profile.\n",
        "empty": b"",
        "gzip": data[:20] + b"\0\0\0\0" + data[24:],
        "wire": b"\x0b" + plain,
        "number": plain + b"\x60" + b"\xff" * 11,
    }[damage]
    file = tmp_path / "damaged.pb.gz"
    file.write_bytes(damaged)
    with pytest.raises(ProfileError, match="damaged.pb.gz: is no heap profile, or is damaged: "):
        Profile.read(file)


def test_every_cut_of_a_profile_is_refused_or_read():
    plain = gzip.decompress((SAMPLES / "valid/made.labels.pb.gz").read_bytes())
    refused = 0
    for length in range(len(plain)):
        try:
            Profile(plain[:length])
        except ProfileError:
            refused += 1
    assert refused > len(plain) // 2


def test_a_sample_type_that_is_not_there_is_named():
    profile = Profile.read(SAMPLES / "valid/made.labels.pb.gz")
    with pytest.raises(KeyError, match="no sample type peak_space; it has .*inuse_space"):
        profile.total("peak_space")

"""heapprof_cli.record: what it records and writes, and what it refuses."""

import stat
import subprocess
import sys

import pytest

from heapprof_cli import Profile

HEAD = "import os, sys, heapprof_cli, pathlib\n"


def test_only_the_block_is_recorded(python, tmp_path):
    python(
        HEAD + "before = bytearray(3000000)\n"
        "assert not heapprof_cli.is_running()\n"
        "with heapprof_cli.record('out.pb.gz', exact=True) as recording:\n"
        "    assert heapprof_cli.is_running()\n"
        "    during = bytearray(2000000)\n"
        "    gone = bytearray(1000000)\n"
        "    del gone\n"
        "assert not heapprof_cli.is_running()\n"
        "after = bytearray(4000000)\n"
        "assert recording.path == pathlib.Path('out.pb.gz')\n"
        "assert recording.period == 0\n"
        "profile = recording.profile()\n"
        "assert profile.period == 0\n"
        "assert 2000000 < profile.total('inuse_space') < 2100000, profile.total('inuse_space')\n"
        "assert 3000000 < profile.total('peak_space') < 3100000\n"
    )
    file = tmp_path / "out.pb.gz"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "mode: exact" in Profile.read(file).comments


@pytest.mark.parametrize(
    "given, period",
    [("", 512 << 10), ("period=65536", 65536), ("period='64 KiB'", 65536), ("period=0", 0)],
)
def test_a_period_is_recorded(python, tmp_path, given, period):
    block = f"with heapprof_cli.record('out.pb.gz', {given}):\n    kept = bytearray(9000000)\n"
    python(HEAD + block)
    profile = Profile.read(tmp_path / "out.pb.gz")
    assert profile.period == period
    assert 8_900_000 < profile.total("inuse_space") < 11_000_000


@pytest.mark.parametrize("path", ["'a b%p.gz'", "b'a b%p.gz'", "pathlib.Path('a b%p.gz')"])
def test_a_path_may_be_of_any_kind(python, tmp_path, path):
    python(HEAD + f"with heapprof_cli.record({path}, exact=True): pass\n")
    assert (tmp_path / "a b%p.gz").exists()


def test_a_file_that_is_there_is_replaced(python, tmp_path):
    (tmp_path / "out.pb.gz").write_bytes(b"old" * 100000)
    python(HEAD + "with heapprof_cli.record('out.pb.gz'): pass\n")
    Profile.read(tmp_path / "out.pb.gz")


def test_the_folder_is_the_one_at_the_beginning(python, tmp_path):
    python(
        HEAD + "with heapprof_cli.record('out.pb.gz') as recording: os.chdir('/')\n"
        "recording.profile()"
    )
    assert (tmp_path / "out.pb.gz").exists()


def test_the_file_is_written_when_the_block_raises(python, tmp_path):
    done = python(
        HEAD + "with heapprof_cli.record('out.pb.gz', exact=True):\n"
        "    kept = bytearray(2000000)\n"
        "    raise KeyError('mine')\n",
        code=1,
    )
    assert "KeyError: 'mine'" in done.stderr
    assert Profile.read(tmp_path / "out.pb.gz").total("inuse_space") > 2000000


def test_without_the_library_it_says_what_to_do(python, tmp_path):
    done = python(
        HEAD + "assert not heapprof_cli.is_running()\n"
        "for act in (lambda: heapprof_cli.record('out.pb.gz').__enter__(),\n"
        "            lambda: heapprof_cli.dump('out.pb.gz')):\n"
        "    try: act()\n"
        "    except heapprof_cli.NotPreloaded as error:\n"
        "        assert isinstance(error, RuntimeError); print(error)\n",
        preload=False,
    )
    want = "start the program as LD_PRELOAD=$(heapprof setup preload-path) python3 ..."
    assert done.stdout.count(want) == 2
    assert not (tmp_path / "out.pb.gz").exists()


def test_a_recording_in_a_recording_is_refused(python, tmp_path):
    done = python(
        HEAD + "with heapprof_cli.record('outer.pb.gz', exact=True):\n"
        "    kept = bytearray(2000000)\n"
        "    try:\n"
        "        with heapprof_cli.record('inner.pb.gz'): pass\n"
        "    except heapprof_cli.AlreadyRecording as error: print(error)\n"
    )
    assert done.stdout.startswith("a recording for outer.pb.gz runs already")
    assert Profile.read(tmp_path / "outer.pb.gz").total("inuse_space") > 2000000
    assert not (tmp_path / "inner.pb.gz").exists()


def test_of_two_threads_one_records(python):
    python(
        HEAD + "import threading\n"
        "answers, both = [], threading.Barrier(2)\n"
        "def act(name):\n"
        "    both.wait()\n"
        "    try:\n"
        "        with heapprof_cli.record(name): answers.append('recorded'); both.wait()\n"
        "    except heapprof_cli.AlreadyRecording: answers.append('refused'); both.wait()\n"
        "threads = [threading.Thread(target=act, args=(name,)) for name in 'ab']\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "assert sorted(answers) == ['recorded', 'refused'], answers\n"
    )


def test_a_running_recording_is_replaced_only_if_asked(program, environment, tmp_path):
    (tmp_path / "program.py").write_text(
        HEAD + "kept = [bytearray(5000000)]\n"
        "try: heapprof_cli.record('part.pb.gz').__enter__()\n"
        "except heapprof_cli.AlreadyRecording as error: print(error)\n"
        "with heapprof_cli.record('part.pb.gz', exact=True, replace=True):\n"
        "    kept.append(bytes(70000))\n"
    )
    command = [program, "record", "-o", "all.pb.gz", "--", sys.executable, "program.py"]
    said = subprocess.check_output(command, cwd=str(tmp_path), universal_newlines=True)
    assert said.startswith("the program is recorded already, and a new recording would forget that")
    assert 70000 < Profile.read(tmp_path / "part.pb.gz").total("inuse_space") < 150000


def test_an_outer_recording_that_was_replaced_says_so(python, tmp_path):
    done = python(
        HEAD + "with heapprof_cli.record('outer.pb.gz'):\n"
        "    with heapprof_cli.record('inner.pb.gz', replace=True): pass\n",
        code=1,
    )
    assert "outer.pb.gz was not written: another recording has replaced this one" in done.stderr
    assert (tmp_path / "inner.pb.gz").exists()


@pytest.mark.parametrize(
    "path, error",
    [
        ("nowhere/out.pb.gz", "FileNotFoundError"),
        (".", "IsADirectoryError"),
        ("program.py/out.pb.gz", "NotADirectoryError"),
        ("x" * 300, "OSError"),
    ],
)
def test_a_file_that_cant_be_written_is_named(python, path, error):
    done = python(
        HEAD + "try:\n"
        "    with heapprof_cli.record(sys.argv[1]): pass\n"
        "except OSError as error:\n"
        "    print(type(error).__name__, error.filename == os.path.abspath(sys.argv[1]))\n"
        "assert not heapprof_cli.is_running()\n",
        path,
    )
    assert done.stdout == f"{error} True\n"


@pytest.mark.parametrize(
    "given, why",
    [
        ("'a', exact=True, period=5", "exact records every allocation, so it takes no period"),
        ("'a', period=-1", "-1 is no size"),
        ("'a', period='2 TiB'", "a period of 2TiB is above 1 TiB"),
        ("'a', period='much'", "'much' is no size"),
        (r"'a\0b'", "a path has no zero byte in it"),
    ],
)
def test_what_makes_no_sense_is_refused(python, given, why):
    done = python(HEAD + f"heapprof_cli.record({given})\n", code=1)
    assert f"ValueError: {why}" in done.stderr


def test_a_dump_goes_on(python, tmp_path):
    python(
        HEAD + "try: heapprof_cli.dump('none.pb.gz')\n"
        "except heapprof_cli.NotRecording: pass\n"
        "else: raise SystemExit('written')\n"
        "with heapprof_cli.record('out.pb.gz', exact=True):\n"
        "    first = bytearray(1000000)\n"
        "    heapprof_cli.dump('half.pb.gz')\n"
        "    second = bytearray(1000000)\n"
    )
    assert 1e6 < Profile.read(tmp_path / "half.pb.gz").total("inuse_space") < 1.1e6
    assert 2e6 < Profile.read(tmp_path / "out.pb.gz").total("inuse_space") < 2.2e6


def test_a_forked_child_does_not_write_the_file(python, tmp_path):
    python(
        HEAD + "with heapprof_cli.record('out.pb.gz', exact=True):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        kept = bytearray(9000000)\n"
        "        sys.exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    assert not os.path.exists('out.pb.gz')\n"
    )
    assert Profile.read(tmp_path / "out.pb.gz").total("inuse_space") < 1_000_000


SMALL = HEAD + (
    "kept = []\n"
    "with heapprof_cli.record('out.pb.gz', exact=True):\n"
    "    kept.extend(object() for _ in range(100000))\n"
)


@pytest.mark.parametrize(
    "variables, are_there",
    [
        ({}, False),
        ({"HEAPPROF_OUTPUT": "x", "HEAPPROF_START": "no", "HEAPPROF_PYTHON_OBJECTS": "yes"}, True),
        ({"HEAPPROF_OUTPUT": "x", "HEAPPROF_START": "no", "HEAPPROF_PYTHON_OBJECTS": "no"}, False),
    ],
)
def test_small_objects_are_there_if_the_environment_asks(python, tmp_path, variables, are_there):
    python(SMALL, **variables)
    objects = Profile.read(tmp_path / "out.pb.gz").total("inuse_objects")
    assert (objects >= 100000) == are_there
    assert not (tmp_path / "x").exists()


def test_a_child_may_record_whatever_its_parent_was_about_to_do(python, tmp_path):
    python(
        HEAD + "import heapprof_cli.recording\n"
        "heapprof_cli.recording._starting.acquire()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with heapprof_cli.record('child.pb.gz', exact=True):\n"
        "        kept = bytearray(100000)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    assert Profile.read(tmp_path / "child.pb.gz").total("inuse_space") > 100000


def test_what_the_block_raises_comes_before_what_can_not_be_written(python):
    done = python(
        HEAD + "with heapprof_cli.record('nowhere/out.pb.gz', exact=True):\n"
        "    raise KeyError('own')\n",
        code=1,
    )
    assert done.stderr.rstrip().endswith("KeyError: 'own'")
    assert "RuntimeWarning" in done.stderr and "nowhere/out.pb.gz" in done.stderr

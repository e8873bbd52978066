"""The summary, the files of tests, and what works with xdist."""

import importlib.util
import json
import os
import subprocess

import pytest
from conftest import MAY_SKIP

from heapprof_cli import Profile
from heapprof_cli.measure import file_name

THREE = (
    "def test_small(): bytearray(1000)\n"
    "def test_large(): bytearray(3 << 20)\n"
    "def test_fails():\n    kept = bytearray(2 << 20)\n    assert False\n"
)


def _tests(done):
    return [line.split()[-1] for line in done.outlines if "iB " in line and "::" in line]


def test_the_largest_peaks_come_first(project):
    done = project(THREE, "--heapprof")
    done.assert_outcomes(passed=2, failed=1)
    assert [test.split("::")[1] for test in _tests(done)[:2]] == ["test_large", "test_fails"]
    done.stdout.fnmatch_lines(["*peak  in use at the end  allocations  test", "* test_large (*:3)"])


def test_skipped_tests_are_left_out(project):
    text = "import unittest\ndef test_one(): pytest.skip()\ndef test_two(): pass\n"
    text += "class TestIt(unittest.TestCase):\n    def test_three(self): self.skipTest('mine')\n"
    done = project(text, "--heapprof")
    done.assert_outcomes(passed=1, skipped=2)
    done.stdout.no_fnmatch_line("*test_one*")
    done.stdout.no_fnmatch_line("*B *test_three*")
    done.stdout.fnmatch_lines(["*B *test_two"])


def test_as_many_as_asked_are_shown(project, pytester):
    done = project(THREE, "--heapprof", "--most-allocations=1")
    assert len(_tests(done)) == 1
    done.stdout.fnmatch_lines(["1 of 3 tests, by peak; --most-allocations=0 shows all"])
    pytester.makeini("[pytest]\nmost_allocations = 2\n")
    assert len(_tests(project(THREE, "--heapprof"))) == 2
    assert len(_tests(project(THREE, "--heapprof", "--most-allocations=0"))) == 3


@pytest.mark.parametrize("how", ["option", "ini"])
def test_the_summary_can_be_hidden(project, pytester, how):
    if how == "ini":
        pytester.makeini("[pytest]\nhide_heapprof_summary = true\n")
    args = ["--hide-heapprof-summary"] if how == "option" else []
    done = project(THREE, "--heapprof", *args)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.no_fnmatch_line("*in use at the end*")


def test_a_test_that_ends_the_recording_is_noted(project):
    text = (
        "import heapprof_cli\n"
        "def test_it():\n"
        "    with heapprof_cli.record('a', replace=True): pass\n"
    )
    done = project(text, "--heapprof")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["test_it.py::test_it: ended the recording itself, so it has no *"])


def test_each_test_has_a_file(project, pytester, program):
    text = THREE + "@pytest.mark.parametrize('a', ['x/y', 'x:y'])\ndef test_p(a): pass\n"
    project(text, "--heapprof-dir=new/folder").assert_outcomes(passed=4, failed=1)
    folder = pytester.path / "new/folder"
    names = sorted(file.name for file in folder.iterdir())
    assert len(names) == 5
    assert names[0] == "test_it.py-test_fails.pb.gz"
    for name, least in (("test_large", 3 << 20), ("test_fails", 2 << 20)):
        file = str(folder / f"test_it.py-{name}.pb.gz")
        command = [program, "top", "--format", "json", "-t", "peak_space", file]
        assert json.loads(subprocess.check_output(command))["total"] > least
        assert Profile.read(file).total("peak_space") > least


def test_a_folder_that_cant_be_made_is_named(project, pytester):
    (pytester.path / "file").write_text("")
    done = project(THREE, "--heapprof-dir=file/folder")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: heapprof: file/folder: Not a directory; name another *"])


def test_a_folder_that_is_lost_fails_the_test(project):
    done = project(
        "import shutil\n@pytest.mark.limit_memory('1 GiB')\ndef test_it(): shutil.rmtree('gone')\n",
        "--heapprof-dir=gone",
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["heapprof: *gone/test_it*: the profile of this test can't be *"])


@pytest.mark.parametrize(
    "test, name",
    [
        ("a/test_b.py::TestC::test_d[1-x]", "a.test_b.py-TestC-test_d[1-x].pb.gz"),
        ("test_b.py::test_d[a/b]", "test_b.py-test_d[a.b].pb.gz"),
    ],
)
def test_a_plain_name_stays(test, name):
    assert file_name(test) == name


def test_other_names_stay_different():
    tests = ["t.py::t[a b]", "t.py::t[a:b]", "t.py::t[" + "é" * 300, "t.py::t[" + "é" * 301]
    names = {file_name(test) for test in tests}
    assert len(names) == 4
    assert all(len(os.fsencode(name)) < 255 for name in names)


@pytest.fixture
def xdist():
    """Needs pytest-xdist."""
    if importlib.util.find_spec("xdist") is None:
        if MAY_SKIP:
            pytest.skip("pytest-xdist is not installed")
        pytest.fail("pytest-xdist is not installed", pytrace=False)


def test_workers_of_xdist_record(project, xdist):
    text = THREE + "@pytest.mark.limit_memory('1 MiB')\ndef test_above(): bytearray(2 << 20)\n"
    done = project(text, "-n2", "--heapprof", "--heapprof-dir=out")
    done.assert_outcomes(passed=2, failed=2)
    assert len(_tests(done)) >= 3
    done.stdout.fnmatch_lines(["heapprof: the peak of * is above the limit of 1MiB"])


def test_workers_that_cant_record_let_no_limit_pass(project, xdist):
    text = "@pytest.mark.limit_memory('9 GiB')\ndef test_it(): pass\n"
    done = project(text, "-n1")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["heapprof: libheapprof.so is not preloaded, so the limit can't *"])
    project(text, "-n1", "--heapprof").assert_outcomes(passed=1)


@pytest.mark.parametrize("args", [[], ["--heapprof"]])
def test_workers_name_a_marker_that_cant_be_read(project, xdist, args):
    text = "@pytest.mark.limit_memory('1 XB')\ndef test_it(): pass\ndef test_other(): pass\n"
    done = project(text, "-n1", *args)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["heapprof: test_it.py::test_it: limit_memory: '1 XB' is no size; *"])


def test_workers_of_xdist_find_increases(project, xdist):
    for size, outcome in ((500, "passed"), (500, "passed"), (600, "failed"), (500, "passed")):
        done = project(f"def test_it(): bytearray({size} << 10)\n", "-n1", "--fail-on-increase")
        done.assert_outcomes(**{outcome: 1})

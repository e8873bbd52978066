"""limit_memory and limit_leaks: which tests fail, and what they say."""

import pytest

from heapprof_cli import Profile

TWO_MIB = "    kept = bytearray(2 << 20)\n"


def test_a_test_above_its_limit_fails_and_names_the_place(project):
    done = project(
        "@pytest.mark.limit_memory('3 MiB')\n"
        "def test_below():\n" + TWO_MIB + "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_above():\n    def make(): return bytearray(2 << 20)\n    make()\n"
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "heapprof: records every allocation of tests that have limits, with Python's small *",
            "heapprof: the peak of 2MiB is above the limit of 1MiB",
            "  2MiB *make (test_it.py:7) < *test_above",
            "FAILED test_it.py::test_above*",
        ]
    )


def test_the_limit_itself_is_allowed(project, pytester):
    text = "@pytest.mark.limit_memory(LIMIT)\ndef test_it():\n    bytearray(100000)\n"
    project("LIMIT = 1 << 40\n" + text, "--heapprof-dir=out").assert_outcomes(passed=1)
    peak = Profile.read(pytester.path / "out/test_it.py-test_it.pb.gz").total("peak_space")
    assert peak > 100000
    project(f"LIMIT = {peak}\n" + text, "--heapprof").assert_outcomes(passed=1)
    project(f"LIMIT = {peak - 1}\n" + text, "--heapprof").assert_outcomes(failed=1)


def test_fixtures_do_not_count(project):
    project(
        "@pytest.fixture\n"
        "def large():\n"
        "    kept = bytearray(9 << 20)\n"
        "    yield kept\n"
        "    bytearray(9 << 20)\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "@pytest.mark.limit_leaks('1 MiB')\n"
        "def test_it(large): pass\n"
    ).assert_outcomes(passed=1)


def test_the_nearest_marker_counts(project):
    project(
        "@pytest.mark.limit_memory('1 MiB')\n"
        "class TestAll:\n"
        "    def test_class(self): bytearray(2 << 20)\n"
        "    @pytest.mark.limit_memory('3 MiB')\n"
        "    def test_own(self): bytearray(2 << 20)\n"
        "@pytest.mark.parametrize('size', [\n"
        "    1, pytest.param(2, marks=pytest.mark.limit_memory('1 MiB'))])\n"
        "def test_param(size): bytearray(size << 20)\n"
    ).assert_outcomes(passed=2, failed=2)


def test_small_objects_count_unless_they_are_left_out(project):
    text = (
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_it():\n    kept = list(map(float, range(100000)))\n"
    )
    project(text).assert_outcomes(failed=1)
    done = project(text, "--heapprof-python-objects=no")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["heapprof: *, without Python's small objects (up to 512 bytes)*"])


@pytest.mark.parametrize("base", ["TestCase", "IsolatedAsyncioTestCase"])
def test_unittest_is_judged_too(project, base):
    is_async = "async " if base != "TestCase" else ""
    done = project(
        "import unittest\n"
        f"class TestIt(unittest.{base}):\n"
        "    @pytest.mark.limit_memory('1 MiB')\n"
        f"    {is_async}def test_above(self): self.kept = bytearray(2 << 20)\n"
        "    @pytest.mark.limit_memory('1 MiB')\n"
        f"    {is_async}def test_skips(self): bytearray(2 << 20); self.skipTest('mine')\n"
        "    @pytest.mark.limit_memory('1 MiB')\n"
        f"    {is_async}def test_wrong(self): bytearray(2 << 20); self.fail('my own')\n"
        "    @pytest.mark.limit_leaks('1 MiB')\n"
        f"    {is_async}def test_fine(self): bytearray(2 << 20)\n",
    )
    done.assert_outcomes(passed=1, failed=2, skipped=1)
    done.stdout.fnmatch_lines(["heapprof: the peak of * is above *", "*AssertionError: my own"])
    assert done.stdout.str().count("\nheapprof: the peak") == 1


def test_what_a_test_says_itself_comes_first(project):
    done = project(
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_fails():\n    bytearray(2 << 20)\n    assert False, 'mine'\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_skips():\n    bytearray(2 << 20)\n    pytest.skip('mine')\n"
        "@pytest.mark.xfail(strict=True)\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_expected():\n    bytearray(2 << 20)\n"
    )
    done.assert_outcomes(failed=1, skipped=1, xfailed=1)
    done.stdout.no_fnmatch_line("*is above the limit*")


def test_leaks_are_named_by_stack(project):
    done = project(
        "kept = []\n"
        "def keep(size): kept.append(bytearray(size << 10))\n"
        "@pytest.mark.limit_leaks('100 KiB')\n"
        "def test_it():\n"
        "    bytearray(9 << 20)\n"
        "    for _ in range(3): keep(50)\n"
        "    keep(40)\n"
        "    keep(60)\n"
        "    keep(300)\n"
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "heapprof: 2 stacks have more in use at the end than the limit of 100KiB: 450.*KiB",
            "  300.0*KiB from",
            "    keep (test_it.py:3)",
            "    test_it (test_it.py:10)",
            "  150.*KiB from",
            "    keep (test_it.py:3)",
            "    test_it (test_it.py:7)",
        ],
        consecutive=True,
    )


def test_cycles_are_no_leaks(project):
    project(
        "class Node: pass\n"
        "@pytest.mark.limit_leaks('100 KiB')\n"
        "def test_it():\n"
        "    node = Node(); node.itself = node; node.data = bytearray(1 << 20)\n"
    ).assert_outcomes(passed=1)


def test_a_filter_chooses_leaks(project):
    project(
        "kept = []\n"
        "def known(): kept.append(bytearray(1 << 20))\n"
        "def is_news(stack):\n"
        "    frame = stack.frames[0]\n"
        "    assert frame.filename.endswith('test_it.py') and frame.lineno > 0\n"
        "    return all(frame.function != 'known' for frame in stack.frames)\n"
        "@pytest.mark.limit_leaks('100 KiB', filter_fn=is_news)\n"
        "def test_known(): known()\n"
        "@pytest.mark.limit_leaks('100 KiB', filter_fn=is_news)\n"
        "def test_new(): kept.append(bytearray(1 << 20))\n"
    ).assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("warmups, outcome", [(0, "failed"), (1, "passed")])
def test_warmups_fill_caches(project, warmups, outcome):
    project(
        "cache, runs = {}, []\n"
        f"@pytest.mark.limit_leaks('100 KiB', warmups={warmups})\n"
        "def test_it():\n"
        "    runs.append(1)\n"
        "    if not cache: cache[1] = bytearray(1 << 20)\n"
        f"def test_runs(): assert len(runs) == {warmups} + 1\n"
    ).assert_outcomes(**{"passed": 1, outcome: 1} if outcome == "failed" else {"passed": 2})


def test_warmups_of_unittest(project):
    text = (
        "import unittest\n"
        "runs = []\n"
        "class TestIt(unittest.TestCase):\n"
        "    @pytest.mark.limit_leaks('1 MiB', warmups=2)\n"
        "    def test_fine(self): runs.append(1)\n"
        "    def test_runs(self): assert len(runs) == 3\n"
    )
    project(text).assert_outcomes(passed=2)
    done = project(text.replace("TestCase", "IsolatedAsyncioTestCase"))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: heapprof: *test_fine: limit_leaks: *can't run twice*"])


@pytest.mark.parametrize(
    "marker, why",
    [
        ("limit_memory('1 XB')", "limit_memory: '1 XB' is no size; write a size such as '24 MiB'*"),
        ("limit_memory()", "limit_memory: missing a required argument: 'memory_limit'"),
        ("limit_memory('1 MB', current_thread_only=True)", "limit_memory: *unexpected keyword*"),
        ("limit_leaks('1 MB', warmups=-1)", "limit_leaks: warmups is -1 instead of a number *"),
        ("limit_leaks('1 MB', filter_fn=3)", "limit_leaks: filter_fn is 3, which can't be called"),
    ],
)
def test_a_marker_that_cant_be_read_is_named(project, marker, why):
    done = project(f"@pytest.mark.{marker}\ndef test_it(): pass\n")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: heapprof: test_it.py::test_it: {why}"])


def test_a_test_that_ends_the_recording_fails(project):
    done = project(
        "import heapprof_cli\n"
        "@pytest.mark.limit_memory('1 GiB')\n"
        "def test_it():\n"
        "    with heapprof_cli.record('own.pb.gz', replace=True): pass\n"
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["heapprof: the test ended the recording itself, so its limit *"])


MANY = "def make(count): return [bytes(1000) for _ in range(count)]\n"


def test_sampled_tests_are_judged_by_estimates(project):
    done = project(
        MANY + "kept = []\n"
        "@pytest.mark.limit_memory('1 MiB')\ndef test_high(): make(2500)\n"
        "@pytest.mark.limit_memory('1 MiB')\ndef test_low(): make(100)\n"
        "@pytest.mark.limit_leaks('1 MiB')\ndef test_leaks(): kept.extend(make(2500))\n"
        "@pytest.mark.limit_leaks('1 MiB')\ndef test_frees(): make(2500)\n",
        "--heapprof-period=16KiB",
    )
    done.assert_outcomes(failed=2, passed=2)
    done.stdout.fnmatch_lines(
        [
            "heapprof: records one allocation in 16384 bytes on average of tests that have *",
            "heapprof: the estimated peak of *MiB (at least *MiB) is above the limit of 1MiB",
            "heapprof: one stack surely has more in use at the end than the limit of 1MiB: about *",
            "The values are estimates from a sample.",
        ]
    )


def test_exact_overrides_a_period(project, pytester):
    pytester.makeini("[pytest]\nheapprof_period = 16KiB\n")
    text = "@pytest.mark.limit_memory('1 MiB')\ndef test_it(): bytearray(2 << 20)\n"
    project(text).stdout.fnmatch_lines(["heapprof: records one allocation in 16384 bytes *"])
    done = project(text, "--heapprof-exact")
    done.stdout.fnmatch_lines(["heapprof: records every allocation of tests that have limits, *"])


def test_paths_that_python_ignores_do_no_harm(project):
    done = project(
        "import pathlib, sys\n"
        "sys.path[:0] = [pathlib.Path('/'), b'/']\n"
        "@pytest.mark.limit_memory('1 MiB')\ndef test_it():\n" + TWO_MIB
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["heapprof: the peak of 2MiB is above the limit of 1MiB"])

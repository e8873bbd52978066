"""Limits of tests without markers, and of the children that tests fork."""

from heapprof_cli import Profile


def test_threads_and_forked_children_count(project, pytester):
    text = (
        "import multiprocessing, os, threading\n"
        "def large(): bytearray(2 << 20)\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_thread():\n"
        "    thread = threading.Thread(target=large)\n"
        "    thread.start(); thread.join()\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_fork():\n"
        "    child = multiprocessing.get_context('fork').Process(target=large)\n"
        "    child.start(); child.join()\n"
        "    assert child.exitcode == 0\n"
    )
    done = project(text, "--heapprof-dir=out")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "heapprof: the peak of 2* of its child * is above the limit of 1MiB",
            "  2MiB large (test_it.py:3) < *",
            "* test_it.py::test_fork (in a child)",
        ]
    )
    kept = list((pytester.path / "out").glob("test_it.py-test_fork.*.pb.gz"))
    assert [Profile.read(path).total("peak_space") > 2 << 20 for path in kept] == [True]
    project(text, "--heapprof-children=no").assert_outcomes(passed=1, failed=1)


def test_a_child_that_runs_on_or_is_killed_is_no_error(project):
    project(
        "import os\n"
        "@pytest.mark.limit_memory('1 MiB')\n"
        "def test_it():\n"
        "    for _ in range(2):\n"
        "        (read, write), child = os.pipe(), os.fork()\n"
        "        if not child:\n"
        "            os.close(write); os.read(read, 1); os._exit(0)\n"
        "    os.kill(child, 9); os.waitpid(child, 0)\n"
    ).assert_outcomes(passed=1)


def test_tests_without_markers_may_have_a_limit(project, pytester):
    text = (
        "@pytest.mark.limit_memory('9 MiB')\n"
        "def test_own(): bytearray(2 << 20)\n"
        "def test_usual(): bytearray(2 << 20)\n"
        "kept = []\n"
        "def test_leak(): kept.append(bytearray(500 << 10))\n"
    )
    project(text, "--heapprof-limit-memory=1 MiB").assert_outcomes(passed=2, failed=1)
    project(text, "--heapprof-limit-leaks=100 KiB").assert_outcomes(passed=2, failed=1)
    pytester.makeini("[pytest]\nheapprof_limit_memory = 1 MiB\nheapprof_limit_leaks = 100 KiB\n")
    project(text).assert_outcomes(passed=1, failed=2)
    project(text, "--heapprof-off").assert_outcomes(passed=3)
    done = project(text, "--heapprof-limit-memory=much")
    assert done.ret != 0
    done.stderr.fnmatch_lines(["ERROR: heapprof: heapprof_limit_memory: *"])

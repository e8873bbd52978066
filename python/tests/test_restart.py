"""pytest starts again with the library preloaded, or says why it can't."""

import os
import subprocess
import sys

import pytest

from heapprof_cli.program import carried

MARKED = "@pytest.mark.limit_memory('1 MiB')\ndef test_it(): bytearray(COUNT << 20)\n"
BELOW, ABOVE = MARKED.replace("COUNT", "0"), MARKED.replace("COUNT", "2")


def test_limits_are_enough(project):
    done = project(ABOVE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "heapprof: records tests that have limits",
            "heapprof: 1 of these tests have limits, so pytest starts again with libheapprof.so *",
            "heapprof: records every allocation of tests that have limits, with Python's small *",
        ]
    )


def test_the_option_does_it_at_once(project):
    done = project(ABOVE, "--heapprof")
    done.assert_outcomes(failed=1)
    assert done.stdout.str().count("test session starts") == 1
    done.stdout.fnmatch_lines(["heapprof: records every allocation of each test, with Python's *"])


@pytest.mark.parametrize("ini", ["heapprof = true", "addopts = --heapprof"])
def test_the_ini_file_does_it_too(project, pytester, ini):
    pytester.makeini(f"[pytest]\n{ini}\n")
    done = project("def test_it(): bytearray(2 << 20)\n")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["=* heapprof =*", "*2*MiB * test_it.py::test_it"])


def test_the_script_pytest_starts_again(environment, pytester):
    pytester.makepyfile(test_it="import pytest\n" + ABOVE)
    script = os.path.join(os.path.dirname(sys.executable), "pytest")
    if not os.path.exists(script):
        pytest.fail(f"{script}: this Python has no pytest beside it")
    pytester.run(script, "-q").assert_outcomes(failed=1)


def test_tests_without_limits_start_once(project):
    done = project("import os\ndef test_it(): assert 'LD_PRELOAD' not in os.environ\n")
    done.assert_outcomes(passed=1)
    assert done.stdout.str().count("test session starts") == 1


def test_collecting_does_not_start_again(project):
    done = project(ABOVE, "--collect-only")
    assert done.ret == 0
    assert done.stdout.str().count("test session starts") == 1


def test_tests_have_the_environment_of_the_user(project, environment):
    environment.setenv("LD_PRELOAD", "libm.so.6")
    project(
        "import os\n@pytest.mark.limit_memory('1 GiB')\n"
        "def test_it():\n"
        "    assert os.environ['LD_PRELOAD'] == 'libm.so.6'\n"
        "    names = [name for name in os.environ if name.startswith('HEAPPROF')]\n"
        "    assert names == ['HEAPPROF_BIN']\n"
    ).assert_outcomes(passed=1)


def test_off_leaves_limits_out(project):
    done = project(ABOVE, "--heapprof-off", "--heapprof")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["heapprof: off, so limits of memory are not checked"])


def _refused(done, why):
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: heapprof: {why}"])


@pytest.mark.parametrize("args", [[], ["--heapprof"], ["--fail-on-increase"]])
@pytest.mark.skipif(carried() is not None, reason="the package that is tested has the program")
def test_without_heapprof_no_limit_passes(project, environment, args):
    environment.delenv("HEAPPROF_BIN")
    environment.setenv("PATH", "/nowhere")
    _refused(project(BELOW, *args), "there is no program heapprof, * install heapprof *")


def test_a_wrong_program_is_named(project, pytester):
    done = project(BELOW, "--heapprof-bin=/nowhere/heapprof")
    _refused(done, "/nowhere/heapprof: is not there, so no memory is recorded; *")
    program = pytester.path / "mine"
    program.write_text("#!/bin/sh\necho no room here >&2; exit 2\n")
    program.chmod(0o755)
    _refused(project(BELOW, f"--heapprof-bin={program}"), "*mine preload-path: no room here; *")
    program.write_text("#!/bin/sh\necho /nowhere/lib.so\n")
    done = project(BELOW, f"--heapprof-bin={program}")
    _refused(done, "*mine preload-path: it does not say where libheapprof.so is; *")
    program.write_text("no program\n")
    _refused(project(BELOW, f"--heapprof-bin={program}"), "*mine: Exec format error; *")


@pytest.mark.parametrize("args", [[], ["--heapprof"]])
def test_a_library_that_does_not_load_is_no_endless_loop(project, pytester, args):
    wrong = pytester.path / "wrong.so"
    wrong.write_text("no library")
    program = pytester.path / "mine"
    program.write_text(f"#!/bin/sh\necho {wrong}\n")
    program.chmod(0o755)
    done = project(BELOW, f"--heapprof-bin={program}", *args)
    _refused(done, "*: libheapprof.so was preloaded but is not there; *")


def _called(pytester, *args, **variables):
    pytester.makepyfile(test_it="import pytest\n" + ABOVE)
    pytester.makepyfile(mine=f"import pytest, sys\nsys.exit(pytest.main({list(args)}))\n")
    command = [sys.executable, "mine.py"]
    return subprocess.run(
        command,
        cwd=str(pytester.path),
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


@pytest.mark.parametrize("args", [[], ["--heapprof"]])
def test_a_program_that_calls_pytest_is_not_started_again(environment, pytester, args):
    done = _called(pytester, *args)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "pytest was called by another program" in done.stderr


def test_a_program_that_is_preloaded_may_call_pytest(environment, pytester, library):
    done = _called(
        pytester,
        LD_PRELOAD=library,
        HEAPPROF_OUTPUT="/dev/null/%p",
        HEAPPROF_START="no",
        HEAPPROF_PYTHON_OBJECTS="yes",
    )
    assert "with Python's small objects" in done.stdout
    assert "MiB is above the limit of 1MiB" in done.stdout


def test_what_only_the_beginning_could_change_is_refused(environment, pytester, library):
    done = _called(pytester, "--heapprof-python-objects=yes", LD_PRELOAD=library)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Python's small objects are not recorded in this process" in done.stderr
    assert "without Python's small objects" in _called(pytester, LD_PRELOAD=library).stdout


@pytest.mark.parametrize("text, args", [(ABOVE, []), ("def test_it(): pass\n", ["--heapprof"])])
def test_pytest_that_is_recorded_itself_is_left_alone(environment, pytester, program, text, args):
    pytester.makepyfile(test_it="import pytest\n" + text)
    record = [program, "record", "-o", "all.pb.gz", "--", sys.executable, "-m", "pytest"]
    done = pytester.run(*record, *args)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: heapprof: pytest itself is recorded already, *"])
    assert pytester.run(*record, "--heapprof-off").ret == 0


@pytest.mark.parametrize(
    "args, why",
    [
        ("--heapprof-period=much", "heapprof_period: 'much' is no size; *"),
        ("--heapprof-period=2TiB", "heapprof_period: 2TiB is above 1 TiB"),
        ("--heapprof-tolerance=x%", "heapprof_tolerance: 'x%' is no tolerance; *"),
        ("--most-allocations=-1", "most_allocations: '-1' is no number of tests"),
    ],
)
def test_an_option_that_cant_be_read_is_named(project, args, why):
    _refused(project(BELOW, args), why)

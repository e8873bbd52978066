"""What the tests of the Python package share: the program heapprof, and Python with the library.

The program is the one that HEAPPROF_BIN names, or the one in PATH. Without it, tests that record
are skipped; with HEAPPROF_REQUIRE=all they fail.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

REPOSITORY = Path(__file__).resolve().parents[2]
_NONE = "there is no program heapprof, so nothing can be recorded: set HEAPPROF_BIN to its path"
MAY_SKIP = os.environ.get("HEAPPROF_REQUIRE") != "all"
_skipped = []


@pytest.fixture(scope="session")
def program():
    """The path of heapprof."""
    found = shutil.which(os.environ.get("HEAPPROF_BIN") or "heapprof")
    if found is not None:
        return os.path.abspath(found)
    if MAY_SKIP:
        pytest.skip(_NONE)
    pytest.fail(_NONE, pytrace=False)


@pytest.fixture(scope="session")
def library(program):
    """The path of libheapprof.so."""
    return subprocess.check_output([program, "preload-path"], universal_newlines=True).strip()


@pytest.fixture
def environment(program, monkeypatch):
    """An environment that has nothing of heapprof but the program."""
    for name in [name for name in os.environ if name.startswith("HEAPPROF")]:
        monkeypatch.delenv(name)
    # pytest shortens less where it takes itself to be in CI.
    of_pytest = ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    for name in (*of_pytest, "LD_PRELOAD", "PYTHONMALLOC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEAPPROF_BIN", program)
    monkeypatch.setenv("COLUMNS", "100")
    return monkeypatch


@pytest.fixture
def python(environment, library, tmp_path):
    """Runs a text as a Python program with the library, in a folder of its own."""

    def run(text, *args, code=0, preload=True, **variables):
        script = tmp_path / "program.py"
        script.write_text(text)
        env = {**os.environ, **variables}
        if preload:
            env["LD_PRELOAD"] = library
        done = subprocess.run(
            [sys.executable, str(script), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            cwd=str(tmp_path),
            env=env,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def project(environment, pytester):
    """Runs pytest in a process of its own on the text of a file with tests."""

    def run(text, *args):
        pytester.makepyfile(test_it="import pytest\n" + text)
        return pytester.runpytest_subprocess(*args)

    return run


def pytest_runtest_logreport(report):
    """Counts the tests that could not record."""
    if report.skipped and _NONE in str(report.longrepr):
        _skipped.append(report.nodeid)


def pytest_terminal_summary(terminalreporter):
    """Says loudly what was not tested."""
    if _skipped:
        terminalreporter.write_sep("!", f"{len(_skipped)} tests skipped", red=True)
        terminalreporter.write_line(_NONE, red=True)

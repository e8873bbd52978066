"""The program is the one of the package, or the one in PATH, and python -m becomes it."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

from heapprof_cli import program


class File:
    """A file of an installed package, as importlib.metadata has them."""

    def __init__(self, name, folder):
        self.parts = tuple(name.split("/"))
        self._path = folder / self.parts[-1]

    def locate(self):
        return self._path


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A package with these files, of which the program is there and may be run or not."""

    def install(*names, mode=0o755):
        (tmp_path / "heapprof").write_text("#!/bin/sh\necho carried \"$@\"\n")
        (tmp_path / "heapprof").chmod(mode)
        files = [File(name, tmp_path) for name in names]
        monkeypatch.setattr(metadata, "files", lambda _: files)
        return str(tmp_path / "heapprof")

    return install


def test_the_program_of_the_package_is_before_that_in_path(installed):
    path = installed("heapprof_cli/__init__.py", "../../../bin/heapprof")
    assert program.find() == path


@pytest.mark.parametrize(
    "names, mode",
    [([], 0o755), (["heapprof_cli/heapprof"], 0o755), (["../../../bin/heapprof"], 0o644)],
)
def test_what_is_no_program_is_not_taken(installed, monkeypatch, names, mode):
    installed(*names, mode=mode)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program.find() is None


def test_a_package_that_is_not_installed_has_none(monkeypatch):
    def files(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", files)
    assert program.carried() is None


def _module(*args, **variables):
    return subprocess.run(
        [sys.executable, "-m", "heapprof_cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env={**os.environ, **variables},
    )


@pytest.mark.skipif(program.carried() is not None, reason="the package has another program")
def test_the_module_becomes_the_program(tmp_path):
    (tmp_path / "heapprof").write_text("#!/bin/sh\necho \"$@\"; exit 3\n")
    (tmp_path / "heapprof").chmod(0o755)
    done = _module("top", "a file", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (3, "top a file\n")
    done = _module("top", PATH="/nowhere")
    assert done.returncode == 1
    assert "there is no program heapprof; pip install heapprof-cli brings it" in done.stderr

"""The package agrees with the repository that it is in, and with its own guide."""

import re
from pathlib import Path

import pytest

from heapprof_cli import pytest_options

HERE = Path(__file__).resolve().parents[1]
CARGO = HERE.parent / "Cargo.toml"


def _value(file, name):
    return re.search(rf'^{name} = "(.*)"$', file.read_text(), re.M).group(1)


@pytest.mark.parametrize("name", ["version", "license"])
def test_it_is_of_the_version_and_licence_of_heapprof(name):
    if not CARGO.exists():
        pytest.skip("these are the tests of a source distribution, which has no Cargo.toml")
    assert _value(HERE / "pyproject.toml", name) == _value(CARGO, name)


def _options():
    found = []

    class Parser:
        def getgroup(self, *_):
            return self

        def addoption(self, name, **_):
            found.append(name)

        def addini(self, name, *_, **__):
            found.append(name)

    pytest_options.add(Parser())
    return found


@pytest.mark.parametrize("name", _options())
def test_the_guide_has_each_option(name):
    assert f"`{name}" in (HERE / "README.md").read_text()


FILES = sorted(HERE.glob("*/*.py"))


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_a_file_says_why_it_is_there_and_is_not_too_large(file):
    lines = file.read_text().splitlines()
    assert lines[0].startswith('"""')
    assert len(lines) <= 300
    assert [line for line in lines if len(line) > 100] == []

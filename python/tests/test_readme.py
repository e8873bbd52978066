"""The examples of the guide do what it says. Numbers may differ: they depend on the Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLESS = os.environ.get("HEAPPROF_BLESS") == "1"
BLOCK = re.compile(r"^```(python|console)(?: exit=(\d+))?\n(.*?)^```\n", re.M | re.S)


def _alike(text):
    """Makes texts equal that differ in numbers and in how they are aligned."""
    text = re.sub(r"\d+(\.\d+)?", "N", text)
    text = re.sub(r"[KM]iB|N%|<N", "N", text)
    # pytest 7 does not say why there.
    text = re.sub(r"^(FAILED \S+) - .*", r"\1", text, flags=re.M)
    return [re.sub(r"([ =_.-])\1+", r"\1", line).strip() for line in text.splitlines()]


def _run(commands, folder):
    """Runs the lines with `$` in one shell. Returns them with what they print, and the code."""
    said, settings, code = "", [], 0
    for line in commands:
        said += f"$ {line}\n"
        if line.startswith("export "):
            settings.append(line)
            continue
        done = subprocess.run(
            ["sh", "-c", "\n".join([*settings, line])],
            cwd=str(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        said += done.stdout
        code = done.returncode
    return said, code


def test_the_examples_are_true(environment, program, tmp_path):
    places = [os.path.dirname(program), os.path.dirname(sys.executable), os.environ["PATH"]]
    environment.setenv("PATH", os.pathsep.join(places))
    environment.setenv("PYTHONWARNINGS", "ignore")
    environment.delenv("HEAPPROF_BIN")
    text = README.read_text()
    written, last, examples = "", 0, 0
    for block in BLOCK.finditer(text):
        kind, wanted, body = block.groups()
        written += text[last : block.start()]
        last = block.end()
        if kind == "python":
            name = body.split("\n", 1)[0][2:]
            (tmp_path / name).write_text(body)
            written += block.group(0)
            continue
        examples += 1
        commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        said, code = _run(commands, tmp_path)
        assert code == int(wanted or 0), said
        if not BLESS:
            assert _alike(said) == _alike(body)
        exit_code = f" exit={wanted}" if wanted else ""
        written += f"```console{exit_code}\n{said}```\n"
    assert examples >= 5
    if BLESS:
        README.write_text(written + text[last:])

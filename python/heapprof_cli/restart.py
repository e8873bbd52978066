"""Starts pytest again with libheapprof.so preloaded: a library can't be preloaded later."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Dict, List, NoReturn, Optional

from .library import is_preloaded
from .program import find

# What the environment was before, so that programs that tests start are not recorded.
BEFORE = "HEAPPROF_PYTEST"
_RESTARTED = BEFORE in os.environ

_HOW = (
    "install heapprof (pip install heapprof-cli brings it), name the program by --heapprof-bin or "
    "HEAPPROF_BIN, or leave the limits out by --heapprof-off"
)


class CantRestart(Exception):
    """Says in one line why pytest can't be started again, and what to do."""


def check_program() -> None:
    """Raises an error if this process is not pytest itself, but a program that calls it."""
    folder, name = os.path.split(sys.argv[0] if sys.argv else "")
    is_module = name == "__main__.py" and os.path.basename(folder) == "pytest"
    # Debian names it pytest-3.
    is_script = re.fullmatch(r"(pytest|py\.test)(-3(\.[0-9]+)?)?", name) is not None
    if not sys.executable or not (is_module or is_script):
        raise CantRestart(
            "libheapprof.so is not preloaded, and pytest was called by another program, which it "
            "can't start again; start that program as HEAPPROF_OUTPUT=/dev/null/%p "
            "HEAPPROF_START=no HEAPPROF_PYTHON_OBJECTS=yes "
            "LD_PRELOAD=$(heapprof setup preload-path) python3 ..."
        )


def find_library(program: Optional[str]) -> str:
    """Finds libheapprof.so: heapprof itself says where it is."""
    chosen = program or os.environ.get("HEAPPROF_BIN")
    found = shutil.which(chosen) if chosen else find()
    if found is None:
        what = f"{chosen}: is not there" if chosen else "there is no program heapprof"
        raise CantRestart(f"{what}, so no memory is recorded; {_HOW}")
    try:
        answer = subprocess.run(
            [found, "preload-path"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
    except OSError as error:
        raise CantRestart(f"{found}: {error.strerror}; {_HOW}") from error
    path = answer.stdout.strip()
    if answer.returncode != 0 or not os.path.isfile(path):
        why = answer.stderr.strip() or "it does not say where libheapprof.so is"
        raise CantRestart(f"{found} preload-path: {why}; {_HOW}")
    return path


def environment(library: str, objects: bool) -> Dict[str, str]:
    """Makes the environment in which pytest starts again. Nothing is recorded at first."""
    env = dict(os.environ)
    before = env.get("LD_PRELOAD")
    changes = {
        "LD_PRELOAD": f"{library}:{before}" if before else library,
        "HEAPPROF_START": "no",
        "HEAPPROF_PYTHON_OBJECTS": "yes" if objects else "no",
    }
    # The library heeds the other variables only if there is an output. Children that tests fork
    # write their last profiles there. Nobody wants these, and this path can't be written.
    changes["HEAPPROF_OUTPUT"] = env.get("HEAPPROF_OUTPUT") or "/dev/null/%p"
    saved = {name: env.get(name) for name in changes}
    env.update(changes)
    env[BEFORE] = json.dumps(saved)
    return env


def restart(library: str, objects: bool) -> NoReturn:
    """Becomes the same command, with the library preloaded."""
    with open("/proc/self/cmdline", "rb") as file:
        words: List[bytes] = file.read().split(b"\0")[:-1]
    words[0] = os.fsencode(sys.executable)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, words, environment(library, objects))


def check_restarted() -> None:
    """Raises an error if pytest was started again and the library is not there all the same."""
    if _RESTARTED and not is_preloaded():
        raise CantRestart(
            f"{sys.executable}: libheapprof.so was preloaded but is not there; this Python is "
            "static, has rights of its own, or is of another C library: take another Python, or "
            "leave the limits out by --heapprof-off"
        )


def restore_environment() -> None:
    """Gives tests the environment that pytest was started with."""
    saved = json.loads(os.environ.pop(BEFORE, "{}"))
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

"""Finds the program heapprof: the wheels of releases bring it, and otherwise it is in PATH."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from typing import Optional

PROJECT = "heapprof-cli"


def carried() -> Optional[str]:
    """Finds the program that was installed with this package. A build from a clone has none."""
    try:
        files = metadata.files(PROJECT) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.parts[-2:] == ("bin", "heapprof"):
            path = os.path.normpath(str(file.locate()))
            if os.access(path, os.X_OK):
                return path
    return None


def find() -> Optional[str]:
    """Finds the program of this package, or else the one in PATH."""
    return carried() or shutil.which("heapprof")

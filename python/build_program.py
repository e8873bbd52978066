"""Puts the program heapprof into a wheel, if HEAPPROF_WHEEL_PROGRAM names a static one.

Without the variable, the wheel is pure Python, and heapprof is found in PATH.
"""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# A static program needs no libc, so one wheel is for both.
_TAG = "py3-none-manylinux_2_17_x86_64.musllinux_1_2_x86_64"


class ProgramHook(BuildHookInterface):
    """Adds the program as a script, which pip puts where it puts all commands."""

    def initialize(self, version, build_data):
        """Adds the program before the wheel is packed."""
        program = os.environ.get("HEAPPROF_WHEEL_PROGRAM")
        if program and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = _TAG
            build_data["shared_scripts"][program] = "heapprof"

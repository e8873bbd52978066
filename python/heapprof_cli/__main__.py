"""python -m heapprof_cli: the program heapprof, also where its folder is not in PATH."""

import os
import sys

from .program import find


def main() -> None:
    """Becomes the program, with the same arguments."""
    program = find()
    if program is None:
        sys.exit("heapprof_cli: there is no program heapprof; pip install heapprof-cli brings it")
    try:
        os.execv(program, ["heapprof", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"heapprof_cli: {program}: {error.strerror}")


if __name__ == "__main__":
    main()

"""tensor-vision PROGRAM ARGUMENTS runs a program of the library, tensor-vision --cmake-prefix tells where it lies."""

import os
import sys
from pathlib import Path

from . import cmake_prefix


def main() -> int:
    folder = Path(cmake_prefix(), "bin")
    programs = sorted(program.name for program in folder.iterdir())
    arguments = sys.argv[1:]
    if arguments == ["--cmake-prefix"]:
        print(cmake_prefix())
        return 0
    if not arguments or arguments[0] not in programs:
        print(f"usage: tensor-vision --cmake-prefix | {' | '.join(programs)} [ARGUMENT...]", file=sys.stderr)
        return 1
    os.execv(folder / arguments[0], arguments)


if __name__ == "__main__":
    sys.exit(main())

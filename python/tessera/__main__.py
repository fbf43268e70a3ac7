"""``python -m tessera FILE.py [ARGUMENTS]`` runs a program with :mod:`tessera.tile` in the place of ``cuda.tile``; ``python -m tessera COMMAND``
is the ``tessera`` command."""

from __future__ import annotations

import os
import runpy
import sys


def command() -> None:
    """The ``tessera`` command."""
    from . import _native

    code = _native.command([sys.executable, "-m", "tessera"], sys.argv[1:])
    sys.stdout.flush()
    sys.exit(code)


def main() -> None:
    """The module, run as a program."""
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        import tessera

        tessera.install()
        sys.argv = sys.argv[1:]
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    command()


if __name__ == "__main__":
    main()

"""``python -m tessera [--cpu] [--emu] FILE.py [ARGUMENTS]`` runs a program with :mod:`tessera.tile` in the place of ``cuda.tile``;
``python -m tessera COMMAND`` is the ``tessera`` command.

``--cpu`` gives PyTorch programs the host where they ask for ``device="cuda"``. ``--emu`` runs kernels on host arrays in the emulator of a GPU,
with all sanitizers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import sys

_OPTIONS = ("--cpu", "--emu")


def command() -> None:
    """The ``tessera`` command."""
    from . import _native

    code = _native.command((sys.executable, ["-m", "tessera"]), sys.argv[1:])
    sys.stdout.flush()
    sys.exit(code)


def run(file: str, arguments: list[str], options: list[str]) -> None:
    """Runs a program as ``python FILE ARGUMENTS`` does, with :mod:`tessera.tile` in the place of ``cuda.tile``.

    Args:
        file: The program.
        arguments: Its own arguments.
        options: ``--cpu``, ``--emu``, both or none.
    """
    import tessera

    tessera.install()
    with contextlib.ExitStack() as stack:
        if "--emu" in options:
            stack.enter_context(tessera.use("emu", sanitize="all"))
        if "--cpu" in options:
            if importlib.util.find_spec("torch") is None:
                sys.exit("tessera: `--cpu` is for programs that use PyTorch, which is not installed")
            from ._torch_on_cpu import on_cpu

            stack.enter_context(on_cpu())
        sys.argv = [file, *arguments]
        sys.path[0] = os.path.dirname(os.path.abspath(file))
        runpy.run_path(file, run_name="__main__")


def main() -> None:
    """The module, run as a program."""
    given = sys.argv[1:]
    options = []
    while given and given[0] in _OPTIONS:
        options.append(given.pop(0))
    if given and given[0].endswith(".py"):
        run(given[0], given[1:], options)
    elif options:
        sys.exit(f"tessera: `{options[0]}` stands before a program: `python -m tessera {options[0]} FILE.py`")
    else:
        command()


if __name__ == "__main__":
    main()

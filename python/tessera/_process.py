"""The ``tessera`` command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import errors


def run(arguments: Sequence[str], good: tuple[int, ...] = (0,), refused: tuple[int, ...] = (5,)) -> tuple[int, str]:
    """Runs the command; its exit code, which is one of `good`, and what it printed.

    Raises:
        ArgumentError: a code of `refused`, which says that the command does not take what it was given.
        DeviceError: any other code.
    """
    package = str(Path(__file__).resolve().parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run(
        [sys.executable, "-m", "tessera", *arguments], capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL
    )
    if ran.returncode not in good:
        said = ran.stderr.strip() or ran.stdout.strip()
        kind = "argument" if ran.returncode in refused else "device"
        raise errors.make(kind, f"`tessera {' '.join(arguments)}` ended with {ran.returncode}\n{said}", [])
    return ran.returncode, ran.stdout

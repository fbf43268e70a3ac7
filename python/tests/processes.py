"""Programs of Python in processes of their own, for what may end a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tessera


def python(*arguments: str, cwd=None, timeout: float = 60) -> subprocess.CompletedProcess:
    """Runs this Python, with the package that is imported here, wherever it starts."""
    package = str(Path(tessera.__file__).resolve().parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL
    )

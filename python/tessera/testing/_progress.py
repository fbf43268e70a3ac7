"""Progress of what another process measures, by tqdm where it is there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

#: Seconds between two looks at the file.
_PERIOD = 0.2


@contextlib.contextmanager
def rows(path, what: str) -> Iterator[None]:
    """Within the ``with``, a bar counts the rows of a file of results as they are written. Without tqdm, and where nobody looks at a terminal,
    there is none.

    Args:
        path: The file.
        what: What the bar is called.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield
        return
    done = threading.Event()
    with tqdm(desc=what, unit=" rows", disable=None) as bar:

        def watch() -> None:
            while not done.wait(_PERIOD):
                bar.update(max(0, _count(path) - bar.n))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            bar.update(max(0, _count(path) - bar.n))


def _count(path) -> int:
    """Rows that a file has so far; it may not be there yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return sum(line.startswith('{"kind":"summary"') for line in file)
    except OSError:
        return 0

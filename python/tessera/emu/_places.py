"""Which line of a source an instruction of PTX comes from, by its ``.loc`` and ``.file`` lines.

Compilers say where an inlined function was called by ``inlined_at``, whose place has a ``.loc`` of its own further up ("Debugging Directives:
.loc" of the PTX ISA)::

    .loc 1 13 18                                                  kernel.py:13:18
    .loc 2 216 16, function_name $L__info_string0, inlined_at 1 13 18
    .loc 2 196 12, function_name $L__info_string0, inlined_at 2 216 16

The instruction behind the last line comes from line 196 of file 2, called at its line 216, called at line 13 of the kernel.

LLVM counts the lines of a piece of inline assembler on, from the line of the source that it belongs to: of its ``.loc`` lines the first alone says
where that is.
"""

from __future__ import annotations

import bisect
import re
from typing import NamedTuple

_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')


class Frame(NamedTuple):
    """A place in a source: file, line from 1, column as the compiler counts it."""

    file: str
    line: int
    column: int


class Places:
    """The source places of a PTX text's lines."""

    def __init__(self, ptx: str):
        lines = ptx.splitlines()
        self._files = {found[1]: found[2] for found in map(_FILE.match, lines) if found}
        #: Lines of the PTX from which on instructions come from a place, and these places.
        self._starts: list[int] = [0]
        self._frames: list[tuple[Frame, ...]] = [()]
        known: dict[tuple[str, ...], tuple[Frame, ...]] = {}
        inline: bool | None = False
        for number, line in enumerate(lines, 1):
            if "// begin inline asm" in line:
                inline = True
            elif "// end inline asm" in line:
                inline = False
            elif ".entry" in line or ".func" in line:
                known.clear()
                self._add(number, ())
            found = _LOC.match(line)
            if found is None or inline is None:
                continue
            if inline:
                inline = None
            here, caller = found.groups()[:3], found.groups()[3:]
            outer = known.get(caller, self._frame(caller)) if caller[0] else ()
            known[here] = self._frame(here) + outer
            self._add(number, known[here])

    def _add(self, number: int, frames: tuple[Frame, ...]) -> None:
        self._starts.append(number)
        self._frames.append(frames)

    def _frame(self, at: tuple[str, ...]) -> tuple[Frame, ...]:
        """A place; none of line 0, which is what a compiler could not place."""
        file, line, column = at
        return (Frame(self._files[file], int(line), int(column)),) if file in self._files and int(line) > 0 else ()

    def of(self, ptx_line: int) -> tuple[Frame, ...]:
        """The places that a line of the PTX (from 1) comes from, the innermost first; none where it does not say."""
        return self._frames[bisect.bisect_right(self._starts, ptx_line) - 1]

"""Arrays of the program in the memory of an emulated GPU.

Arrays that share memory on the host share it there, and each piece lies as far off a multiple of 16 bytes there as here. Between two pieces is
room, so an access behind an array's last element is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import _native, errors

#: Alignment that is kept.
_ALIGN = 16


class Staged(NamedTuple):
    """An array of a launch: its parameter's name, and whether its contents count as not written."""

    name: str
    array: Any
    unwritten: bool


@dataclass
class _Piece:
    start: int
    end: int
    at: int
    #: By address, bytes, and whether they must not be written.
    arrays: dict[tuple[int, int, bool], Staged] = field(default_factory=dict)


class Memory:
    """Which array lies where."""

    def __init__(self, machine: _native.Machine):
        self._machine = machine
        self._pieces: list[_Piece] = []
        self._own: list[int] = []
        self._nothing: int | None = None

    def stage(self, arrays: list[Staged]) -> None:
        """Puts arrays there. Those that are there already are only brought up to date.

        Raises:
            ArgumentError: an object that is no array of the host, or one that lies partly in an array that is there.
        """
        found = [_native.describe(item.array, item.name) for item in arrays]
        spans = [(item, own.address, own.span, own.readonly) for item, own in zip(arrays, found, strict=True)]
        fresh: list[tuple[int, int]] = []
        for item, start, size, _ in spans:
            if size and self._piece(start, size, item.name) is None:
                fresh.append((start, start + size))
        made = _merged(fresh)
        # In the order of the arguments, so that places on the machine do not hang on those of the host.
        for start, end in sorted(made, key=lambda piece: next(at for at, own in enumerate(fresh) if piece[0] <= own[0] < piece[1])):
            before = start % _ALIGN
            self._pieces.append(_Piece(start, end, self._machine.alloc(before + end - start) + before))
        # What the host has done to arrays of earlier launches is done there, too: all of them are brought back when a launch is done.
        now = {(start, size) for _, start, size, _ in spans}
        for piece in self._pieces:
            for (start, size, _), item in piece.arrays.items():
                if (start, size) not in now:
                    self._machine.upload(piece.at + start - piece.start, item.array, item.name, False)
        # What is written goes last, so that it counts as that where it overlaps with what is not.
        for item, start, size, readonly in sorted(spans, key=lambda span: not span[0].unwritten):
            if size == 0:
                continue
            piece = self._piece(start, size, item.name)
            at = piece.at + start - piece.start
            self._machine.upload(at, item.array, item.name, (piece.start, piece.end) in made)
            if item.unwritten:
                self._machine.forget(at, size)
            piece.arrays[start, size, readonly] = item

    def _piece(self, start: int, size: int, name: str) -> _Piece | None:
        for piece in self._pieces:
            if piece.start <= start and start + size <= piece.end:
                return piece
            if start < piece.end and piece.start < start + size:
                raise errors.ArgumentError(
                    f"`{name}` lies partly in an array of an earlier launch on this machine: give the array that holds both to the first launch"
                )
        return None

    def address(self, array: Any, name: str) -> int:
        """Where an array's first element is."""
        found = _native.describe(array, name)
        if found.span == 0:
            if self._nothing is None:
                self._nothing = self._machine.alloc(0)
            return self._nothing
        piece = self._piece(found.address, found.span, name)
        return piece.at + found.address - piece.start

    def own(self, content: bytes) -> int:
        """Memory of one launch that holds some bytes."""
        at = self._machine.alloc(len(content))
        self._machine.write(at, content)
        self._own.append(at)
        return at

    def scratch(self, size: int) -> int:
        """Memory of one launch that nobody has written."""
        at = self._machine.alloc(size)
        self._own.append(at)
        return at

    def release(self) -> None:
        """Frees what was one launch's."""
        for at in self._own:
            self._machine.free(at)
        self._own.clear()

    def contents(self) -> bytes:
        """All bytes of all arrays."""
        return b"".join(self._machine.read(piece.at, piece.end - piece.start) for piece in self._pieces)

    def bring_back(self) -> None:
        """Copies what kernels made into the arrays.

        Raises:
            ArgumentError: an array that must not be written was written there.
        """
        staged = [(piece, item, _native.describe(item.array, item.name)) for piece in self._pieces for item in piece.arrays.values()]
        # What must not be written is looked at first, so that nothing is written where it is refused.
        for piece, item, found in sorted(staged, key=lambda row: not row[2].readonly):
            self._machine.download(piece.at + found.address - piece.start, item.array, item.name)


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of which none overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged

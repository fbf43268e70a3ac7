"""What the emulator found: findings with their places, and reports of launches."""

from __future__ import annotations

import json
import linecache
import os
from dataclasses import dataclass, field

from .. import errors
from ._places import Frame, Places

#: Classes of findings, the lightest first.
CLASSES = ("advice", "formal", "wrong")


@dataclass(frozen=True)
class Place:
    """A place in a kernel, and who was there.

    Attributes:
        kernel: The kernel.
        ptx_line: Line of the PTX text, from 1; 0 where it is unknown.
        instruction: The instruction without its operands.
        block: The block's index in the grid.
        thread: The thread's index in the block; ``None`` where it is no thread, as of a bulk copy.
        frames: Places in the source, where the PTX says them: the innermost function first, the kernel itself last.
    """

    kernel: str
    ptx_line: int
    instruction: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int] | None
    frames: tuple[Frame, ...] = ()

    @property
    def file(self) -> str | None:
        """The kernel's source file; ``None`` where the PTX does not say it."""
        return self.frames[-1].file if self.frames else None

    @property
    def line(self) -> int | None:
        """The line of the kernel's source, from 1. Of a function that was inlined it is the line of the call."""
        return self.frames[-1].line if self.frames else None

    @property
    def column(self) -> int | None:
        """The column in that line, as the compiler counts it."""
        return self.frames[-1].column if self.frames else None

    @property
    def source(self) -> str | None:
        """The text of that line; ``None`` where the file is not there."""
        text = linecache.getline(self.file, self.line).strip() if self.file else ""
        return text or None

    def __str__(self) -> str:
        parts = [self.kernel]
        if self.frames:
            parts.append(f"{self.file}:{self.line}:{self.column}")
            parts += [f"in {os.path.basename(frame.file)}:{frame.line}" for frame in reversed(self.frames[:-1])]
        parts += [f"PTX line {self.ptx_line}", f"`{self.instruction}`", f"block {self.block}"]
        if self.thread is not None:
            parts.append(f"thread {self.thread}")
        text = ", ".join(parts)
        return f"{text}\n      {self.source}" if self.source else text


@dataclass(frozen=True)
class Finding:
    """One finding. The same at the same instructions is one, with a count.

    Attributes:
        class_: ``wrong`` (values can differ, or the launch cannot end), ``formal`` (PTX forbids it, and no value differs in practice) or
            ``advice``.
        kind: What it is: ``race``, ``uninitialized``, ``out-of-bounds``, ...
        message: In words, as it was the first time.
        place: Where it was noticed.
        earlier: The access that it conflicts with, or where an undefined value came from.
        count: How often it happened.
        transactions: Of advice: passes over the banks, or sectors of 32 bytes.
        needed: Of advice: the least that the bytes need.
    """

    class_: str
    kind: str
    message: str
    place: Place
    earlier: Place | None = None
    count: int = 1
    transactions: int | None = None
    needed: int | None = None

    @property
    def file(self) -> str | None:
        """The kernel's source file."""
        return self.place.file

    @property
    def line(self) -> int | None:
        """The line of the kernel's source."""
        return self.place.line

    @property
    def ptx_line(self) -> int:
        """The line of the PTX text."""
        return self.place.ptx_line

    def as_dict(self) -> dict:
        """The finding as plain values, with the keys of ``tessera emu --json`` and ``frames``."""
        values = {"class": self.class_, "id": self.kind, "message": self.message, "count": self.count, **_plain(self.place)}
        values["earlier"] = None if self.earlier is None else _plain(self.earlier)
        if self.transactions is not None:
            values.update(transactions=self.transactions, needed=self.needed)
        return values

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 and self.transactions is None else ""
        class_ = "" if self.class_ == "wrong" else f"{self.class_}: "
        text = f"{class_}{self.kind}: {self.message}{times}\n  at {self.place}"
        if self.earlier is not None:
            text += f"\n  {'from' if self.kind == 'uninitialized' else 'against'} {self.earlier}"
        return text


@dataclass(frozen=True)
class Report:
    """What a launch did.

    Attributes:
        kernel: The kernel.
        grid: Blocks of the grid.
        block: Threads of a block.
        schedule: Which interleaving was executed.
        seed: Its seed.
        finished: Whether it came to its end; a finding has stopped it where not.
        instructions: Instructions executed, counted for each thread.
        printed: What the kernel printed.
        findings: What was found, in the order in which it was noticed.
        suppressed: What suppressions let pass.
        explored: Of the schedule ``systematic``: ``executions``, ``pruned``, ``outcomes``, ``complete``.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    schedule: str
    seed: int
    finished: bool
    instructions: int
    printed: str
    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...] = ()
    explored: dict | None = field(default=None, compare=False)

    def failing(self, raise_on: str | None = "wrong") -> list[Finding]:
        """The findings of a class, or of one that weighs more; none for ``None``."""
        return failing(self.findings, raise_on)

    def raise_for(self, raise_on: str | None = "wrong") -> None:
        """Raises for what fails.

        Raises:
            SanitizerError: there are findings of the class or of one that weighs more; or the launch did not come to its end.
        """
        raise_for([self], self.failing(raise_on), raise_on)

    def __str__(self) -> str:
        head = f"{self.kernel}, grid {self.grid}, block {self.block}, {self.schedule}: {self.instructions} thread-instructions"
        head += "" if self.finished else ", not finished"
        return "\n".join([head, *map(str, self.findings)]) if self.findings else f"{head}, nothing found"


@dataclass(frozen=True)
class Exploration:
    """What a launch did under several schedules.

    Attributes:
        reports: One for each schedule and seed.
        findings: All findings, each once.
        outcomes: How many different results there were in the arrays. More than one without a race depend on the order of atomics.
    """

    reports: tuple[Report, ...]
    findings: tuple[Finding, ...]
    outcomes: int

    def __str__(self) -> str:
        head = f"{self.reports[0].kernel}: {len(self.reports)} schedules, {self.outcomes} different results"
        return "\n".join([head, *map(str, self.findings)]) if self.findings else f"{head}, nothing found"


def failing(findings, raise_on: str | None) -> list[Finding]:
    """The findings of a class, or of one that weighs more."""
    if raise_on is None:
        return []
    if raise_on not in CLASSES:
        raise errors.ArgumentValueError(f"raise_on={raise_on!r}: findings are {', '.join(CLASSES)}; `None` raises for none")
    least = CLASSES.index(raise_on)
    return [finding for finding in findings if CLASSES.index(finding.class_) >= least]


def raise_for(reports, found: list[Finding], raise_on: str | None) -> None:
    """Raises for findings, and for launches that did not come to their end."""
    if raise_on is None:
        return
    unfinished = next((report for report in reports if not report.finished), None)
    if not found and unfinished is None:
        return
    texts = [str(finding) for finding in found] or [f"{unfinished.kernel} did not come to its end: {unfinished}"]
    error = errors.SanitizerError("\n".join(texts))
    error.findings = [finding.as_dict() for finding in found]
    error.report = reports[0] if len(reports) == 1 else None
    error.reports = tuple(reports)
    if found:
        error.block = found[0].place.block
    raise error


def read(text: str, places: Places, **launch) -> Report:
    """The report that the native part gives as JSON; ``launch`` has the fields that the caller knows."""
    values = json.loads(text)
    kernel = launch["kernel"]
    return Report(
        instructions=values["instructions"],
        printed=values["output"],
        findings=tuple(_finding(finding, places, kernel) for finding in values["findings"]),
        suppressed=tuple(_finding(passed["finding"], places, kernel) for passed in values["suppressed"]),
        explored=values["explored"],
        **launch,
    )


def _finding(values: dict, places: Places, kernel: str) -> Finding:
    return Finding(
        class_=values["class"],
        kind=values["id"],
        message=values["message"],
        place=_place(values, places, kernel),
        earlier=None if values["earlier"] is None else _place(values["earlier"], places, kernel),
        count=values["count"],
        transactions=values.get("transactions"),
        needed=values.get("needed"),
    )


def _place(values: dict, places: Places, kernel: str) -> Place:
    thread = values["thread"]
    return Place(
        kernel=kernel,
        ptx_line=values["ptx_line"],
        instruction=values["instruction"],
        block=tuple(values["block"]),
        thread=None if thread is None else tuple(thread),
        frames=places.of(values["ptx_line"]),
    )


def _plain(place: Place) -> dict:
    return {
        "kernel": place.kernel,
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "ptx_line": place.ptx_line,
        "instruction": place.instruction,
        "block": list(place.block),
        "thread": None if place.thread is None else list(place.thread),
        "frames": [[frame.file, frame.line, frame.column] for frame in place.frames],
    }

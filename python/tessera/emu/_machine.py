"""The emulated GPU: launches of PTX on arrays, one after the other on the same memory."""

from __future__ import annotations

import hashlib
import numbers
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .. import _native, errors
from .._device import check_number
from . import _arguments, _report
from ._arguments import Parameter
from ._memory import Memory
from ._places import Places
from ._report import Exploration, Finding, Report

_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


@dataclass(frozen=True)
class How:
    """How launches run; each of these is a keyword of :func:`run`, :func:`triton` and the others.

    Attributes:
        sanitize: What is looked for: ``all``, or some of ``race``, ``init``, ``barrier``, ``flight`` and ``advice`` with commas between; ``None``
            for no more than what stops every launch (bounds, alignment, freed memory, deadlocks).
        schedule: Which interleaving: ``eager``, ``lazy``, ``random``, or ``systematic`` for every one that can differ.
        seed: Fixes what ``random`` chooses.
        raise_on: The least class of findings that raises: ``wrong``, ``formal`` or ``advice``; ``None`` raises for none.
        timeout: Seconds that a launch may take; without it, a minute in which no block ends.
        keep_going: Goes on behind a finding where that is meaningful.
        suppress: Rules of findings that are let pass, as a text; see "Suppressions" in the chapter on the emulator.
        most_schedules: Executions of ``systematic`` at most.
    """

    sanitize: str | None = "all"
    schedule: str = "eager"
    seed: int = 0
    raise_on: str | None = "wrong"
    timeout: float | None = None
    keep_going: bool = False
    suppress: str | None = None
    most_schedules: int = 2000


#: Names of the keywords of launches.
HOW = tuple(field.name for field in fields(How))


@dataclass(frozen=True)
class _Asked:
    """How one launch runs, as the native part reads it."""

    shared: int
    cluster: tuple[int, int, int] | None
    sanitize: str
    schedule: str
    seed: int
    timeout: float | None
    keep_going: bool
    suppress: str | None
    most_schedules: int


@dataclass(frozen=True)
class Scratch:
    """An argument of a launch: memory of its own that nobody has written.

    Args:
        size: Bytes.
    """

    size: int


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of PTX, ready to run; :func:`dataclasses.replace` makes others of it.

    Attributes:
        ptx: The text of the module.
        grid: Blocks along one to three axes.
        block: Threads of a block along one to three axes.
        args: Arguments by position, see :func:`run`.
        entry: The kernel; may be left out where the module has one.
        shared: Bytes of dynamic shared memory.
        cluster: Blocks of a cluster, where the kernel does not say.
        target: What is emulated: a product (``h200``) or a target (``sm_80``); where it is ``None``, what the PTX is made for, or the next
            later chip.
        name: What reports call the kernel, where its entry has a name that nobody can read.
    """

    ptx: str
    grid: Any
    block: Any
    args: Sequence[Any] = ()
    entry: str | None = None
    shared: int = 0
    cluster: Any = None
    target: str | None = None
    name: str | None = None

    def machine(self) -> Machine:
        """A machine of its target, with nothing in its memory."""
        return Machine(self.target or _target(self.ptx))

    def run(self, **how) -> Report:
        """Runs it, see :func:`run`."""
        return self.machine().launch(self, **how)

    def explore(self, schedules: Iterable[str] = ("eager", "lazy", "random"), seeds: Iterable[int] = range(4), **how) -> Exploration:
        """Runs it under several schedules, see :func:`explore`."""
        how = _how(how)
        seeds = tuple(seeds)
        runs = [(schedule, seed) for schedule in schedules for seed in (seeds if schedule == "random" else seeds[:1])]
        if not runs:
            raise errors.ArgumentValueError("an exploration needs a schedule and a seed at least")
        reports: list[Report] = []
        outcomes: set[bytes] = set()
        first = None
        for schedule, seed in runs:
            machine = self.machine()
            reports.append(machine._execute(self, replace(how, schedule=schedule, seed=seed)))
            if reports[-1].finished:
                outcomes.add(hashlib.blake2b(machine.memory.contents()).digest())
                first = first or machine
        found: dict[tuple, Finding] = {}
        for report in reports:
            for finding in report.findings:
                earlier = finding.earlier.ptx_line if finding.earlier else None
                found.setdefault((finding.kind, finding.class_, finding.ptx_line, earlier), finding)
        findings = tuple(found.values())
        _report.raise_for(reports, _report.failing(findings, how.raise_on), how.raise_on)
        if first is not None:
            first.memory.bring_back()
        return Exploration(tuple(reports), findings, len(outcomes))


class Machine:
    """An emulated GPU with its memory. Arrays that a launch is given stay there for the next ones, and so do the modules' variables.

    ::

        gpu = tessera.emu.Machine("sm_90a")
        gpu.run(ptx, 4, 256, (x, y), entry="first")
        gpu.run(ptx, 4, 256, (y, z), entry="second")

    Args:
        target: A product (``h200``) or a target (``sm_80``).
        multiprocessors: As many as the product has where it is ``None``.

    Raises:
        ArgumentError: no such product or target.
    """

    def __init__(self, target: str = "h200", multiprocessors: int | None = None):
        self._native = _native.Machine(target, multiprocessors)
        self.memory = Memory(self._native)
        self._loaded: dict[str, tuple[_native.Loaded, Places]] = {}

    @property
    def device(self) -> str:
        """The product that is emulated."""
        return self._native.device

    def run(self, ptx: str, grid, block, args: Sequence[Any] = (), *, entry=None, shared: int = 0, cluster=None, **how) -> Report:
        """Runs a kernel on the memory as it is, see :func:`run`."""
        return self.launch(Launch(ptx, grid, block, args, entry, shared, cluster), **how)

    def launch(self, launch: Launch, **how) -> Report:
        """Runs a launch on the memory as it is, see :func:`run`."""
        how = _how(how)
        report = self._execute(launch, how)
        sys.stdout.write(report.printed)
        report.raise_for(how.raise_on)
        if report.finished:
            self.memory.bring_back()
        return report

    def _load(self, ptx: str) -> tuple[_native.Loaded, Places]:
        if ptx not in self._loaded:
            self._loaded[ptx] = (self._native.load(ptx), Places(ptx))
        return self._loaded[ptx]

    def _execute(self, launch: Launch, how: How) -> Report:
        """Runs a launch; arrays of the host stay as they are."""
        loaded, places = self._load(_text(launch.ptx))
        entry = _entry(loaded, launch.entry)
        parameters = [Parameter(*row) for row in loaded.parameters(entry)]
        if len(launch.args) != len(parameters):
            wanted = ", ".join(f"{parameter.name} (.{parameter.type}, {parameter.bytes} bytes)" for parameter in parameters)
            raise errors.ArgumentError(f"{len(launch.args)} arguments for {len(parameters)} parameters of `{entry}`: {wanted or 'it has none'}")
        grid, block = _extents("grid", launch.grid), _extents("block", launch.block)
        check_number("shared", launch.shared, 0, 2**32 - 1)
        asked = _Asked(
            shared=launch.shared,
            cluster=None if launch.cluster is None else _extents("cluster", launch.cluster),
            sanitize=how.sanitize or "bounds",
            schedule=how.schedule,
            seed=how.seed,
            timeout=how.timeout,
            keep_going=how.keep_going,
            suppress=how.suppress,
            most_schedules=how.most_schedules,
        )
        given = [(parameter, value) for parameter, value in zip(parameters, launch.args, strict=True)]
        arrays = [(parameter.name, value) for parameter, value in given if not isinstance(value, Scratch)]
        try:
            self.memory.stage([staged for name, value in arrays for staged in _arguments.arrays(name, value)])
            params = [self._bytes(parameter, value) for parameter, value in given]
            finished, text = self._native.launch(loaded, entry, grid, block, params, asked)
        finally:
            self.memory.release()
        return _report.read(
            text, places, kernel=launch.name or entry, grid=grid, block=block, schedule=how.schedule, seed=how.seed, finished=finished
        )

    def _bytes(self, parameter: Parameter, value: Any) -> bytes:
        if isinstance(value, Scratch):
            return self.memory.scratch(value.size).to_bytes(8, "little")
        return _arguments.encode(parameter, value, self.memory)


def _how(keywords: dict) -> How:
    unknown = [name for name in keywords if name not in HOW]
    if unknown:
        raise errors.ArgumentError(f"a launch has no `{unknown[0]}`: it has {', '.join(HOW)}")
    how = How(**keywords)
    for name in ("seed", "most_schedules"):
        check_number(name, getattr(how, name), 0, 2**64 - 1)
    for name in ("sanitize", "schedule", "suppress"):
        given = getattr(how, name)
        if not isinstance(given, str) and (given is not None or name == "schedule"):
            raise errors.ArgumentError(f"`{name}` is a text, not {given!r}")
    if how.timeout is not None and (isinstance(how.timeout, bool) or not isinstance(how.timeout, numbers.Real)):
        raise errors.ArgumentError(f"`timeout` is a number of seconds, not {how.timeout!r}")
    _report.failing((), how.raise_on)
    return how


def _text(ptx) -> str:
    if isinstance(ptx, bytes):
        return ptx.decode().rstrip("\0")
    if not isinstance(ptx, str):
        raise errors.ArgumentError(f"PTX is a text, not `{type(ptx).__name__}`")
    return ptx


#: Compute capabilities of the chips that are emulated.
_CHIPS = (70, 75, 80, 86, 89, 90, 100)


def _target(ptx) -> str:
    """The target whose chip runs a module: that which it is made for, or the next one of which there is a chip."""
    found = _TARGET.search(_text(ptx))
    if found is None:
        raise errors.ArgumentError("the PTX has no `.target` line: pass the text of a whole module, or say `target`")
    digits, kind = found[1], found[2]
    later = [chip for chip in _CHIPS if chip >= int(digits)]
    return f"sm_{later[0]}" if later and not kind else f"sm_{digits}{kind}"


def _entry(loaded: _native.Loaded, entry: str | None) -> str:
    kernels = loaded.kernels()
    if entry is not None and entry in kernels:
        return entry
    if entry is None and len(kernels) == 1:
        return kernels[0]
    what = "no kernel is named" if entry is None else f"there is no kernel `{entry}`"
    raise errors.ArgumentError(f"{what}: the PTX has {', '.join(kernels) or 'no `.entry`'}; pass `entry=`")


def _extents(what: str, value) -> tuple[int, int, int]:
    try:
        axes = (int(value),) if hasattr(value, "__index__") else tuple(int(axis) for axis in value)
    except (TypeError, ValueError):
        raise errors.ArgumentError(f"a {what} is one to three integers, not {value!r}") from None
    if not 1 <= len(axes) <= 3 or min(axes) < 1 or max(axes) >= 1 << 32:
        raise errors.ArgumentValueError(f"a {what} is one to three positive integers, not {value!r}")
    return (*axes, 1, 1)[:3]


def run(
    ptx: str, grid, block, args: Sequence[Any] = (), *, entry: str | None = None, shared: int = 0, cluster=None, target: str | None = None, **how
) -> Report:
    """Runs a kernel of a PTX text on the emulator, and looks for mistakes.

    ::

        report = tessera.emu.run(ptx, grid=4, block=256, args=(x, y, 1000))

    Args:
        ptx: The text of the module, of whatever compiler.
        grid: Blocks along one to three axes.
        block: Threads of a block along one to three axes.
        args: Arguments by position: arrays of NumPy, PyTorch (on the CPU) or of whatever has DLPack; numbers; ``None`` for no address;
            ``bytes``; a tuple for a structure; a list for the address of memory that holds these, as of an array of pointers;
            :class:`Unwritten` and :class:`TensorMap`.
        entry: The kernel; may be left out where the module has one.
        shared: Bytes of dynamic shared memory.
        cluster: Blocks of a cluster, where the kernel does not say.
        target: What is emulated: a product (``h200``) or a target (``sm_80``); where it is ``None``, what the PTX is made for, or the next
            later chip.
        how: ``sanitize``, ``schedule``, ``seed``, ``raise_on`` and the others of :class:`How`.

    Returns:
        What the launch did. Arrays hold what the kernel wrote; what it printed is printed.

    Raises:
        SanitizerError: findings of the class ``raise_on`` or a worse one; arrays are as they were. ``report`` has the whole report.
        ArgumentError: arguments that the kernel does not take, or arrays on a GPU.
        TileSyntaxError: a text that is no PTX, with its line.
        TileUnsupportedFeatureError: an instruction that is not executed, with its line.
        DeviceError: a module for a chip that is not the one emulated.
    """
    return Launch(ptx, grid, block, args, entry, shared, cluster, target).run(**how)


def explore(
    ptx: str,
    grid,
    block,
    args: Sequence[Any] = (),
    *,
    entry: str | None = None,
    shared: int = 0,
    cluster=None,
    target: str | None = None,
    schedules: Iterable[str] = ("eager", "lazy", "random"),
    seeds: Iterable[int] = range(4),
    **how,
) -> Exploration:
    """Runs a kernel under several schedules, each time on the arrays as they are, and collects what is found.

    Args:
        schedules: Which ones; ``random`` runs once for each seed, the others once.
        seeds: Seeds of ``random``.

    The other arguments and what is raised are those of :func:`run`.

    Returns:
        All reports, and how many different results there were. Arrays hold those of the first schedule that came to its end.
    """
    return Launch(ptx, grid, block, args, entry, shared, cluster, target).explore(schedules, seeds, **how)

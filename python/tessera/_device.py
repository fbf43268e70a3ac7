"""Where kernels on host arrays run: the CPU's executor, or the emulator of a GPU."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from . import errors


@dataclass(frozen=True)
class Host:
    """How kernels on host arrays run.

    Attributes:
        device: ``cpu``, or ``emu`` for the emulator of a GPU.
        target: What is emulated: a product (``h200``) or a target (``sm_80``).
        sanitize: What is looked for: ``all``, or some of ``race``, ``init``, ``barrier``, ``flight``, ``bounds``, with commas between; on the
            CPU ``all`` alone.
        schedule: Which interleaving the emulator executes: ``eager``, ``lazy``, ``random`` or ``systematic``.
        seed: Fixes what ``random`` chooses.
        threads: Threads of the CPU's executor; all of the machine where it is ``None``.
        timeout: Seconds after which a launch is stopped that has not ended; a minute for each block where it is ``None``.

    Raises:
        ValueError: a device that is none, or an option of the emulator for the CPU; a number that no option can be.
        TypeError: an option of another kind.
    """

    device: str = "cpu"
    target: str | None = None
    sanitize: str | None = None
    schedule: str | None = None
    seed: int = 0
    threads: int | None = None
    timeout: float | None = None

    def __post_init__(self):
        if self.device not in ("cpu", "emu"):
            raise ValueError(f"`{self.device}` is no device for host arrays: it is `cpu` or `emu`; arrays on a GPU run on that GPU")
        for name, given in (("target", self.target), ("schedule", self.schedule)):
            if given is not None and self.device == "cpu":
                raise ValueError(f"`{name}` is for the emulator: use('emu', {name}={given!r})")
        if self.device == "cpu" and self.sanitize not in (None, "all"):
            raise ValueError("the CPU looks for everything or nothing: sanitize='all'")
        for name in ("target", "sanitize", "schedule"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, str):
                raise errors.ArgumentError(f"`{name}` is a string, not {given!r}")
        check_number("seed", self.seed, 0, 2**64 - 1)
        if self.threads is not None:
            check_number("threads", self.threads, 1, 2**32 - 1)
        if self.timeout is not None:
            if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)):
                raise errors.ArgumentError(f"`timeout` is a number of seconds, not {self.timeout!r}")
            if not 0 < self.timeout < 1e9:
                raise errors.ArgumentValueError(f"`timeout` is a positive number of seconds, not {self.timeout}")


def check_number(name: str, given, least: int, most: int) -> None:
    """Refuses an option that is no integer of a range.

    Raises:
        ArgumentError: no integer.
        ArgumentValueError: one beyond the range.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        raise errors.ArgumentError(f"`{name}` is an integer, not {given!r}")
    if not least <= given <= most:
        raise errors.ArgumentValueError(f"`{name}` is an integer from {least} to {most}, not {given}")


#: The process's own choice, and the choices of `with` blocks around this place of this thread or task, the innermost last.
_DEFAULT = Host()
_CHOSEN: contextvars.ContextVar[tuple[use, ...]] = contextvars.ContextVar("tessera_host", default=())


class use:
    """Says where kernels on host arrays run from now on, or within a ``with``.

    ::

        tessera.use("emu", sanitize="all")          # from now on, in all threads
        with tessera.use("cpu"):                    # in this block
            ...

    Arguments are those of :class:`tessera.Host`.

    Raises:
        ValueError: a device that is none, or an option of the emulator for the CPU.
    """

    def __init__(self, device: str, **options):
        global _DEFAULT
        self._host = Host(device, **options)
        # It is not known yet whether a `with` follows, which puts this back.
        self._before: Host | None = _DEFAULT
        _DEFAULT = self._host

    def __enter__(self) -> Host:
        global _DEFAULT
        # What another thread has chosen meanwhile stays, and a second `with` has nothing to put back.
        if self._before is not None and _DEFAULT is self._host:
            _DEFAULT = self._before
        self._before = None
        _CHOSEN.set((*_CHOSEN.get(), self))
        return self._host

    def __exit__(self, *_):
        # Blocks may end in another order than that in which they nest: those of generators do.
        around = _CHOSEN.get()
        if self not in around:
            return
        last = len(around) - 1 - around[::-1].index(self)
        _CHOSEN.set(around[:last] + around[last + 1 :])


@contextlib.contextmanager
def instead(host: Host) -> Iterator[None]:
    """Within the ``with``, the process's own choice is another one, in all threads."""
    global _DEFAULT
    before, _DEFAULT = _DEFAULT, host
    try:
        yield
    finally:
        _DEFAULT = before


#: What is called after each launch, with where it ran: ``cpu``, ``emu``, ``emu, sanitize=all``, ``cuda``.
WATCHERS: list[Callable[[str], None]] = []


def tell(host: Host, values) -> None:
    """Tells the watchers of a launch with these arguments."""
    place = host.device if host.sanitize is None else f"{host.device}, sanitize={host.sanitize}"
    if any(_on_gpu(value) for value in values):
        place = "cuda"
    for watcher in WATCHERS:
        watcher(place)


def _on_gpu(value) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_on_gpu(item) for item in value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return bool(value.is_cuda)
    return hasattr(value, "__cuda_array_interface__")


#: Whether kernels ran in this process, and whether they ran in the process that this one is a fork of.
_USED = False
_FORKED = False


def _after_fork() -> None:
    global _FORKED
    _FORKED = _FORKED or _USED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def host(**changes) -> Host:
    """Where kernels on host arrays run now.

    Raises:
        DeviceError: the process is a fork of one in which kernels ran.
    """
    global _USED
    if _FORKED:
        # A fork has none of the threads that kernels run on, and no device.
        raise errors.make(
            "device",
            "this process was forked from one in which kernels had run, and has neither its threads nor its devices\n"
            "help: start processes by `multiprocessing.get_context('spawn')`, or fork before the first kernel",
            [],
        )
    _USED = True
    chosen = _CHOSEN.get()
    found = chosen[-1]._host if chosen else _DEFAULT
    return replace(found, **changes) if changes else found

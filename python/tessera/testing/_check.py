"""One kernel in several places, against a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import _device, errors
from ._arrays import is_array, on_host
from ._close import assert_close


@dataclass(frozen=True)
class Checked:
    """What :func:`check` saw.

    Attributes:
        ratios: For each place the largest distance over its bound, by the results' names.
    """

    ratios: dict[str, dict[str, float]]

    @property
    def worst(self) -> float:
        """The largest of all."""
        return max((ratio for own in self.ratios.values() for ratio in own.values()), default=0.0)


def _copied(value):
    """An argument with memory of its own on the host."""
    if isinstance(value, (list, tuple)):
        items = [_copied(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return np.array(on_host(value), copy=True) if is_array(value) else value


def _results(names: Sequence[str], after: list, found, outputs: Sequence[str]) -> dict[str, tuple]:
    """What came out and what is expected, by parameter."""
    position = {name: at for at, name in enumerate(names)}
    if isinstance(found, Mapping):
        wanted = dict(found)
    else:
        values = found if isinstance(found, tuple) else (found,)
        if len(values) != len(outputs):
            raise errors.ArgumentError(
                f"the reference gives {len(values)} results, and the kernel writes {', '.join(outputs) or 'nothing'}\n"
                "help: name what is compared, `outputs=('y',)`, or let the reference give a dictionary by the parameters' names"
            )
        wanted = dict(zip(outputs, values, strict=True))
    unknown = [name for name in wanted if name not in position]
    if unknown:
        raise errors.ArgumentError(f"the kernel has no parameter `{unknown[0]}`: it has {', '.join(names)}")
    missing = [name for name in outputs if name not in wanted]
    if missing or not wanted:
        raise errors.ArgumentError(f"the reference gives nothing for {', '.join(missing) or 'any result'}: add it, or name what is compared, `outputs=('y',)`")
    return {name: (after[position[name]], value) for name, value in wanted.items()}


def check(
    kernel,
    args: Sequence,
    *,
    reference: Callable,
    grid=None,
    block: int | None = None,
    outputs: Sequence[str] | None = None,
    devices: Sequence[str] = ("cpu", "emu"),
    sanitize: str | None = "all",
    target: str | None = None,
    schedule: str | None = None,
    reduction_length: int = 1,
    magnitude=None,
    dtype=None,
    **config,
) -> Checked:
    """Runs a kernel on copies of its arguments, on the CPU and in the emulator with sanitizers, and compares with a reference.

    Args:
        kernel: The kernel.
        args: Arguments by position; arrays of any library, which stay as they are.
        reference: Gets the same arguments, arrays as NumPy's with floats in 64 bits, and gives what is right: an array, a tuple of them
            in the order of the parameters, or a dictionary by their names.
        grid: Blocks along one to three axes.
        block: Threads of a block, for a per-thread kernel.
        outputs: Parameters whose arrays are results; those that the kernel may write, where it is ``None``.
        devices: Where it runs: ``cpu``, ``emu``.
        sanitize: What is looked for while it runs; ``None`` for nothing. The CPU looks for everything or nothing.
        target: What is emulated.
        schedule: Which interleaving the emulator executes.
        reduction_length: As for :func:`assert_close`, as are ``magnitude`` and ``dtype``.
        config: Choices of the schedule.

    Raises:
        AssertionError: a result is wrong; the text says where it ran.
        SanitizerError: the emulator found mistakes.
        KernelFault: the kernel did something wrong, on the CPU too.
        ArgumentError: results that the reference does not give, or gives and there are none of.
    """
    args_on_host = [_copied(value) for value in args]
    found = reference(*(_wide(_copied(value)) for value in args))
    ratios: dict[str, dict[str, float]] = {}
    if outputs is None:
        outputs = kernel.written(args_on_host, grid=grid, block=block, **config)
    for device in devices:
        own = [_copied(value) for value in args]
        options = {"target": target, "schedule": schedule, "sanitize": sanitize} if device == "emu" else {"sanitize": "all" if sanitize else None}
        with _device.use(device, **options):
            kernel.launch(tuple(own), grid=grid, block=block, **config)
        ratios[device] = {}
        for name, (got, want) in _results(kernel.parameters, own, found, outputs).items():
            try:
                ratios[device][name] = assert_close(got, want, reduction_length=reduction_length, magnitude=magnitude, dtype=dtype)
            except AssertionError as error:
                raise AssertionError(f"`{name}` of `{kernel.__name__}` on `{device}`: {error}") from None
    return Checked(ratios)


def _wide(value):
    if isinstance(value, (list, tuple)):
        items = [_wide(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value.astype(np.float64) if is_array(value) and value.dtype.kind not in "iub" else value

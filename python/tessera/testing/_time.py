"""How long a call takes.

A call is made until it is warm, then timed singly until the mean is known to a hundredth, or for as long as there is time. On a GPU the time is that
between two events of the stream, on the host that of the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Bytes that are written before each call where caches are to be empty: more than the last cache of what kernels run on.
_FLUSHED = 256 << 20
_FLUSHED_ON_HOST = 64 << 20

#: A mean is known well enough when half of its interval is this part of it.
_ENOUGH = 0.01
_FEWEST = 5


@dataclass(frozen=True)
class Timing:
    """Times of a call, in seconds.

    Attributes:
        mean: Their mean.
        margin: Half of the interval in which it lies with 95 %.
        samples: Calls that were timed.
        slowest: The longest.
        fastest: The shortest.
        median: Half of them took longer.
    """

    mean: float
    margin: float
    samples: int
    slowest: float
    fastest: float
    median: float

    @staticmethod
    def of(times: Sequence[float]) -> Timing:
        """What these times, in seconds, amount to."""
        margin = 1.96 * statistics.stdev(times) / len(times) ** 0.5 if len(times) > 1 else float("inf")
        return Timing(statistics.fmean(times), margin, len(times), max(times), min(times), statistics.median(times))


def _gpu_of(args) -> object | None:
    """PyTorch's device of the first tensor on a GPU."""
    for value in args:
        if isinstance(value, (list, tuple)):
            found = _gpu_of(value)
            if found is not None:
                return found
        elif type(value).__module__.split(".")[0] == "torch" and value.device.type == "cuda":
            return value.device
    return None


def _host_timer(flush: bool) -> Callable[[Callable], float]:
    buffer = bytearray(_FLUSHED_ON_HOST) if flush else None
    zeros = bytes(_FLUSHED_ON_HOST) if flush else None

    def once(run: Callable) -> float:
        if buffer is not None:
            buffer[:] = zeros
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return once


def _gpu_timer(device, flush: bool) -> Callable[[Callable], float]:
    import torch

    buffer = torch.empty(_FLUSHED, dtype=torch.uint8, device=device) if flush else None

    def once(run: Callable) -> float:
        with torch.cuda.device(device):
            if buffer is not None:
                buffer.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1e3

    return once


def _times(run: Callable, once: Callable, warm: float, most: float) -> list[float]:
    """Seconds of calls: after ``warm`` seconds of them, for ``most`` seconds at most."""
    start = time.perf_counter()
    run()
    while time.perf_counter() - start < warm:
        run()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < _FEWEST or time.perf_counter() - start < most:
        times.append(once(run))
        if len(times) >= 30 and (found := Timing.of(times)).margin < _ENOUGH * found.mean:
            break
    return times


def measure(run: Callable[[], object], *, args: Sequence = (), flush: bool = True, warm: float = 0.05, most: float = 0.5) -> Timing:
    """Times a call.

    Args:
        run: The call.
        args: Its arguments, which say whether it runs on a GPU: those that have PyTorch tensors there are timed on its current stream.
        flush: Empties the caches before each call.
        warm: Seconds of calls that are not counted, one at least.
        most: Seconds that may be taken, after which as many samples count as there are, five at least.

    Returns:
        Seconds.
    """
    device = _gpu_of(args)
    return Timing.of(_times(run, _host_timer(flush) if device is None else _gpu_timer(device, flush), warm, most))


def do_bench(
    run: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    *,
    args: Sequence = (),
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
):
    """Milliseconds of a call, as Triton's function of that name gives them, with empty caches.

    Args:
        run: The call.
        warmup: Milliseconds of calls that are not counted.
        rep: Milliseconds that may be taken.
        args: As for :func:`measure`.
        quantiles: Gives these quantiles, as a list, instead.
        return_mode: ``mean``, ``median``, ``min``, ``max`` or ``all``.

    Raises:
        ValueError: another mode.
    """
    device = _gpu_of(args)
    once = _host_timer(True) if device is None else _gpu_timer(device, True)
    times = sorted(1e3 * seconds for seconds in _times(run, once, warmup / 1e3, rep / 1e3))
    if quantiles is not None:
        at = [share * (len(times) - 1) for share in quantiles]
        return [times[int(x)] + (x - int(x)) * (times[min(int(x) + 1, len(times) - 1)] - times[int(x)]) for x in at]
    modes = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max, "all": list}
    if return_mode not in modes:
        raise ValueError(f"`{return_mode}` is none of {', '.join(modes)}")
    return modes[return_mode](times)

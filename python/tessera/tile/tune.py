"""Searching for the best configuration of a kernel, as ``cuda.tile.tune`` does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import TesseraError

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class Measurement(Generic[C]):
    """A configuration and its time.

    Attributes:
        config: The configuration.
        mean_us: Microseconds of a launch, the mean.
        num_samples: Launches that were measured.
        error_margin_us: Half of the interval in which the mean lies with 95 %.
    """

    config: C
    mean_us: float
    num_samples: int
    error_margin_us: float


@dataclass(frozen=True, kw_only=True)
class TuningResult(Generic[C]):
    """What a search found.

    Attributes:
        best: The fastest configuration.
        successes: All that ran.
        failures: Those that did not: the configuration, the exception's class and its text.
    """

    best: Measurement[C]
    successes: Sequence[Measurement[C]]
    failures: Sequence[tuple[C, type[BaseException], str]]

    def summary(self, *, top_k: int = 10, bottom_k: int = 2) -> str:
        """A table of the configurations, the fastest first.

        Args:
            top_k: How many of the fastest are shown.
            bottom_k: How many of the slowest are.
        """
        ranked = sorted(self.successes, key=lambda found: found.mean_us)
        width = max(len(str(found.config)) for found in ranked)
        rows = [
            f"  {'*' if found is self.best else ' '} {str(found.config):<{width}} {found.mean_us:10.2f} us ± {found.error_margin_us:.2f}"
            f" ({found.num_samples})"
            for found in ranked
        ]
        left_out = len(rows) - top_k - bottom_k
        if left_out > 1:
            rows[top_k : top_k + left_out] = [f"    ... {left_out} more"]
        failed = [f"    {config}: {kind.__name__}: {text.splitlines()[0] if text else ''}" for config, kind, text in self.failures]
        return "\n".join([f"{len(ranked)} ran, {len(failed)} failed", *rows, *failed])


def exhaustive_search(
    search_space: Sequence[C],
    stream,
    grid_fn: Callable[[C], tuple[int, ...]],
    kernel,
    args_fn: Callable[[C], tuple[Any, ...]],
    hints_fn: Callable[[C], dict[str, Any]] | None = None,
    *,
    quiet: bool = False,
    single_run_timeout_sec: float | None = None,
    flush_l2: bool = True,
) -> TuningResult[C]:
    """Runs a kernel with every configuration, and gives the one that takes least.

    Args:
        search_space: The configurations.
        stream: The stream to launch on.
        grid_fn: The grid of a configuration.
        kernel: The kernel, or a function from a configuration to the kernel.
        args_fn: The arguments of a configuration.
        hints_fn: The compiler's hints of a configuration.
        quiet: Prints nothing.
        single_run_timeout_sec: How long one launch may take, in seconds: configurations that took longer count as failures.
        flush_l2: Empties the caches before each launch.

    Raises:
        ValueError: there is no configuration, or none of them ran.
    """
    from ..testing import measure

    if not search_space:
        raise ValueError("there is no configuration to search")
    successes: list[Measurement[C]] = []
    failures: list[tuple[C, type[BaseException], str]] = []
    for config in search_space:
        own = kernel if hasattr(kernel, "launch") else kernel(config)
        if hints_fn is not None:
            own = own.replace_hints(**hints_fn(config))
        args, grid = args_fn(config), grid_fn(config)
        try:
            timing = measure(lambda own=own, args=args, grid=grid: own.launch(args, grid=grid, stream=stream), args=args, flush=flush_l2)
        except TesseraError as error:
            failures.append((config, type(error), str(error)))
            continue
        if single_run_timeout_sec is not None and timing.slowest > single_run_timeout_sec:
            failures.append((config, TimeoutError, f"a launch took {timing.slowest:.3g} s"))
            continue
        found = Measurement(config=config, mean_us=timing.mean * 1e6, num_samples=timing.samples, error_margin_us=timing.margin * 1e6)
        successes.append(found)
        if not quiet:
            print(f"{config}: {found.mean_us:.2f} us ± {found.error_margin_us:.2f}", file=sys.stderr)
    if not successes:
        config, kind, text = failures[0]
        raise ValueError(f"no configuration ran; {config}: {kind.__name__}: {text}")
    best = min(successes, key=lambda found: found.mean_us)
    return TuningResult(best=best, successes=successes, failures=failures)


__all__ = ["Measurement", "TuningResult", "exhaustive_search"]

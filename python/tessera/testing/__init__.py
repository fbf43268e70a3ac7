"""Tests and measurements of kernels.

| what | function |
|---|---|
| results against a reference, within what their formats lose | :func:`assert_close` |
| a kernel on the CPU and in the emulator with sanitizers, against a reference | :func:`check` |
| gradients against differences | :func:`gradcheck` |
| shapes, element types and devices as parameters of a pytest function | :func:`shapes`, :func:`dtypes`, :func:`devices` |
| how long a call takes | :func:`measure`, :func:`do_bench` |
| sweeps by the harness's rules, their files compared and shown | :func:`sweep`, :func:`compare`, :func:`report`, :func:`plot` |

The pytest plugin is ``tessera.pytest_plugin``.
"""

from __future__ import annotations

from ._arrays import random
from ._check import Checked, check
from ._close import Model, assert_close, tolerance
from ._gradient import gradcheck
from ._parameters import devices, dtypes, shapes
from ._sweep import Results, compare, plot, report, sweep
from ._time import Timing, do_bench, measure

__all__ = [
    "Checked",
    "Model",
    "Results",
    "Timing",
    "assert_close",
    "check",
    "compare",
    "devices",
    "do_bench",
    "dtypes",
    "gradcheck",
    "measure",
    "plot",
    "random",
    "report",
    "shapes",
    "sweep",
    "tolerance",
]

"""Sweeps by the harness's rules: what ``tessera bench`` measures, the files that it writes, and what ``tessera compare`` and ``tessera report``
make of them.

Each runs the command in a process of its own, so that what else the program does is not measured. ``docs/harness.md`` has the rules.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _process, errors
from . import _progress


@dataclass(frozen=True)
class Results:
    """What a sweep measured.

    Attributes:
        path: The file, one JSON object a line.
        rows: One dictionary for each row: ``operator``, ``size`` (extents by name), ``precision``, ``variant``, ``impl``, ``status``, and in seconds
            ``median`` and ``interval`` (95 %), ``None`` where it was not timed.
        text: The table that the command printed.
    """

    path: Path
    rows: list[dict]
    text: str

    @staticmethod
    def read(path) -> Results:
        """The rows of a file."""
        cases: dict[tuple[str, str], dict] = {}
        rows: list[dict] = []
        with open(path, encoding="utf-8") as file:
            for line in file:
                said = json.loads(line)
                at = (said.get("case"), said.get("impl"))
                if said["kind"] == "case":
                    cases[at] = said["key"]
                elif said["kind"] == "summary":
                    seconds = lambda value: None if value is None else value / 1e9  # noqa: E731
                    interval = said.get("ci95_ns")
                    row = {name: cases[at][name] for name in ("operator", "size", "precision", "variant")}
                    row |= {"impl": said["impl"], "status": said["status"], "median": seconds(said.get("median_ns"))}
                    row["interval"] = None if interval is None else tuple(seconds(end) for end in interval)
                    rows.append(row)
        return Results(Path(path), rows, "")

    def _repr_html_(self) -> str:
        line = lambda kind, cells: f"<tr>{''.join(f'<{kind}>{cell}</{kind}>' for cell in cells)}</tr>"  # noqa: E731
        names = ("operator", "size", "precision", "impl", "status", "median")
        shown = [{**row, "size": _extents(row), "median": _microseconds(row["median"])} for row in self.rows]
        return f"<table>{line('th', names)}{''.join(line('td', [row[name] for name in names]) for row in shown)}</table>"


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.2f} us"


def _extents(row: dict) -> str:
    return " ".join(f"{name}={size}" for name, size in row["size"].items())


def _subject(given) -> str:
    """What the command calls a kernel, an operator or a suite."""
    if isinstance(given, str):
        return given
    function = getattr(given, "__tessera_function__", None)
    if function is not None:
        file = inspect.getsourcefile(function)
        if file is None or not os.path.exists(file):
            raise errors.make("source", f"`{function.__qualname__}` is in no file: a sweep is made by another process, which reads it", [])
        return f"{file}::{function.__name__}"
    name = getattr(given, "__name__", None)
    if getattr(given, "__module__", "") == "tessera.ops" and name is not None:
        return name
    raise errors.ArgumentError(f"`{given!r}` is no operator, no kernel and no suite")


def sweep(
    *subjects,
    out,
    arguments: Mapping[str, object] | None = None,
    sizes: str | None = None,
    precision: str | Sequence[str] | None = None,
    grid: str | None = None,
    block: int | None = None,
    device: str | None = None,
    mode: str = "quick",
    options: Sequence[str] = (),
) -> Results:
    """Checks, then times operators or a kernel at many sizes, as ``tessera bench`` does. On a terminal or in a notebook, tqdm shows how many rows are
    done, where it is installed.

    Args:
        subjects: Operators (``"softmax"``, ``tessera.ops.softmax``), a suite (``"quick"``), or one kernel of a file.
        out: The file that is written.
        arguments: A kernel's arguments as ``tessera run`` takes them: ``{"x": "randn:f32[n]", "TILE": 256}``.
        sizes: Extents: ``"m=1024,n=64..1024*2"``.
        precision: Precisions, such as ``bf16``.
        grid: A kernel's blocks, by the names in ``sizes`` too: ``"cdiv(n,256)"``.
        block: Threads of a block, for a per-thread kernel.
        device: ``cpu``, ``cuda`` or ``cuda:N``; the best one that works where it is ``None``.
        mode: How much time to take: ``quick``, ``ci``, ``publish``.
        options: Others of ``tessera bench``.

    Raises:
        ArgumentError: what the command does not take.
        DeviceError: a row failed.
        SourceError: a kernel that is in no file.
    """
    said = ["bench", *(_subject(subject) for subject in subjects), "--out", os.fspath(out), "--mode", mode]
    said[1 + len(subjects) : 1 + len(subjects)] = [f"{name}={value}" for name, value in (arguments or {}).items()]
    precision = precision if precision is None or isinstance(precision, str) else ",".join(precision)
    for name, value in (("sizes", sizes), ("precision", precision), ("grid", grid), ("block", block), ("device", device)):
        if value is not None:
            said += [f"--{name}", str(value)]
    with _progress.rows(out, " ".join(said[1 : 1 + len(subjects)])):
        _, text = _process.run([*said, *options])
    found = Results.read(out)
    return Results(found.path, found.rows, text)


def compare(base, new, *options: str) -> tuple[bool, str]:
    """What became slower or faster from one file of a sweep to another.

    Args:
        base: A file, :class:`Results`, or a list of them.
        new: As ``base``.
        options: Of ``tessera compare``.

    Returns:
        Whether nothing became slower, and the table.

    Raises:
        ArgumentError: files that cannot be compared.
    """
    code, text = _process.run(["compare", _files(base), _files(new), *options], good=(0, 1), refused=_UNREADABLE)
    return code == 0, text


#: Codes of commands that were given files which are not there or cannot be read, or other arguments that they do not take.
_UNREADABLE = (4, 5)


def _files(given) -> str:
    several = given if isinstance(given, (list, tuple)) else [given]
    return ",".join(os.fspath(one.path if isinstance(one, Results) else one) for one in several)


def report(*results, out) -> Path:
    """Makes a page (``.html``), a table (``.csv``) or a text (``.md``) of files of sweeps.

    Args:
        results: Files, or :class:`Results`.
        out: What is written.

    Raises:
        ArgumentError: another kind of file, or results that cannot be read.
    """
    _process.run(["report", *(_files(one) for one in results), "-o", os.fspath(out)], refused=_UNREADABLE)
    return Path(out)


def plot(results, *, x: str, axes=None):
    """Times over an extent, one line for each operator, precision and implementation, with their intervals; by matplotlib.

    Args:
        results: :class:`Results`, or a file.
        x: The extent.
        axes: Matplotlib's axes; new ones where it is ``None``.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is not installed.
        ArgumentError: no row has the extent.
    """
    from matplotlib import pyplot

    found = results if isinstance(results, Results) else Results.read(results)
    lines: dict[str, list[tuple]] = {}
    for row in found.rows:
        if x in row["size"] and row["median"] is not None:
            name = " ".join(filter(None, (row["operator"], row["variant"], row["precision"], row["impl"])))
            lines.setdefault(name, []).append((row["size"][x], row["median"] * 1e6, *(end * 1e6 for end in row["interval"] or ())))
    if not lines:
        raise errors.ArgumentError(f"no row has a time and an extent `{x}`")
    axes = pyplot.subplots()[1] if axes is None else axes
    for name, points in lines.items():
        points.sort()
        spread = [[abs(point[1] - point[end]) if len(point) > 2 else 0.0 for point in points] for end in (2, 3) if len(points[0]) > 2]
        axes.errorbar([point[0] for point in points], [point[1] for point in points], yerr=spread or None, label=name, marker="o", capsize=2)
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel="us")
    axes.legend()
    return axes

"""The pytest fixture ``emulate``: other people's kernels on the emulator in a test, without a GPU.

::

    def test_add(emulate):
        emulate.triton(add, (4,), x, y, out, 1000, BLOCK=256)
        assert np.array_equal(out, x + y)

    @pytest.mark.emulate(schedules=("eager", "lazy", "random"), seeds=range(8), raise_on="formal")
    def test_add_in_any_order(emulate): ...

A finding fails the test, with the line of the kernel. ``--tessera-sanitize`` says what is looked for where neither the marker nor the call does.
"""

from __future__ import annotations

from typing import Any

import pytest

from . import emu, errors


class Emulate:
    """Launches of a test. Each call runs once, or, where the test's marker names schedules, under each of them.

    Attributes:
        reports: What the launches did: a :class:`tessera.emu.Report` or an :class:`tessera.emu.Exploration` each.
    """

    def __init__(self, defaults: dict[str, Any]):
        self._explores = "schedules" in defaults
        self._defaults = defaults
        self.reports: list[emu.Report | emu.Exploration] = []

    def run(self, ptx: str, grid, block, args=(), *, entry=None, shared=0, cluster=None, target=None, **how):
        """Runs PTX, see :func:`tessera.emu.run`."""
        return self.launch(emu.Launch(ptx, grid, block, args, entry, shared, cluster, target), **how)

    __call__ = run

    def explore(self, ptx: str, grid, block, args=(), *, entry=None, shared=0, cluster=None, target=None, **how) -> emu.Exploration:
        """Runs PTX under several schedules, see :func:`tessera.emu.explore`."""
        return self._noted(emu.Launch(ptx, grid, block, args, entry, shared, cluster, target).explore, how)

    #: Compiles CUDA C++, see :func:`tessera.emu.compile_cuda`.
    compile_cuda = staticmethod(emu.compile_cuda)

    def triton(self, kernel, grid, *args, **keywords):
        """Runs a kernel of Triton's, see :func:`tessera.emu.triton`."""
        how = emu.split_how(kernel, keywords)
        return self.launch(emu.prepare_triton(kernel, grid, *args, **keywords), **how)

    def numba(self, kernel, grid, block, *args, target: str = "sm_90", shared: int = 0, **how):
        """Runs a kernel of Numba's, see :func:`tessera.emu.numba`."""
        return self.launch(emu.prepare_numba(kernel, grid, block, *args, target=target, shared=shared), **how)

    def launch(self, launch: emu.Launch, **how):
        """Runs a launch that is ready.

        Returns:
            Its report, or the exploration of its schedules.
        """
        return self._noted(launch.explore if self._explores else launch.run, how)

    def _noted(self, start, how: dict[str, Any]):
        report = start(**{**self._defaults, **how})
        self.reports.append(report)
        return report


@pytest.fixture
def emulate(request: pytest.FixtureRequest) -> Emulate:
    """Runs other people's kernels on the emulator; findings fail the test."""
    marker = request.node.get_closest_marker("emulate")
    given = dict(marker.kwargs) if marker else {}
    if marker and marker.args:
        raise errors.ArgumentError("the marker `emulate` takes keywords: emulate(schedules=..., seeds=..., sanitize=..., raise_on=...)")
    known = (*emu.HOW, "schedules", "seeds")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise errors.ArgumentError(f"the marker `emulate` has no `{unknown[0]}`: it has {', '.join(known)}")
    if "seeds" in given and "schedules" not in given:
        raise errors.ArgumentError("the marker `emulate` has seeds without schedules: add schedules=('random',)")
    sanitize = request.config.getoption("--tessera-sanitize", default=None)
    if sanitize is not None:
        given.setdefault("sanitize", sanitize)
    return Emulate(given)


def pytest_configure(config: pytest.Config) -> None:
    """Tells pytest of the marker."""
    config.addinivalue_line("markers", "emulate(schedules, seeds, sanitize, raise_on, ...): how the fixture `emulate` runs kernels of this test")

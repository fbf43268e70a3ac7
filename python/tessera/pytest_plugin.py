"""Where the kernels of a test suite run, and what they did there.

Options:

- ``--tessera-device cpu|emu``: where kernels on host arrays run; the CPU where it is left out.
- ``--tessera-sanitize CHECKS``: what is looked for: ``all``, or for the emulator some of ``race``, ``init``, ``barrier``, ``flight``, ``bounds``.
  The emulator looks for everything where it is left out; the CPU has all or nothing, and takes any for all.

``@pytest.mark.tessera(device, sanitize, target=..., schedule=..., seed=..., threads=...)`` says so for a test, a class or a module, and goes
before the options. The fixture ``tessera_device`` gives the device's name; as a parameter (``tessera.testing.devices``) it chooses the device.
Fixtures run where the test does for which they are made: those of a module or of the session, where the first test does that asks for them.

At the end stands how many launches ran where, those of pytest-xdist's workers too. Installed packages register the plugin; elsewhere it is
``-p tessera.pytest_plugin``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses

import pytest

from . import _device

_EMULATE = "tessera._pytest_emulate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("tessera")
    group.addoption("--tessera-device", choices=("cpu", "emu"), default=None, help="where kernels on host arrays run")
    help_text = "what is looked for: all, or race,init,barrier,flight,bounds"
    group.addoption("--tessera-sanitize", metavar="CHECKS", type=_checks, default=None, help=help_text)


#: What ``sanitize`` may name.
_CHECKS = ("all", "race", "init", "barrier", "flight", "bounds", "advice")


def _checks(text: str) -> str:
    """A list of checks, each of which there is."""
    for name in text.split(","):
        if name not in _CHECKS:
            raise argparse.ArgumentTypeError(f"`{name}` is no check: there are {', '.join(_CHECKS)}, with commas between")
    return text


class _Launches:
    """Launches by place, and the tests that made them."""

    def __init__(self):
        self.count: collections.Counter[str] = collections.Counter()
        self.tests: dict[str, set[str]] = collections.defaultdict(set)
        self.now = ""

    def __call__(self, place: str) -> None:
        self.count[place] += 1
        self.tests[place].add(self.now)

    def counts(self) -> dict[str, tuple[int, list[str]]]:
        """Of each place, what another process can read: launches, and the tests that made them."""
        return {place: (count, sorted(self.tests[place])) for place, count in self.count.items()}

    def add(self, counts: dict[str, tuple[int, list[str]]]) -> None:
        """Takes over what another process has counted."""
        for place, (count, tests) in counts.items():
            self.count[place] += count
            self.tests[place].update(tests)


_LAUNCHES = pytest.StashKey[_Launches]()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and counts from now on."""
    config.addinivalue_line("markers", "tessera(device, sanitize, *, target, schedule, seed, threads): where the kernels of a test run")
    config.pluginmanager.import_plugin(_EMULATE)
    launches = config.stash[_LAUNCHES] = _Launches()
    _device.WATCHERS.append(launches)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Counts no more."""
    launches = config.stash.get(_LAUNCHES, None)
    if launches is not None:
        _device.WATCHERS.remove(launches)


def _host(item: pytest.Item) -> _device.Host:
    """Where a test's kernels run: its parameter, its markers, the options."""
    chosen: dict = {}
    for marker in reversed(list(item.iter_markers("tessera"))):
        chosen.update(_said(marker))
    option = item.config.getoption
    asked = {"device": option("--tessera-device"), "sanitize": option("--tessera-sanitize")}
    chosen = {name: value for name, value in asked.items() if value is not None} | chosen
    params = getattr(item, "callspec", None)
    if params is not None and "tessera_device" in params.params:
        chosen["device"] = params.params["tessera_device"]
    device = chosen.setdefault("device", "cpu")
    if device == "emu":
        chosen.setdefault("sanitize", "all")
    elif chosen.get("sanitize") is not None:
        chosen["sanitize"] = "all"
    return _device.Host(**chosen)


#: What the marker takes by position.
_IN_ORDER = ("device", "sanitize")


def _said(marker: pytest.Mark) -> dict:
    """What a marker says, by name."""
    if len(marker.args) > len(_IN_ORDER):
        raise pytest.UsageError(f"the marker `tessera` takes {' and '.join(_IN_ORDER)} by position, and all else by name: {marker.args!r}")
    said = dict(zip(_IN_ORDER, marker.args, strict=False))
    known = {field.name for field in dataclasses.fields(_device.Host)}
    for name in marker.kwargs:
        if name not in known:
            raise pytest.UsageError(f"the marker `tessera` has no `{name}`: it has {', '.join(sorted(known))}")
        if name in said:
            raise pytest.UsageError(f"the marker `tessera` says `{name}` twice")
    said |= marker.kwargs
    if said.get("sanitize") is not None:
        try:
            _checks(str(said["sanitize"]))
        except argparse.ArgumentTypeError as error:
            raise pytest.UsageError(f"the marker `tessera`: {error}") from None
    return said


#: Where a test's kernels run, and what ends that.
_PLACE = pytest.StashKey[tuple[_device.Host, contextlib.ExitStack]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item):
    """Before a test's fixtures are made, those of its module and of the session too: kernels run where the test says from now on."""
    host = _host(item)
    item.config.stash[_LAUNCHES].now = item.nodeid
    place = contextlib.ExitStack()
    place.enter_context(_device.instead(host))
    item.stash[_PLACE] = host, place
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item):
    """Behind the fixtures that end with a test: they ended where the test ran."""
    try:
        return (yield)
    finally:
        if _PLACE in item.stash:
            item.stash[_PLACE][1].close()
            del item.stash[_PLACE]


@pytest.fixture
def tessera_device(request: pytest.FixtureRequest) -> str:
    """The name of the device on which the test's kernels run: ``cpu`` or ``emu``."""
    return request.node.stash[_PLACE][0].device


_COUNTS = "tessera_launches"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands on what it counted."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_COUNTS] = session.config.stash[_LAUNCHES].counts()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """A worker has ended; one that crashed says nothing."""
    node.config.stash[_LAUNCHES].add(getattr(node, "workeroutput", {}).get(_COUNTS, {}))


def pytest_terminal_summary(terminalreporter) -> None:
    """How many launches ran where."""
    launches = terminalreporter.config.stash[_LAUNCHES]
    if launches.count:
        terminalreporter.section("tessera")
        for place, count in sorted(launches.count.items()):
            terminalreporter.write_line(f"{place}: {count} launch{'es' if count != 1 else ''} in {len(launches.tests[place])} tests")

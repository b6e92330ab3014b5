"""How long to search, what is slow, what a test may leave behind, and a fixture for tests that look at the whole heap.

The Hypothesis profile, chosen with `HYPOTHESIS_PROFILE`, is how many examples a property gets:

`quick` takes 3 and reports the first failure as it was found (`make quick`), `dev` takes 10 (the default), `ci` the
same 6 in every run (the default where `CI` is true), `once` the same 40 and reports as `quick` does, `thorough` 500
(`make fuzz`, which is where long searches are made). A law runs once a dialect, and often once for streams and once for
whole answers, so that it sees 90 to 180 of `dev`. In `laws` and `dialects`, `thorough` takes 100, so that a law sees
900 to 1,800. A property that needs more states it as a multiple, with `tests.support.examples.more_examples`.

`--shard 3/8` runs the third of eight parts of the tests that are chosen otherwise: each test belongs to one part, by
its id, whatever else is chosen.

A test that starts a process, a server or a browser, or takes a tenth of a second, is marked `slow`; whole rooms are.
One that walks many places is marked `search`. `make quick` leaves both out. A process that imports callfuse takes half
a second of CPU: ask the function in its place, or start one for all tests of a file.
"""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.examples import THOROUGH
from tests.support.shards import Shard

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", deadline=None, max_examples=10, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile("ci", parent=settings.get_profile("dev"), max_examples=6, derandomize=True, print_blob=True)
settings.register_profile(
    "quick", parent=settings.get_profile("dev"), max_examples=3, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("once", parent=settings.get_profile("quick"), max_examples=40, derandomize=True)
settings.register_profile("thorough", parent=settings.get_profile("dev"), max_examples=500, print_blob=True)
settings.register_profile("thorough laws", parent=settings.get_profile("thorough"), max_examples=100)

_DEFAULT = "ci" if os.environ.get("CI") == "true" else "dev"
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", _DEFAULT)
settings.load_profile(_PROFILE)

_ROOMS = ("admin", "cli", "envoy", "faults", "frameworks", "node", "proxy", "sdk", "stores")
_HERE = Path(__file__).parent
SLOW_ROOMS = {_HERE / name for name in _ROOMS}
"""The rooms whose tests start processes, go through SDKs and sockets, or weigh memory; each test is marked `slow`."""
_LAW_ROOMS = {_HERE / "laws", _HERE / "dialects"}
"""Rooms whose properties run once a dialect."""
_DESCRIPTORS = Path("/dev/fd")
"""A folder with a name for each open file of this process."""
_FAST = "not slow and not search"
"""The marks that `make quick` asks for; the rooms need not be imported then, which takes seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--shard`."""
    parser.addoption("--shard", type=Shard.parse, help="run one of so many parts of the tests, as in 3/8")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Import laws with their number of examples: a property reads the profile when it is defined."""
    is_law = isinstance(collector, pytest.Module) and not _LAW_ROOMS.isdisjoint(collector.path.parents)
    if not (is_law and THOROUGH):
        return (yield)
    settings.load_profile("thorough laws")
    try:
        return (yield)
    finally:
        settings.load_profile(_PROFILE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow rooms where only fast tests are wanted."""
    return (collection_path in SLOW_ROOMS and config.getoption("markexpr") == _FAST) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers a core, as slow tests mostly wait for processes and sockets; one where only fast tests run."""
    return (1 if config.getoption("markexpr") == _FAST else 2) * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Do without garbage collection meanwhile: imports and tests stay, and each worker looked through them 2 s long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of slow rooms, and run slow tests first: workers that have ended wait for one that begins last.
    Leave out those of other shards."""
    if shard := config.getoption("shard"):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in shard])
        items[:] = [item for item in items if item.nodeid in shard]
    slow_files = {path for path in {item.path for item in items} if not SLOW_ROOMS.isdisjoint(path.parents)}
    for item in items:
        if item.path in slow_files:
            item.add_marker("slow")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        slow = [item for item in items if item.get_closest_marker("slow")]
        fast = [item for item in items if not item.get_closest_marker("slow")]
        items[:] = [item for at in range(workers) for kind in (slow, fast) for item in _share(kind, at, workers)]


def _share(items: list[pytest.Item], at: int, workers: int) -> list[pytest.Item]:
    """A worker's share: `--dist worksteal` gives each so many in a row, and takes back from the end of that."""
    return items[len(items) * at // workers : len(items) * (at + 1) // workers]


def pytest_collection_finish() -> None:
    """Leave what was imported out of each later collection and count of objects: the SDKs alone are a million."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Whatever a test sets up for its server, the next one logs as if it were the first; and a test that leaves a file,
    a connection or an event loop open fails by that itself, not one of those that follow."""
    loggers = [logging.getLogger(name) for name in ("callfuse", "callfuse.access")]
    levels = [logger.level for logger in loggers]
    before = _open_files()
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    if _open_files() > before:
        gc.collect()  # what nobody holds any longer warns, and pytest makes that an error of the test that ends


def _open_files() -> int:
    """How many files, sockets and pipes are open; 0 where the system does not say."""
    try:
        return len([*_DESCRIPTORS.iterdir()])
    except OSError:
        return 0


@pytest.fixture
def frozen_heap() -> None:
    """Leave out of each collection and count of objects what was there before the test."""
    gc.collect()
    gc.freeze()

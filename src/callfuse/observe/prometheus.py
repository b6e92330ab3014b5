"""Metrics for Prometheus, of the same events as logs and counts. The only file that imports prometheus-client.

    metrics = Metrics()                      # in a registry of its own: callfuse's metrics and no others
    metrics = Metrics(registry=REGISTRY)     # in the host's, beside its own
    metrics.watch(middleware)

In several processes that share a folder (`PROMETHEUS_MULTIPROC_DIR`) any of them shows the sum. `callfuse serve` gives
each worker a place in its folder (`take_place`); the next worker in the place of a dead one counts on where that ended.
"""

import gzip
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import prometheus_client.multiprocess
import prometheus_client.values
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from callfuse.observe import labels
from callfuse.observe.metrics import (
    COUNTERS,
    FIGURES,
    GAUGES,
    HISTOGRAMS,
    STORE_UP,
    Change,
    Label,
    MetricSink,
    Watched,
    version_of_callfuse,
)

__all__ = ["Metrics"]

_multiprocess: Any = prometheus_client.multiprocess  # neither has types
_values: Any = prometheus_client.values

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of several processes: prometheus-client's."""
PREFIX: Final = "callfuse_"
"""How the name of every metric begins."""

_UNITS: Final = {"By": "_bytes"}
"""How the names of gauges of a unit end."""
_MODES: Final[Mapping[str, Literal["livesum", "livemin"]]] = {"sum": "livesum", "min": "livemin"}


class _Instruments:
    """The metrics in a registry; without a registry if they are in files that processes share."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.counters = {
            name: Counter(PREFIX + name, one.text, [label.name for label in one.labels], registry=registry)
            for name, one in COUNTERS.items()
        }
        self.histograms = {
            name: Histogram(
                f"{PREFIX}{name}_seconds",
                one.text,
                [label.name for label in one.labels],
                buckets=one.bounds,
                registry=registry,
            )
            for name, one in HISTOGRAMS.items()
        }
        self.gauges = {
            name: Gauge(
                PREFIX + name + _UNITS.get(one.unit, ""),
                one.text,
                registry=registry,
                multiprocess_mode=_MODES[one.of_processes],
            )
            for name, one in GAUGES.items()
        }
        info = Gauge(
            f"{PREFIX}build_info",
            "1, with the versions of callfuse and Python as labels.",
            ("version", "python"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        info.labels(version_of_callfuse(), platform.python_version()).set(1)
        for name, one in COUNTERS.items():  # so that the first event is an increase
            if len(one.labels) == 1:
                for value in (*(one.labels[0].values or ()), labels.OTHER):
                    self.counters[name].labels(value)

    def adding(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that adds to a series of a counter."""
        counter = self.counters[name]
        return (counter.labels(*values.values()) if values else counter).inc

    def timing(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that records a time, in seconds, in a series of a histogram."""
        histogram = self.histograms[name]
        return (histogram.labels(*values.values()) if values else histogram).observe

    def setting(self, name: str) -> Change:
        """Return a function that sets a gauge."""
        return self.gauges[name].set


@lru_cache(1)
def _shared_instruments() -> _Instruments:
    """Return the metrics of this process in a shared folder. They exist once, because a second set would overwrite
    their values."""
    return _Instruments(None)


class Metrics(MetricSink):
    """callfuse's metrics, a sink of events (`observe/bus.py`). May be used from any thread.

    `registry`: where they are registered, such as the host's `prometheus_client.REGISTRY`; None makes one. A registry
    takes them once: raises ValueError for a second time. With `PROMETHEUS_MULTIPROC_DIR` they live in files of that
    folder, which the host's own `MultiProcessCollector` reads, too.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._guards: list[Watched] = []
        self._folder = _folder()
        self._registry = CollectorRegistry() if registry is None else registry
        of = _shared_instruments() if self._folder else _Instruments(self._registry)
        super().__init__(of)
        self._gauges = of.gauges
        if not self._folder:
            for name in FIGURES:
                self._gauges[name].set_function(partial(self._figure, name))

    def watch(self, guard: Watched) -> None:
        """Take the events and figures of a middleware from now on."""
        self._guards.append(guard)
        guard.bus.add(self)
        self.refresh()

    def refresh(self) -> None:
        """Write the figures that no event tells to the shared folder. Does nothing without a shared folder."""
        if self._folder:
            for name in FIGURES:
                self._gauges[name].set(self._figure(name))

    def leave(self) -> None:
        """Forget the guards of this process, because it ends. What it has counted stays in the shared folder."""
        self._guards.clear()
        self._gauges[STORE_UP].set(1)
        self.refresh()

    def render(self, accept: str = "", accept_encoding: str = "") -> tuple[bytes, dict[str, str]]:
        """The metrics as text, and the headers of that: in the format and coding that these headers of a request ask
        for, as prometheus-client offers them."""
        self.refresh()
        source: Collector = self._registry
        if self._folder:
            source = _multiprocess.MultiProcessCollector(None, self._folder)
        encode, content_type = choose_encoder(accept)
        body, headers = encode(_Own(source)), {"content-type": content_type, "vary": "accept, accept-encoding"}
        offered = [one.partition(";")[0].strip().lower() for one in accept_encoding.split(",")]
        if "gzip" in offered:
            return gzip.compress(body, 5), {**headers, "content-encoding": "gzip"}
        return body, headers

    def _figure(self, name: str) -> float:
        return sum(map(FIGURES[name], self._guards))


class _Own(Collector):
    """callfuse's metrics without the times at which series began, which would double their number."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Each metric with its samples."""
        for metric in self._source.collect():
            if metric.name.startswith(PREFIX):
                own = Metric(metric.name, metric.documentation, metric.type)
                own.samples = [one for one in metric.samples if not one.name.endswith("_created")]
                yield own


def _folder() -> str | None:
    """The folder that processes share; None if values are kept in memory."""
    return os.environ.get(FOLDER) if getattr(_values.ValueClass, "_multiprocess", False) else None


def keep_in_memory() -> None:
    """Keep values in the memory of this process, whatever the environment says. To be called before any metric is
    made."""
    _values.ValueClass = _values.MutexValue


class WorkerPlace(NamedTuple):
    """The place of a process in the shared folder. `replaces`: the process that had the place before has died."""

    name: str
    replaces: bool


def take_place(folder: str) -> WorkerPlace:
    """Keep values in files of a folder, in a place of it that no living process has. To be called before any metric is
    made, in a process whose environment names the folder."""
    name = _free_place(Path(folder))
    _values.ValueClass = _values.MultiProcessValue(lambda: name)
    return WorkerPlace(name, replaces=any(Path(folder).glob(f"*_{name}.db")))


def _free_place(folder: Path) -> str:
    """Return the first place whose file is not locked. The system releases the lock when the process ends, however it
    ends."""
    if sys.platform == "win32":
        return str(os.getpid())
    import fcntl

    number = 0
    while True:
        lock = os.open(folder / f"place{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            number += 1
        else:
            return f"place{number}"

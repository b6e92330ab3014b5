"""Export metrics to Prometheus, from the same events as logs and counts. Only this file imports prometheus-client.

    metrics = Metrics()                      # in a registry of its own: callfuse's metrics and no others
    metrics = Metrics(registry=REGISTRY)     # in the host's, beside its own
    metrics.watch(middleware)

If several processes share a folder (`PROMETHEUS_MULTIPROC_DIR`), each of them shows the sum. `callfuse serve` gives
each worker a place in its folder (`take_place`). A worker that takes the place of a dead one continues its counts.
"""

import gzip
import os
import platform
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import prometheus_client.metrics
import prometheus_client.multiprocess
import prometheus_client.utils
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
    Counted,
    Label,
    MetricSink,
    Timed,
    Watched,
    version_of_callfuse,
)

__all__ = ["Metrics"]

_metrics: Any = prometheus_client.metrics
_multiprocess: Any = prometheus_client.multiprocess  # this and the next two have no types
_utils: Any = prometheus_client.utils
_values: Any = prometheus_client.values

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of prometheus-client that names the folder of several processes."""
PREFIX: Final = "callfuse_"
"""How the name of every metric begins."""

_UNITS: Final = {"By": "_bytes"}
"""The ends of names of gauges, by unit."""
_MODES: Final[Mapping[str, Literal["livesum", "livemin"]]] = {"sum": "livesum", "min": "livemin"}
_METRICS: Final[Mapping[str, Counted | Timed]] = {**COUNTERS, **HISTOGRAMS}
_BEGUN: Final = [
    *((name, ()) for name, one in _METRICS.items() if not one.labels),
    *(
        (name, (value,))
        for name, one in COUNTERS.items()
        if len(one.labels) == 1
        for value in (*(one.labels[0].values or ()), labels.OTHER)
    ),
]
"""Series that exist from the start, so that the first event is an increase."""


def _full(name: str) -> str:
    """Return the Prometheus name of a counter or histogram."""
    return f"{PREFIX}{name}_seconds" if name in HISTOGRAMS else PREFIX + name


def _names(one: Counted | Timed) -> list[str]:
    return [label.name for label in one.labels]


class _GaugeSet:
    """The gauges by name, and build info."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
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

    def setting(self, name: str) -> Change:
        """Return a function that sets a gauge."""
        return self.gauges[name].set


class _InFiles(_GaugeSet):
    """The metrics as objects of prometheus-client, whose values are in files that processes share."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(registry)
        self._all: dict[str, Any] = {
            name: Histogram(_full(name), one.text, _names(one), buckets=one.bounds, registry=registry)
            if isinstance(one, Timed)
            else Counter(_full(name), one.text, _names(one), registry=registry)
            for name, one in _METRICS.items()
        }
        for name, values in _BEGUN:
            self._child(name, *values)

    def adding(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that adds to a series of a counter."""
        change: Change = self._child(name, *values.values()).inc
        return change

    def timing(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that records a time, in seconds, in a series of a histogram."""
        change: Change = self._child(name, *values.values()).observe
        return change

    def _child(self, name: str, *values: str) -> Any:
        return self._all[name].labels(*values) if values else self._all[name]


class _Series:
    """One series: its sum, and for a histogram the number of times in each bucket."""

    __slots__ = ("_bounds", "_buckets", "_created", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self._created = time.time()
        self._sum = 0.0

    def add(self, amount: float) -> None:
        """Add to a counter."""
        self._sum += amount

    def observe(self, seconds: float) -> None:
        """Record a time in a histogram."""
        self._buckets[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield each sample: the suffix of its name, its labels in addition to the series' own, and its value."""
        if self._bounds:
            counts = [*accumulate(self._buckets)]
            for bound, count in zip((*self._bounds, inf), counts, strict=True):
                yield "_bucket", {"le": _utils.floatToGoString(bound)}, count
            yield "_count", {}, counts[-1]
        yield "_sum" if self._bounds else "_total", {}, self._sum
        if _metrics._use_created:
            yield "_created", {}, self._created


class _InMemory(_GaugeSet, Collector):
    """The metrics as plain numbers, which become samples when they are read: prometheus-client needs a lock and five
    calls for each time that it records."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._all: dict[str, dict[tuple[str, ...], _Series]] = {name: {} for name in _METRICS}
        for name, values in _BEGUN:
            self._series(name, *values)
        registry.register(self)

    def adding(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that adds to a series of a counter."""
        return self._series(name, *values.values()).add

    def timing(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that records a time, in seconds, in a series of a histogram."""
        return self._series(name, *values.values()).observe

    def collect(self) -> Iterable[Metric]:
        """Yield each metric with its samples."""
        for name, one in _METRICS.items():
            metric = Metric(_full(name), one.text, "histogram" if isinstance(one, Timed) else "counter")
            for values, series in self._all[name].copy().items():
                labels = dict(zip(_names(one), values, strict=True))
                for end, more, value in series.samples():
                    metric.add_sample(metric.name + end, labels | more, value)
            yield metric

    describe = collect  # so that a registry rejects a second set

    def _series(self, name: str, *values: str) -> _Series:
        one = _METRICS[name]
        return self._all[name].setdefault(values, _Series(one.bounds if isinstance(one, Timed) else ()))


@lru_cache(1)
def _in_files() -> _InFiles:
    """Return the only metrics of this process in a shared folder: a second set would overwrite their values."""
    return _InFiles()


class Metrics(MetricSink):
    """callfuse's metrics, a sink of events (`observe/bus.py`). May be used from any thread.

    `registry`: where they are registered, such as the host's `prometheus_client.REGISTRY`; None for a new one. Raises
    ValueError if the registry has them already. With `PROMETHEUS_MULTIPROC_DIR` their values are in files of that
    folder, which the host's own `MultiProcessCollector` reads, too.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._guards: list[Watched] = []
        self._folder = _folder()
        self._registry = CollectorRegistry() if registry is None else registry
        of = _in_files() if self._folder else _InMemory(self._registry)
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
        """Write the gauges that no event reports to the shared folder. Does nothing without a shared folder."""
        if self._folder:
            for name in FIGURES:
                self._gauges[name].set(self._figure(name))

    def leave(self) -> None:
        """Forget the guards of this process, because it ends. Its counts stay in the shared folder."""
        self._guards.clear()
        self._gauges[STORE_UP].set(1)
        self.refresh()

    def render(self, accept: str = "", accept_encoding: str = "") -> tuple[bytes, dict[str, str]]:
        """Return the metrics as text, and the response headers. `accept`, `accept_encoding`: request headers, which
        select a format and coding that prometheus-client offers."""
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
    """callfuse's metrics without `_created` series, which would double their number."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Yield each metric with its samples."""
        for metric in self._source.collect():
            if metric.name.startswith(PREFIX):
                own = Metric(metric.name, metric.documentation, metric.type)
                own.samples = [one for one in metric.samples if not one.name.endswith("_created")]
                yield own


def _folder() -> str | None:
    """Return the folder that processes share; None if values are kept in memory."""
    return os.environ.get(FOLDER) if getattr(_values.ValueClass, "_multiprocess", False) else None


def keep_in_memory() -> None:
    """Keep values in memory even if the environment names a folder. Call this before any metric is made."""
    _values.ValueClass = _values.MutexValue


class WorkerPlace(NamedTuple):
    """The place of a process in the shared folder. `replaces`: its previous process died."""

    name: str
    replaces: bool


def take_place(folder: str) -> WorkerPlace:
    """Keep values in a folder, in a place that no living process has. Call this before any metric is made, in a process
    whose environment names the folder."""
    name = _free_place(Path(folder))
    _values.ValueClass = _values.MultiProcessValue(lambda: name)
    return WorkerPlace(name, replaces=any(Path(folder).glob(f"*_{name}.db")))


def _free_place(folder: Path) -> str:
    """Return the first place whose file is not locked. The system releases the lock at the end of the process."""
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

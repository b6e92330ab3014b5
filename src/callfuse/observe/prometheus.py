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
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, Protocol

import prometheus_client.multiprocess
import prometheus_client.values
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from callfuse.observe import events, labels
from callfuse.observe.bus import Bus
from callfuse.observe.events import Event, FindingSeen
from callfuse.observe.saved import Saved

_multiprocess: Any = prometheus_client.multiprocess  # neither has types
_values: Any = prometheus_client.values

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of several processes: prometheus-client's."""
PREFIX: Final = "callfuse_"
"""How the name of every metric begins."""

_NONE: Final[Mapping[str, Collection[str]]] = {}
COUNTERS: Final[Mapping[str, tuple[str, Mapping[str, Collection[str]]]]] = {
    "exchanges": (
        "POSTs to guarded paths that are over, by what callfuse did (guarded, watched, answered, passed), or by how "
        "they ended if not well (broke_off, client_gone, error).",
        {"dialect": labels.DIALECTS, "outcome": labels.OUTCOMES},
    ),
    "tool_calls": (
        "Complete calls of models, by what was done about them (none: nothing was found).",
        {"dialect": labels.DIALECTS, "action": labels.ACTIONS},
    ),
    "findings": (
        "Verdicts on loops that were found, by kind, limit (soft, hard) and what was done; where a rung fails and the "
        "next is taken, there is one of each.",
        {"kind": labels.KINDS, "verdict": labels.VERDICTS, "action": labels.ACTIONS},
    ),
    "mitigations": (
        "What models did within two rounds after a finding (changed, same, ended, user), where it was acted on and "
        "where it was only observed (holdout).",
        {"result": labels.RESULTS, "arm": labels.ARMS},
    ),
    "saved_calls": (
        "ESTIMATE of the calls that were saved: those withheld, or the first of a loop and those that follow such a "
        "one on average in recorded runs, whichever is more.",
        _NONE,
    ),
    "blown": ("Requests that callfuse answered by itself because the fuse had blown.", _NONE),
    "not_guarded": ("Requests and answers that passed unguarded, by cause.", {"cause": labels.NOT_GUARDED}),
    "not_watched": ("Healthy answers that were not read, by cause.", {"cause": labels.NOT_WATCHED}),
    "fail_open": ("Calls that passed unjudged, by cause.", {"cause": labels.FAIL_OPEN}),
    "callback_errors": ("Faults of on_loop.", _NONE),
    "store_errors": ("Failures of the shared store, by operation.", {"op": labels.OPERATIONS}),
    "ledger_dropped": ("Lanes and sessions forgotten before their time, by limit.", {"limit": labels.DROPS}),
    "feedback": ("What people said of findings, by kind.", {"kind": labels.FEEDBACK}),
    "false_positives": ("Findings that somebody called wrong.", _NONE),
}
"""Counters by name, without prefix and `_total`: help, and the values of each label beside `other`."""

HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "hold_seconds": (
        "How long bytes of answers were held.",
        (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
    ),
    "decide_seconds": (
        "How long the calls of a guarded answer were judged, with on_loop.",
        (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0),
    ),
}
"""Histograms by name, without prefix: help, and the upper bounds of their buckets in seconds."""

Mode = Literal["livesum", "livemin", "livemax"]
GAUGES: Final[Mapping[str, tuple[str, Mode]]] = {
    "held_bytes": ("Bytes that exchanges keep: requests, held and buffered answers (max_total_bytes).", "livesum"),
    "sessions": ("Lanes that are kept (max_sessions); one that two workers know counts twice.", "livesum"),
    "store_up": ("1 while the store is used, 0 while it is left alone because it is down.", "livemin"),
}
"""Gauges by name, without prefix: help, and how those of several processes become one."""

_COUNTED: Final[Mapping[type[Event], Callable[[Any], tuple[str, ...]]]] = {
    events.ExchangeEnded: lambda event: ("exchanges", event.where.dialect, labels.outcome_of(event)),
    events.CallSeen: lambda event: ("tool_calls", event.where.dialect, event.action),
    events.FindingSeen: lambda event: ("findings", event.verdict.finding.kind, _limit_of(event), event.action),
    events.CourseMended: lambda event: ("mitigations", event.result, labels.arm_of(event.arm)),
    events.FuseBlown: lambda _: ("blown",),
    events.NotGuarded: lambda event: ("not_guarded", event.cause),
    events.NotWatched: lambda event: ("not_watched", event.cause),
    events.FailedOpen: lambda event: ("fail_open", labels.fail_open_cause(event.kind)),
    events.CallbackFailed: lambda _: ("callback_errors",),
    events.StoreFailed: lambda event: ("store_errors", event.operation),
    events.StoreWithoutLoop: lambda _: ("store_errors", labels.OTHER),
    events.LedgerDropped: lambda event: ("ledger_dropped", event.limit),
    events.FeedbackGiven: lambda event: ("feedback", event.kind),
}
"""The counter that counts an event, and the values of its labels."""
_STORE: Final[Mapping[type[Event], int]] = {events.StoreDown: 0, events.StoreUp: 1}


def _limit_of(event: FindingSeen) -> str:
    return "hard" if event.verdict.finding.hard else "soft"


class Watched(Protocol):
    """What metrics are of: a `CallFuseMiddleware`."""

    @property
    def bus(self) -> Bus:
        """Takes its events."""
        ...

    @property
    def held_bytes(self) -> int:
        """The bytes that its exchanges keep at present."""
        ...

    @property
    def lanes(self) -> int:
        """The lanes that it keeps."""
        ...


class _Instruments:
    """The metrics themselves, in a registry; without one where they live in files that processes share."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._children: dict[tuple[str, ...], Any] = {}
        self.counters = {
            name: Counter(PREFIX + name, text, tuple(allowed), registry=registry)
            for name, (text, allowed) in COUNTERS.items()
        }
        self.histograms = {
            name: Histogram(PREFIX + name, text, buckets=buckets, registry=registry)
            for name, (text, buckets) in HISTOGRAMS.items()
        }
        self.gauges = {
            name: Gauge(PREFIX + name, text, registry=registry, multiprocess_mode=mode)
            for name, (text, mode) in GAUGES.items()
        }
        info = Gauge(
            f"{PREFIX}build_info",
            "1, with the versions of callfuse and Python as labels.",
            ("version", "python"),
            registry=registry,
            multiprocess_mode="livemax",
        )
        info.labels(_version(), platform.python_version()).set(1)
        for name, (_, allowed) in COUNTERS.items():  # so that the first event is an increase
            if len(allowed) == 1:
                for value in (*next(iter(allowed.values())), labels.OTHER):
                    self.counters[name].labels(value)

    def add(self, name: str, given: tuple[str, ...] = (), amount: float = 1) -> None:
        """Count; a value that a label may not have counts as `other`."""
        child = self._children.get((name, *given))
        if child is None:
            allowed = COUNTERS[name][1].values()
            safe = [labels.one_of(one, value) for one, value in zip(allowed, given, strict=True)]
            child = self.counters[name].labels(*safe) if safe else self.counters[name]
            if safe == list(given):  # what is from elsewhere must not fill the memory
                self._children[name, *given] = child
        child.inc(amount)


@lru_cache(1)
def _shared_instruments() -> _Instruments:
    """Those of this process in a shared folder: a second set would overwrite the values of the first."""
    return _Instruments(None)


class Metrics:
    """callfuse's metrics, a sink of events (`observe/bus.py`). May be used from any thread.

    `registry`: where they are registered, such as the host's `prometheus_client.REGISTRY`; None makes one. A registry
    takes them once: raises ValueError for a second time. With `PROMETHEUS_MULTIPROC_DIR` they live in files of that
    folder, which the host's own `MultiProcessCollector` reads, too.
    """

    kinds: Final = frozenset((*_COUNTED, *_STORE, events.HoldEnded, events.Decided))

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._guards: list[Watched] = []
        self._folder = _folder()
        self._saved = Saved()
        self._lock = Lock()
        self._registry = CollectorRegistry() if registry is None else registry
        self._of = _shared_instruments() if self._folder else _Instruments(self._registry)
        self._of.gauges["store_up"].set(1)
        if not self._folder:
            self._of.gauges["held_bytes"].set_function(self._held_bytes)
            self._of.gauges["sessions"].set_function(self._lanes)

    def watch(self, guard: Watched) -> None:
        """Take the events and figures of a middleware from now on."""
        self._guards.append(guard)
        guard.bus.add(self)
        self.refresh()

    def take(self, event: Event) -> None:
        """Count or measure an event."""
        kind = type(event)
        if kind in _COUNTED:
            name, *given = _COUNTED[kind](event)
            self._of.add(name, tuple(given))
        elif isinstance(event, events.HoldEnded):
            self._of.histograms["hold_seconds"].observe(event.seconds)
        elif isinstance(event, events.Decided):
            self._of.histograms["decide_seconds"].observe(event.seconds)
        elif kind in _STORE:
            self._of.gauges["store_up"].set(_STORE[kind])
        if isinstance(event, FindingSeen):
            with self._lock:
                saved = self._saved.by(event)
            if saved:
                self._of.add("saved_calls", amount=saved)
        elif isinstance(event, events.FeedbackGiven) and event.kind == labels.FALSE_POSITIVE:
            self._of.add("false_positives")

    def refresh(self) -> None:
        """Write the figures that no event tells of to the shared folder; nothing happens without one."""
        if self._folder:
            self._of.gauges["held_bytes"].set(self._held_bytes())
            self._of.gauges["sessions"].set(self._lanes())

    def leave(self) -> None:
        """This process ends: its figures are none from now on. What it has counted stays in the shared folder."""
        self._guards.clear()
        self._of.gauges["store_up"].set(1)
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

    def _held_bytes(self) -> float:
        return sum(guard.held_bytes for guard in self._guards)

    def _lanes(self) -> float:
        return sum(guard.lanes for guard in self._guards)


class _Own(Collector):
    """callfuse's metrics of another collector, without the times at which series began, which double their number."""

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


def take_place(folder: str) -> str:
    """Keep values in files of a folder, in a place of it that no living process has; returns the name of that place.
    To be called before any metric is made, in a process whose environment names the folder."""
    place = _free_place(Path(folder))
    _values.ValueClass = _values.MultiProcessValue(lambda: place)
    return place


def _free_place(folder: Path) -> str:
    """The first place whose file nobody has locked. The system ends the lock with the process, however that ends."""
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


def _version() -> str:
    with suppress(PackageNotFoundError):
        return version("callfuse")
    return "unknown"

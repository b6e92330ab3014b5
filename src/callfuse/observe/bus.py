"""Gives each event to every sink: log lines, counts, metrics, traces, the feed.

    bus = Bus(counts, LogSink())
    bus.add(my_sink)
    bus.emit(FuseBlown(where, blocks=5))

A sink is called synchronously, in the thread in which the event happens. A slow sink must do its work elsewhere. An
error that a sink raises is logged once and not raised again.
"""

import logging
from threading import Lock
from typing import Final, Protocol

from callfuse.boundary import Boundary
from callfuse.observe.events import Event, FindingSeen, LoopBegan

_logger: Final = logging.getLogger("callfuse")


class Sink(Protocol):
    """An observer of events, such as the log or the metrics."""

    def take(self, event: Event) -> None:
        """Take an event, which may be of an unknown kind. Called from any thread. Must not wait."""
        ...


class Bus:
    """The sinks of one middleware or detector. May be used from any thread."""

    __slots__ = ("_failed", "_lock", "_of_kind", "_sinks")

    def __init__(self, *sinks: Sink) -> None:
        self._sinks: tuple[tuple[Sink, frozenset[type[Event]]], ...] = ()
        self._of_kind: dict[type[Event], tuple[Sink, ...]] = {}
        self._failed: tuple[Sink, ...] = ()
        self._lock = Lock()
        for sink in sinks:
            self.add(sink)

    def add(self, sink: Sink) -> None:
        """Give a sink all events from now on, except events on demand. A sink with `kinds`, a collection of classes,
        gets these only."""
        kinds = frozenset[type[Event]](getattr(sink, "kinds", ()))
        with self._lock:
            self._sinks = (*self._sinks, (sink, kinds))
            self._of_kind = {}

    def remove(self, sink: Sink) -> None:
        """Give a sink no further events. Does nothing if the sink is unknown."""
        with self._lock:
            self._sinks = tuple(one for one in self._sinks if one[0] is not sink)
            self._failed = tuple(one for one in self._failed if one is not sink)
            self._of_kind = {}

    def wants(self, kind: type[Event]) -> bool:
        """Whether any sink takes events of this kind, so that callers need not build costly events for none."""
        return bool(self._taking(kind))

    def emit(self, event: Event) -> None:
        """Give the event to each sink that takes its kind. Never raises."""
        taking = self._taking(type(event))
        sinks = iter(taking)
        while taking:
            with Boundary() as boundary:  # one boundary for all sinks: it costs as much as a short sink
                for sink in sinks:
                    sink.take(event)
            if boundary.error is None:
                return
            self._report(sink, event, boundary.error)

    def emit_finding(self, event: FindingSeen) -> None:
        """Emit a finding, and `LoopBegan` if a loop begins with it."""
        self.emit(event)
        verdict = event.verdict
        if verdict.begins and not event.again:
            found, call = verdict.finding, verdict.call
            self.emit(LoopBegan(event.where, verdict.finding_id, found.kind, call.full_name, event.arm))

    def _taking(self, kind: type[Event]) -> tuple[Sink, ...]:
        found = self._of_kind.get(kind)
        if found is None:
            with self._lock:
                found = tuple(sink for sink, kinds in self._sinks if kind in kinds or not (kinds or kind.on_demand))
                self._of_kind[kind] = found
        return found

    def _report(self, sink: Sink, event: Event, error: Exception) -> None:
        """Log the first error of a sink, without its message, which may quote the event."""
        with self._lock:
            if any(one is sink for one in self._failed):
                return
            if any(one is sink for one, _ in self._sinks):  # do not keep a sink that was removed meanwhile
                self._failed = (*self._failed, sink)
        with Boundary():  # the failing sink may be the log itself
            what = f"{type(error).__name__} of {type(sink).__name__} at {event.name!r}"
            _logger.error("an observer of callfuse failed; its further errors are not logged: %s", what)

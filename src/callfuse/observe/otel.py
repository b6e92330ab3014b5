"""Export traces and metrics over OpenTelemetry's API. No other file imports it. The host sets up SDK and exporters.

Only an exchange with a finding gets a span. It is created at the first finding, with the exchange's begin as its start
time. A span for each exchange, dropped if nothing is found, would cost every exchange, and the vendor would get a
parent span that is never exported. So the first request to the model keeps the trace headers of the client, and only a
request that asks again names the span as its parent.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Final
from weakref import ref

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context, attach, get_current
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from callfuse.dialects import DIALECTS
from callfuse.model.secrets import star_secrets
from callfuse.observe import events, fields, labels
from callfuse.observe.events import Event, ExchangeEnded, FindingSeen, FuseBlown
from callfuse.observe.fields import Value, fields_of
from callfuse.observe.metrics import (
    COUNTERS,
    FIGURES,
    GAUGES,
    HISTOGRAMS,
    Change,
    Label,
    MetricSink,
    Watched,
    version_of_callfuse,
)
from callfuse.observe.printable import plain

__all__ = ["OtelMetrics"]

SCOPE: Final = "callfuse"
"""The instrumentation scope."""
NAME: Final = f"{SCOPE}."
"""How the name of every metric begins."""
LONGEST: Final[Mapping[str, int]] = {"none": 0, "short": fields.LONGEST, "full": 16_384}
"""Characters of arguments or of a result that a span holds, by the setting `otel.content`."""
MOST_WAITING: Final = 20
"""The most events of an exchange that are kept until its first finding."""

Attributes = dict[str, Value]

_OF_PLACE: Final = frozenset(
    {
        fields.EVENT,
        fields.SESSION,
        fields.SOURCE,
        fields.LANE,
        fields.PROVIDER,
        fields.MODEL,
        fields.DIALECT,
    }
)
"""Fields that the span has, so its events need not repeat them."""
_OF_SPAN: Final = frozenset(
    {*_OF_PLACE, fields.TOOL, fields.CALL_ID, fields.FINDING_ID, fields.KIND, fields.ACTION}
) - {fields.EVENT}
"""Fields of the first finding that the span has; the rest is on the span's event."""


class _Exchange:
    """One exchange in progress. `owner`: its sink; None once it is over. `outer`: the exchange in which it runs, if one
    guard is behind another. `waiting`: events before the span, with their times."""

    __slots__ = ("began", "carrier", "context", "outer", "owner", "span", "waiting")

    def __init__(self, owner: "OtelTraces", outer: "_Exchange | None", carrier: dict[str, str]) -> None:
        self.owner: OtelTraces | None = owner
        self.outer = outer
        self.carrier = carrier
        self.context: Context | None = get_current()
        self.began = time.time_ns()
        self.span: trace.Span | None = None
        self.waiting: list[tuple[int, Event]] = []

    def close(self) -> None:
        """Drop everything but `outer`, because tasks of the app that still run keep this object in their context."""
        self.owner = self.context = self.span = None
        self.carrier, self.waiting = {}, []


_exchange: Final[ContextVar[_Exchange | None]] = ContextVar("callfuse_exchange", default=None)
"""The exchange of this context. Events do not name it; tasks and threads of an exchange inherit its context."""


class OtelTraces:
    """A sink (`observe/bus.py`) that makes spans. Implements `Traces` (`observe/telemetry.py`).

    `content`: how much of arguments and results spans hold. `provider`: makes the tracer; None for the global provider,
    which may be set later.
    """

    kinds: Final = frozenset(
        {
            events.ActionTaken,
            events.AskedAgain,
            events.AskFailed,
            events.CallbackFailed,
            events.CourseMended,
            events.ExchangeEnded,
            events.FailedOpen,
            events.FindingSeen,
            events.FuseBlown,
            events.HoldEnded,
            events.NotAsked,
        }
    )

    def __init__(self, content: str = "none", provider: TracerProvider | None = None) -> None:
        self._longest = LONGEST[content]
        self._tracer = trace.get_tracer(SCOPE, version_of_callfuse(), provider)
        self._propagator: object = None
        self._names: tuple[bytes, ...] = ()

    def begin(self, headers: Mapping[bytes, bytes]) -> None:
        """Begin an exchange in this context."""
        propagator = propagate.get_global_textmap()
        if propagator is not self._propagator:  # the host may change the propagator at any time
            self._names = tuple(name.lower().encode() for name in propagator.fields)
            self._propagator = propagator
        carrier = {name.decode(): headers[name].decode("latin-1") for name in self._names if name in headers}
        _exchange.set(_Exchange(self, _exchange.get(), carrier))

    def continue_in(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Make the span the current one of this task; returns the headers with it as the parent."""
        exchange = self._current()
        if exchange is None or exchange.span is None:
            return list(headers)
        carrier: dict[str, str] = {}
        # An empty context, so that baggage stays as it came.
        propagate.inject(carrier, trace.set_span_in_context(exchange.span, Context()))
        named = {name.lower().encode(): value.encode("latin-1") for name, value in carrier.items()}
        stale = {b"tracestate"} if b"traceparent" in named else set[bytes]()
        attach(trace.set_span_in_context(exchange.span))
        kept = [(name, value) for name, value in headers if name.lower() not in named.keys() | stale]
        return [*kept, *named.items()]

    def take(self, event: Event) -> None:
        """Put an event on the span of its exchange; a finding makes the span, and the exchange's end ends it."""
        exchange = self._current()
        if exchange is None:
            return
        if isinstance(event, ExchangeEnded):
            _exchange.set(exchange.outer)
            if exchange.span is not None:
                _end(exchange.span, event, exchange.began + round(1e9 * event.seconds))
            exchange.close()
            return
        if exchange.span is None and isinstance(event, FindingSeen | FuseBlown):
            self._open(exchange, event)
        if exchange.span is not None:
            self._tell(exchange.span, event, time.time_ns())
        elif len(exchange.waiting) < MOST_WAITING:
            exchange.waiting.append((time.time_ns(), event))

    def _current(self) -> _Exchange | None:
        """Return the innermost exchange of this context that belongs to this sink and is not over."""
        exchange = _exchange.get()
        while exchange is not None and exchange.owner is not self:
            exchange = exchange.outer
        return exchange

    def _open(self, exchange: _Exchange, event: FindingSeen | FuseBlown) -> None:
        """Begin the span as a child of the host's current span, else of the span that the request's headers name."""
        context = exchange.context
        if not trace.get_current_span(context).get_span_context().is_valid:
            context = propagate.extract(exchange.carrier, context)
        found = {name: value for name, value in fields_of(event).items() if name in _OF_SPAN}
        name = f"callfuse {event.name}"
        if isinstance(event, FindingSeen):
            name = f"{fields.EXECUTE_TOOL} {found.get(fields.TOOL, '')}".rstrip()
            found[fields.OPERATION], found[fields.TOOL_TYPE] = fields.EXECUTE_TOOL, fields.FUNCTION
            found |= self._content(event)
        exchange.span = self._tracer.start_span(name, context, SpanKind.INTERNAL, found, start_time=exchange.began)
        for at, before in exchange.waiting:
            self._tell(exchange.span, before, at)
        exchange.waiting = []

    def _tell(self, span: trace.Span, event: Event, at: int) -> None:
        """Add an event to a span, without the fields that the span has."""
        if isinstance(event, events.FailedOpen):  # the rest of its cause may quote a body
            found: Attributes = {fields.CAUSE: plain(event.kind)}
        else:
            found = {name: value for name, value in fields_of(event).items() if name not in _OF_PLACE}
        if isinstance(event, FindingSeen):
            found |= self._content(event)
        span.add_event(f"callfuse.{event.name}", found, at)

    def _content(self, event: FindingSeen) -> Attributes:
        """Return the arguments and the last result of a call, as far as the settings allow."""
        if not self._longest:
            return {}
        said = {fields.ARGUMENTS: event.verdict.call.text, fields.RESULT: event.verdict.finding.previous}
        return {
            name: plain(star_secrets(value, self._longest), self._longest)
            for name, value in said.items()
            if value is not None
        }


def _end(span: trace.Span, event: ExchangeEnded, at: int) -> None:
    """End a span at a time (nanoseconds since the epoch), with the outcome of its exchange."""
    of_place = {*_OF_PLACE, fields.SECONDS}
    span.set_attributes({name: value for name, value in fields_of(event).items() if name not in of_place})
    if event.ending in ("error", "broke off"):
        span.set_status(Status(StatusCode.ERROR, event.ending))
    span.end(at)


class _Gauges:
    """The gauges of a process at one provider. They are read on export, and hold only weak references to guards."""

    def __init__(self, meter: Meter) -> None:
        self._guards: tuple[ref[Watched], ...] = ()
        self._values: dict[str, float] = {}
        for name, (text, unit, of_processes) in GAUGES.items():
            is_sum = of_processes == "sum"
            create = meter.create_observable_up_down_counter if is_sum else meter.create_observable_gauge
            create(NAME + name, [partial(self._observe, name)], unit, text)

    def add(self, guard: Watched) -> None:
        """Include a middleware from now on."""
        self._guards = (*[one for one in self._guards if one() is not None], ref(guard))

    def set(self, name: str, value: float) -> None:
        """Set a gauge whose value comes from events."""
        self._values[name] = value

    def _observe(self, name: str, _: CallbackOptions) -> Iterator[Observation]:
        guards = [guard for one in self._guards if (guard := one()) is not None]
        if name in self._values:
            yield Observation(self._values[name])
        elif guards and name in FIGURES:
            yield Observation(sum(map(FIGURES[name], guards)))


@lru_cache(8)
def _gauges(provider: MeterProvider | None) -> _Gauges:
    """Return the gauges of a provider. They exist once, because a provider ignores the callbacks of a second gauge with
    the same name."""
    return _Gauges(_meter(provider))


def _meter(provider: MeterProvider | None) -> Meter:
    return metrics.get_meter(SCOPE, version_of_callfuse(), provider)


_PROVIDERS: Final[Mapping[str, str]] = {one.name: one.backend for one in DIALECTS}
"""The vendor of each dialect, whose attribute the conventions require."""


def _attributes(values: Mapping[Label, str]) -> dict[str, str]:
    return {label.attribute: value for label, value in values.items()}


class _Instruments:
    """The metrics of a provider. They exist once for each provider."""

    def __init__(self, meter: Meter, gauges: _Gauges) -> None:
        self._gauges = gauges
        self.counters = {name: meter.create_counter(NAME + name, one.unit, one.text) for name, one in COUNTERS.items()}
        self.histograms = {
            name: meter.create_histogram(
                one.convention or NAME + name, "s", one.text, explicit_bucket_boundaries_advisory=one.bounds
            )
            for name, one in HISTOGRAMS.items()
        }

    def adding(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that adds to a series of a counter."""
        return partial(self.counters[name].add, attributes=_attributes(values))

    def timing(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that records a time, in seconds, in a series of a histogram."""
        attributes = _attributes(values)
        if HISTOGRAMS[name].convention:
            dialect = attributes[fields.DIALECT]
            attributes[fields.OPERATION] = fields.GENERATE if dialect == "gemini" else fields.CHAT
            attributes[fields.PROVIDER] = _PROVIDERS.get(dialect, labels.OTHER)
        return partial(self.histograms[name].record, attributes=attributes)

    def setting(self, name: str) -> Change:
        """Return a function that sets a gauge."""
        return partial(self._gauges.set, name)


class OtelMetrics(MetricSink):
    """A sink that counts events over OpenTelemetry: a Prometheus exporter turns `callfuse.exchanges` into
    `callfuse_exchanges_total`. Attributes have values from closed sets (`observe/labels.py`), never texts of users.

    `provider`: makes the meter; None for the global provider, which may be set later.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._gauges = _gauges(provider)
        super().__init__(_Instruments(_meter(provider), self._gauges))

    def watch(self, guard: Watched) -> None:
        """Take the events and figures of a middleware from now on."""
        self._gauges.add(guard)
        guard.bus.add(self)

"""The metrics of callfuse for every exporter: names, labels, and what each event adds.

`observe/prometheus.py` and `observe/otel.py` implement them with the instruments of their libraries. The values of
labels are from closed sets (`observe/labels.py`); any other value becomes `other`.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, Protocol

from callfuse.observe import events, fields, labels
from callfuse.observe.bus import Bus
from callfuse.observe.counted import TABLE, Series
from callfuse.observe.events import Event, FindingSeen
from callfuse.observe.saved import Saved, amounts_of

Change = Callable[[float], None]
"""Adds to a counter's series, records a time, or sets a gauge."""


class Label(NamedTuple):
    """A label: its name for Prometheus, its attribute for OpenTelemetry, and the values that it may have. `values`:
    None if the settings define them."""

    name: str
    attribute: str
    values: Collection[str] | None

    def bound(self, value: str) -> str:
        """Return the value if it is allowed, else `other`."""
        return value if self.values is None else labels.one_of(self.values, value)


class Counted(NamedTuple):
    """A counter: its description, its OpenTelemetry unit, and its labels."""

    text: str
    unit: str
    labels: tuple[Label, ...] = ()


class Timed(NamedTuple):
    """A histogram of seconds: its description, the upper bounds of its buckets, and its labels. `convention`: its name
    among OpenTelemetry's GenAI conventions, if they have one."""

    text: str
    bounds: tuple[float, ...]
    labels: tuple[Label, ...] = ()
    convention: str = ""


class Shown(NamedTuple):
    """A gauge: its description, its OpenTelemetry unit, and how the values of several processes are combined."""

    text: str
    unit: str
    of_processes: Literal["sum", "min"]


_DIALECT: Final = Label("dialect", fields.DIALECT, labels.DIALECTS)
_ROUTE: Final = Label("route", fields.ROUTE, None)
_ACTION: Final = Label("action", fields.ACTION, labels.ACTIONS)

COUNTERS: Final[Mapping[str, Counted]] = {
    "exchanges": Counted(
        "Finished POSTs to guarded paths, by what callfuse did (guarded, watched, answered, passed), or by "
        "how they failed (upstream_error, broke_off, client_gone, error).",
        "{exchange}",
        (_DIALECT, Label("outcome", fields.OUTCOME, labels.OUTCOMES)),
    ),
    "upstream_responses": Counted(
        "Answers of the app, by HTTP status; answers to requests that ask again are not counted.",
        "{response}",
        (_DIALECT, _ROUTE, Label("status", fields.STATUS, labels.STATUSES)),
    ),
    "tool_calls": Counted(
        "Complete calls of models, by action (none: no finding).",
        "{call}",
        (_DIALECT, _ACTION),
    ),
    "findings": Counted(
        "Findings, by kind, limit (soft, hard) and action; if a rung fails and the next one follows, both count.",
        "{verdict}",
        (Label("kind", fields.KIND, labels.KINDS), Label("verdict", fields.VERDICT, labels.VERDICTS), _ACTION),
    ),
    "loops": Counted(
        "Loops: runs of rounds with a finding, each counted once, by the kind of its first finding and by whether "
        "callfuse acted on it (guarded) or only observed it (holdout).",
        "{loop}",
        (Label("kind", fields.KIND, labels.KINDS), Label("arm", fields.ARM, labels.ARMS)),
    ),
    "mitigations": Counted(
        "What models did within two rounds after a finding (changed, same, ended, user), by whether callfuse "
        "acted on it (guarded) or only observed it (holdout).",
        "{finding}",
        (Label("result", fields.MENDED, labels.RESULTS), Label("arm", fields.ARM, labels.ARMS)),
    ),
    "saved_calls": Counted(
        "ESTIMATE of the saved calls: the withheld calls, or the first one of each loop and the calls that "
        "follow it on average in recorded runs, whichever is more.",
        "{call}",
    ),
    "saved_tokens": Counted(
        "ESTIMATE of the saved tokens: those of the requests that were not made, with their answers.", "{token}"
    ),
    "saved_cost": Counted(
        "ESTIMATE of what these tokens would have cost by the prices of the settings, in their currency.", "{unit}"
    ),
    "tokens": Counted(
        "Tokens of answers, by type (input, cached, output; cached ones are input, too) and by source (vendor, "
        "estimate); only where tokens are counted.",
        "{token}",
        (
            _DIALECT,
            Label("type", fields.USAGE_TYPE, labels.TOKEN_TYPES),
            Label("source", fields.USAGE_SOURCE, labels.TOKEN_SOURCES),
        ),
    ),
    "cost": Counted("What these tokens cost by the prices of the settings, in their currency.", "{unit}"),
    "blown": Counted("Requests that callfuse answered by itself because the fuse had blown.", "{request}"),
    "not_guarded": Counted(
        "Requests and answers that passed unguarded, by cause.",
        "{exchange}",
        (Label("cause", fields.CAUSE, labels.NOT_GUARDED),),
    ),
    "not_watched": Counted(
        "Healthy answers that were not read, by cause.",
        "{exchange}",
        (Label("cause", fields.CAUSE, labels.NOT_WATCHED),),
    ),
    "fail_open": Counted(
        "Calls that passed unjudged, by cause.", "{failure}", (Label("cause", fields.CAUSE, labels.FAIL_OPEN),)
    ),
    "callback_errors": Counted("Failures of on_loop.", "{error}"),
    "store_errors": Counted(
        "Failures of the shared store, by operation.",
        "{error}",
        (Label("op", fields.STORE_OPERATION, labels.OPERATIONS),),
    ),
    "workers_replaced": Counted("Workers of `callfuse serve` that have started in place of a dead one.", "{process}"),
    "ledger_dropped": Counted(
        "Lanes and sessions dropped early, by limit.",
        "{lane}",
        (Label("limit", fields.LIMIT, labels.DROPS),),
    ),
    "feedback": Counted(
        "Ratings of findings by people, by kind.", "{report}", (Label("kind", fields.FEEDBACK, labels.FEEDBACK),)
    ),
    "false_positives": Counted("Findings that people rated as false positives.", "{finding}"),
}
"""By name: `callfuse_exchanges_total` for Prometheus, `callfuse.exchanges` for OpenTelemetry."""

_CONVENTION: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The bounds that the conventions recommend for a request; answers to agents may take longer."""
_FIRST_TOKEN: Final = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The same for a first token, from 10 ms on."""

HISTOGRAMS: Final[Mapping[str, Timed]] = {
    "exchange": Timed(
        "How long exchanges took, from the request to the end of the answer.",
        (*_CONVENTION, 163.84, 327.68, 655.36),
        (_DIALECT, _ROUTE),
        "gen_ai.server.request.duration",
    ),
    "first_byte": Timed(
        "How long the first bytes of successful answers took, from the request to when the app sent them.",
        (*_FIRST_TOKEN, 30.0, 60.0, 300.0),
        (_DIALECT, _ROUTE),
        "gen_ai.server.time_to_first_token",
    ),
    "added": Timed(
        "Time that callfuse adds to an exchange: before the app is called, in holds without the model being asked "
        "again, and in asking again.",
        (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0),
        (_DIALECT, _ROUTE, Label("part", fields.PART, labels.PARTS)),
    ),
    "hold": Timed(
        "How long bytes of answers were held.",
        (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
    ),
    "decide": Timed(
        "How long judging the calls of a guarded answer took, including on_loop.",
        (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0),
    ),
}
"""By name: `callfuse_hold_seconds` for Prometheus, `callfuse.hold` for OpenTelemetry."""

STORE_UP: Final = "store_up"
GAUGES: Final[Mapping[str, Shown]] = {
    "held": Shown(
        "Bytes that exchanges keep: requests, held and buffered answers (limit: max_total_bytes).", "By", "sum"
    ),
    "sessions": Shown(
        "Lanes in memory (limit: max_sessions); a lane that two workers know counts twice.", "{lane}", "sum"
    ),
    "in_flight": Shown("Exchanges that are served at present.", "{exchange}", "sum"),
    STORE_UP: Shown("1 while the store is used, 0 while it is down and not used.", "", "min"),
}
"""By name: `callfuse_held_bytes` for Prometheus, `callfuse.held` for OpenTelemetry."""

_COUNTED: Final = {kind: (row.key, row.series) for kind, row in TABLE.items() if row.series is not None}


class Watched(Protocol):
    """The object that metrics describe: a `CallFuseMiddleware`."""

    @property
    def bus(self) -> Bus:
        """The bus of its events."""
        ...

    @property
    def held_bytes(self) -> int:
        """The bytes that its exchanges hold at present."""
        ...

    @property
    def lanes(self) -> int:
        """The number of lanes that it keeps."""
        ...

    @property
    def in_flight(self) -> int:
        """The number of exchanges in progress."""
        ...


FIGURES: Final[Mapping[str, Callable[[Watched], int]]] = {
    "held": lambda guard: guard.held_bytes,
    "sessions": lambda guard: guard.lanes,
    "in_flight": lambda guard: guard.in_flight,
}
"""The gauges that no event reports, each with a function that reads it."""


class Instruments(Protocol):
    """The metrics of this file, as a library makes them."""

    def adding(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that adds to a series of a counter."""
        ...

    def timing(self, name: str, values: Mapping[Label, str]) -> Change:
        """Return a function that records a time, in seconds, in a series of a histogram."""
        ...

    def setting(self, name: str) -> Change:
        """Return a function that sets a gauge."""
        ...


Add = Callable[[Series, float], None]
"""Adds to a series of a counter, or records a time in a series of a histogram."""


def _take_exchange(add: Add, event: events.ExchangeEnded) -> None:
    """Measure an exchange of a model, and what callfuse added to it."""
    dialect, route = event.where.dialect, event.route
    if dialect == labels.MCP:
        return
    add(("exchange", dialect, route), event.seconds)
    if event.mode != "answered":
        if event.status:
            add(("upstream_responses", dialect, route, str(event.status)), 1)
        if event.first_byte_seconds and event.status < events.FAILED:
            add(("first_byte", dialect, route), event.first_byte_seconds)
        if event.before_seconds:
            add(("added", dialect, route, "before"), event.before_seconds)
    if held := event.held_seconds - event.asked_seconds:
        add(("added", dialect, route, "held"), held)
    if event.asked_seconds:
        add(("added", dialect, route, "asked"), event.asked_seconds)


def _take_tokens(add: Add, event: events.TokensSpent) -> None:
    """Count what an answer has cost."""
    source = "estimate" if event.estimated_tokens else "vendor"
    for kind in labels.TOKEN_TYPES:
        add(("tokens", event.where.dialect, kind, source), getattr(event, f"{kind}_tokens"))
    add(("cost",), event.cost)


def _take_feedback(add: Add, event: events.FeedbackGiven) -> None:
    """Count a false alarm."""
    if event.kind == labels.FALSE_POSITIVE:
        add(("false_positives",), 1)


_MEASURED: Final[Mapping[type[Event], Callable[[Add, Any], None]]] = {
    events.ExchangeEnded: _take_exchange,
    events.HoldEnded: lambda add, event: add(("hold",), event.seconds),
    events.Decided: lambda add, event: add(("decide",), event.seconds),
    events.TokensSpent: _take_tokens,
    events.FeedbackGiven: _take_feedback,
}
"""What an event changes in addition to the counter of its kind."""


class MetricSink:
    """A sink of events (`observe/bus.py`) that counts and measures them. May be used from any thread."""

    kinds: Final = frozenset((*_COUNTED, *_MEASURED, events.StoreDown, events.StoreUp))

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._series: dict[Series, Change] = {}
        self._set_store = instruments.setting(STORE_UP)
        self._set_store(1)
        self._down = set[str]()
        self._saved = Saved()
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Count or measure an event."""
        kind = type(event)
        with self._lock:
            if kind in _COUNTED:
                key_of, series_of = _COUNTED[kind]
                self._add(series_of(key_of(event)))
            if kind in _MEASURED:
                _MEASURED[kind](self._add, event)
            elif isinstance(event, FindingSeen):
                for name, amount in amounts_of(event, self._saved.by(event)).items():
                    self._add((name,), amount)
            elif isinstance(event, events.StoreDown | events.StoreUp):
                (self._down.add if isinstance(event, events.StoreDown) else self._down.discard)(event.store)
                self._set_store(not self._down)

    def _add(self, series: Series, amount: float = 1) -> None:
        """Count or measure. A value that its label does not allow becomes `other`."""
        change = self._series.get(series)
        if change is None:
            name, *given = series
            is_timed = name in HISTOGRAMS
            known = HISTOGRAMS[name].labels if is_timed else COUNTERS[name].labels
            values = {label: label.bound(value) for label, value in zip(known, given, strict=True)}
            change = (self._instruments.timing if is_timed else self._instruments.adding)(name, values)
            if list(values.values()) == given:  # foreign values must not fill the memory
                self._series[series] = change
        change(amount)


def version_of_callfuse() -> str:
    """Return the installed version, for build info."""
    with suppress(PackageNotFoundError):
        return version("callfuse")
    return "unknown"

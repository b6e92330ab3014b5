"""Over OpenTelemetry: a span for each exchange with a finding, with the right parent, and counts of closed sets."""

import asyncio
import gc
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.asgi.types import Receive, Scope, Send
from callfuse.config.serve import ServeSettings
from callfuse.inprocess import LoopDetector
from callfuse.model import ToolCall
from callfuse.observe import telemetry
from callfuse.observe.bus import Bus
from callfuse.observe.events import (
    NOWHERE,
    Decided,
    Event,
    FailedOpen,
    HoldEnded,
    NotGuarded,
    StoreDown,
    StoreUp,
    StoreWithoutLoop,
)
from callfuse.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, Label
from callfuse.observe.otel import OtelMetrics, OtelTraces
from callfuse.observe.prometheus import PREFIX, Metrics
from callfuse.observe.telemetry import OtelSettings, open_metrics, open_traces
from callfuse.proxy.app import ReverseProxy
from tests.observe.test_prometheus import EACH, ended, samples
from tests.project.sources import document, quoted, rows
from tests.support.asgi import JSON_REQUEST, App, Request, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, reply, streamed_and_whole
from tests.support.model import History
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import Reply, play
from tests.support.serving import serve

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
TALK = saying("Good day.", tag="talk")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01".encode()
STATE = b"vendor=1"
TRACED = (*JSON_REQUEST, (b"traceparent", TRACEPARENT), (b"tracestate", STATE), (b"baggage", b"who=me;x=1"))


@pytest.fixture(scope="session")
def memory() -> InMemorySpanExporter:
    """Where the spans of the process go. There is one provider a process, as in a host."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    """The spans of one test."""
    memory.clear()
    yield memory
    memory.clear()


def guard(app: App, ladder: str = "block", *, otel: object = True, **more: Any) -> CallFuseMiddleware:
    """The app behind a guard that makes spans."""
    return CallFuseMiddleware(app, {**settings(ladder, **more), "otel": otel})


def traced(kit: DialectKit, history: History, *, stream: bool = True) -> Request:
    """A request within a trace."""
    return ask(kit, history, stream=stream, headers=TRACED)


def ours(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """The spans that callfuse has made."""
    found = spans.get_finished_spans()
    return [one for one in found if one.instrumentation_scope and one.instrumentation_scope.name == "callfuse"]


def only(spans: InMemorySpanExporter) -> ReadableSpan:
    """The one span that callfuse has made."""
    (span,) = ours(spans)
    return span


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Trace, span and parent of a span."""
    assert span.context is not None
    parent = f"{span.parent.span_id:016x}" if span.parent else ""
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent


def names(span: ReadableSpan) -> list[str]:
    """The events of a span, in order."""
    return [event.name for event in span.events]


@every_dialect
@streamed_and_whole
async def test_a_block(spans: InMemorySpanExporter, kit: DialectKit, stream: bool) -> None:
    """A child of the request's parent, with the call, what was found and what was done."""
    app = play(framewise(kit, again()) if stream else reply(kit, again(), stream=False))
    before = time.time_ns()
    await drive(guard(app), traced(kit, spin(), stream=stream))
    span = only(spans)
    assert ids(span)[::2] == (TRACE, PARENT)
    assert (span.name, span.kind) == ("execute_tool search", SpanKind.INTERNAL)
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time is not None
    assert span.end_time is not None
    assert before <= span.start_time < span.end_time <= time.time_ns()
    assert all(span.start_time <= event.timestamp <= span.end_time + 1_000_000 for event in span.events)
    said = dict(span.attributes or {})
    assert said["gen_ai.operation.name"] == "execute_tool"
    assert (said["gen_ai.tool.name"], said["gen_ai.tool.type"]) == ("search", "function")
    assert said["callfuse.finding.kind"] == "repeat"
    assert (said["callfuse.action"], said["callfuse.mode"], said["callfuse.ending"]) == ("block", "guarded", "complete")
    assert said["http.response.status_code"] == 200
    assert said["gen_ai.provider.name"]
    assert said["gen_ai.conversation.id"]
    expected = {"callfuse.finding", "callfuse.action"} | ({"callfuse.hold"} if stream else set())
    assert set(names(span)) == expected
    (finding,) = [event for event in span.events if event.name == "callfuse.finding"]
    assert (finding.attributes or {})["callfuse.finding.id"] == said["callfuse.finding.id"]
    assert [heard.header(b"traceparent") for heard in app.heard] == [TRACEPARENT]


@streamed_and_whole
async def test_no_finding_no_span(spans: InMemorySpanExporter, stream: bool) -> None:
    """Be it watched, held and let go, or without tools."""
    for history, answer in ((spin(1), elsewhere()), (spin(), elsewhere()), (History(()), TALK)):
        app = play(framewise(CHAT, answer) if stream else reply(CHAT, answer, stream=False))
        await drive(guard(app), traced(CHAT, history, stream=stream))
        assert app.heard[0].header(b"traceparent") == TRACEPARENT
    assert ours(spans) == []


@every_dialect
@streamed_and_whole
async def test_asking_again_is_a_child_of_the_span(spans: InMemorySpanExporter, kit: DialectKit, stream: bool) -> None:
    """By the headers of the second request, and for what the app itself traces; the first goes on as it came."""
    app = play(*(framewise(kit, one) if stream else reply(kit, one, stream=False) for one in (again(), TALK)))
    client = trace.get_tracer("client")

    async def instrumented(scope: Scope, receive: Receive, send: Send) -> None:
        with client.start_as_current_span("POST"):
            await app(scope, receive, send)

    await drive(guard(instrumented, "steer"), traced(kit, spin(), stream=stream))
    span = only(spans)
    first, second = app.heard
    assert ids(span)[::2] == (TRACE, PARENT)
    assert [heard.header(b"baggage") for heard in app.heard] == [b"who=me;x=1"] * 2
    assert (first.header(b"traceparent"), first.header(b"tracestate")) == (TRACEPARENT, STATE)
    assert second.header(b"traceparent") == f"00-{TRACE}-{ids(span)[1]}-01".encode()
    assert [name for name, _ in second.headers].count(b"traceparent") == 1
    assert second.header(b"tracestate") == STATE
    posts = [ids(one)[2] for one in spans.get_finished_spans() if one.name == "POST"]
    assert posts == ["", ids(span)[1]]
    assert [name for name in names(span) if name != "callfuse.hold"] == [
        "callfuse.finding",
        "callfuse.action",
        "callfuse.asked",
        "callfuse.mended",
    ]
    assert (span.attributes or {})["callfuse.action"] == "steer"


async def test_a_hosts_span_is_the_parent(spans: InMemorySpanExporter) -> None:
    """It stands nearer than what the request names. A `tracestate` of another trace does not go on."""
    app = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    with trace.get_tracer("host").start_as_current_span("host") as host:
        await drive(guard(app, "steer"), traced(CHAT, spin()))
    there = host.get_span_context()
    span = only(spans)
    assert ids(span)[::2] == (f"{there.trace_id:032x}", f"{there.span_id:016x}")
    parent = app.heard[1].header(b"traceparent") or b""
    assert parent.startswith(f"00-{there.trace_id:032x}-{ids(span)[1]}-".encode())
    assert app.heard[1].header(b"tracestate") is None


async def test_without_a_parent_it_is_a_root(spans: InMemorySpanExporter) -> None:
    """And what the headers say is read as far as it is right."""
    for more in ((), ((b"traceparent", b"00-zebra"),), ((b"traceparent", b"\xff\xfe"),)):
        spans.clear()
        request = ask(CHAT, spin(), stream=True, headers=(*JSON_REQUEST, *more))
        exchange = await drive(guard(play(framewise(CHAT, again()))), request)
        assert exchange.status == 200
        assert only(spans).parent is None


async def test_exchanges_at_a_time_have_their_own(spans: InMemorySpanExporter) -> None:
    """Though all that events say of their place is the same."""
    seen, parents = asyncio.Event(), [f"{number:016x}" for number in range(1, 9)]
    frames = framewise(CHAT, again()).chunks
    entered = 0

    async def gate(at: int) -> None:
        nonlocal entered
        if at == len(frames):
            entered += 1
            if entered == len(parents):
                seen.set()
            await seen.wait()

    guarded = guard(play(Reply(frames, gate=gate)), "observe")

    async def one(parent: str) -> None:
        header = (b"traceparent", f"00-{TRACE}-{parent}-01".encode())
        await drive(guarded, ask(CHAT, spin(), stream=True, headers=(*JSON_REQUEST, header)))

    await asyncio.gather(*map(one, parents))
    assert sorted(ids(span)[2] for span in ours(spans)) == parents
    assert all(names(span).count("callfuse.finding") == 1 for span in ours(spans))


async def test_one_guard_before_another(spans: InMemorySpanExporter) -> None:
    """Each has its span, and what one does is not told by the other."""
    inner = guard(play(framewise(CHAT, again()), framewise(CHAT, TALK)), "observe")
    await drive(guard(inner, "block"), traced(CHAT, spin()))
    found = {(span.attributes or {})["callfuse.action"]: span for span in ours(spans)}
    assert sorted(map(str, found)) == ["block", "observe"]
    assert names(found["observe"]) == ["callfuse.finding"]
    assert names(found["block"]).count("callfuse.finding") == 1


async def test_an_app_that_asks_itself(spans: InMemorySpanExporter) -> None:
    """An exchange within one: each finding is on the span of its own."""
    vendor = play(framewise(CHAT, again()))
    outer = traced(CHAT, spin())
    within = ask(CHAT, spin(), stream=True, headers=(*JSON_REQUEST, (b"x-session-id", b"within")))
    depth = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            await drive(guarded, within)
        await vendor(scope, receive, send)

    guarded = guard(app, "observe")
    await drive(guarded, outer)
    assert [names(span) for span in ours(spans)] == [["callfuse.finding"]] * 2
    assert len({(span.attributes or {})["gen_ai.conversation.id"] for span in ours(spans)}) == 2


async def test_a_client_that_leaves(spans: InMemorySpanExporter) -> None:
    """Its span ends all the same."""
    leave, app = asyncio.Event(), play()

    async def gate(at: int) -> None:
        if at == 1:
            leave.set()
            assert app.left
            await app.left.wait()

    talk = replace(framewise(CHAT, TALK), gate=gate)
    app.replies, app.left = (framewise(CHAT, again()), talk), asyncio.Event()
    await drive(guard(app, "steer"), traced(CHAT, spin()), leave=leave)
    span = only(spans)
    assert (span.attributes or {})["callfuse.ending"] == "client gone"
    assert span.status.status_code is StatusCode.UNSET


async def test_an_app_that_raises(spans: InMemorySpanExporter) -> None:
    """After the finding: the span is one of an error."""
    talk = framewise(CHAT, TALK)
    app = play(framewise(CHAT, again()), replace(talk, chunks=talk.chunks[:2], raises=OSError("gone")))
    exchange = await drive(guard(app, "steer"), traced(CHAT, spin()))
    assert isinstance(exchange.raised, OSError)
    span = only(spans)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "error")


async def test_a_rung_that_fails(spans: InMemorySpanExporter) -> None:
    """Both rungs are told, and why the first has failed."""
    app = play(framewise(CHAT, again()), Reply((b"{}",), 500))
    await drive(guard(app, "chance_then_block"), traced(CHAT, spin()))
    span = only(spans)
    told = [name.removeprefix("callfuse.") for name in names(span) if name != "callfuse.hold"]
    assert told == ["finding", "action", "asked", "ask_failed", "finding", "action"]
    assert (span.attributes or {})["callfuse.action"] == "block"


async def test_a_blown_fuse(spans: InMemorySpanExporter) -> None:
    """callfuse's own answer is an action, of no call."""
    guarded = guard(play(framewise(CHAT, again())), blow_after=1)
    for _ in range(2):
        await drive(guarded, traced(CHAT, spin()))
    span = ours(spans)[-1]
    assert (span.name, names(span)) == ("callfuse blown", ["callfuse.blown"])
    said = dict(span.attributes or {})
    assert (said["callfuse.action"], said["callfuse.mode"]) == ("blown", "answered")
    assert "gen_ai.operation.name" not in said


async def test_what_is_not_sampled_goes_on_unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request says so to the upstream."""
    provider = TracerProvider(sampler=ALWAYS_OFF)
    app = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    monkeypatch.setattr("callfuse.observe.otel.OtelTraces.__init__", _with(provider))
    await drive(guard(app, "steer"), traced(CHAT, spin()))
    parent = app.heard[1].header(b"traceparent")
    assert parent is not None
    assert (parent[:36], parent[-2:]) == (f"00-{TRACE}-".encode(), b"00")


def _with(provider: TracerProvider) -> Any:
    original = OtelTraces.__init__
    return lambda self, content="none", _=None: original(self, content, provider)


@pytest.mark.parametrize("content", ["none", "short", "full"])
async def test_content(spans: InMemorySpanExporter, content: str) -> None:
    """Arguments and results stand there only where a setting says so."""
    app = play(framewise(CHAT, again()))
    await drive(guard(app, otel={"enabled": True, "content": content}), traced(CHAT, spin()))
    span = only(spans)
    for said in (span.attributes or {}, *(event.attributes or {} for event in span.events)):
        assert "zebra" not in str(said) or content != "none"
    asked = (span.attributes or {}).get("gen_ai.tool.call.arguments")
    result = (span.attributes or {}).get("gen_ai.tool.call.result")
    assert (asked is None, result is None) == (content == "none",) * 2


def test_content_is_cut_and_starred(spans: InMemorySpanExporter) -> None:
    """Of a finding's call, by the setting."""
    from callfuse.observe.events import ExchangeEnded, FindingSeen
    from tests.observe.test_events import WHERE, verdict

    long = '{"api_key": "sk-12345678abcdefgh", "text": "%s"}' % ("x" * 100_000)
    for content, most in (("short", 200), ("full", 16_384)):
        spans.clear()
        sink = OtelTraces(content)
        sink.begin({})
        sink.take(FindingSeen(WHERE, verdict(ToolCall("c", "search", long))))
        sink.take(ExchangeEnded(WHERE, "guarded", "complete", "", 200, 1, "block", 1.0, 0.0))
        said = str((only(spans).attributes or {})["gen_ai.tool.call.arguments"])
        assert most - 20 < len(said) <= most
        assert "12345678" not in said
        assert '"api_key": "***"' in said


async def test_off_is_as_if_it_were_not_there(spans: InMemorySpanExporter) -> None:
    """Trace headers pass as they came, on a second request too."""
    app = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    await drive(guard(app, "steer", otel=False), traced(CHAT, spin()))
    assert [heard.header(b"traceparent") for heard in app.heard] == [TRACEPARENT] * 2
    assert [heard.header(b"tracestate") for heard in app.heard] == [STATE] * 2
    assert ours(spans) == []


@pytest.mark.parametrize("method", ["begin", "continue_in", "take"])
async def test_traces_that_fail_harm_nothing(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """An SDK of the host may raise whatever it likes."""

    def fail(*_: object) -> None:
        raise OSError("zebra")

    monkeypatch.setattr(OtelTraces, method, fail)
    app = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    exchange = await drive(guard(app, "steer"), traced(CHAT, spin()))
    assert (exchange.raised, exchange.complete, len(app.heard)) == (None, True, 2)
    assert b"Good day." in exchange.body
    assert app.heard[1].header(b"traceparent") is not None


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.trace"])
def test_the_api_must_be_there(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """An error at the start says what to install; while it is off nobody asks for it."""
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(ConfigError, match=r"otel\.enabled = true: needs the package opentelemetry-api: pip install"):
        guard(play())
    assert open_traces(OtelSettings(), Bus()) is None


async def test_served(spans: InMemorySpanExporter) -> None:
    """Through the reverse proxy the upstream gets the parents: as they came, and the span for the second request."""
    vendor = play(framewise(CHAT, again()), framewise(CHAT, TALK))
    async with serve(vendor) as upstream:
        proxy = ReverseProxy(ServeSettings(upstream=upstream))
        fuse = CallFuseMiddleware(proxy, {**settings("steer"), "otel": {"enabled": True}}, via=True)
        exchange = await drive(fuse, traced(CHAT, spin()))
        await proxy.close()
    assert exchange.complete
    span = only(spans)
    assert ids(span)[::2] == (TRACE, PARENT)
    assert (span.attributes or {})["callfuse.ending"] == "complete"
    expected = [TRACEPARENT, f"00-{TRACE}-{ids(span)[1]}-01".encode()]
    assert [heard.header(b"traceparent") for heard in vendor.heard] == expected
    assert [heard.header(b"tracestate") for heard in vendor.heard] == [STATE] * 2


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[Mapping[str, Any], Any]]]:
    """Attributes and value of each series, by the name of its metric."""
    found: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    found.setdefault(metric.name, []).append(
                        (dict(point.attributes or {}), getattr(point, "count", None) if value is None else value)
                    )
    return found


def counting() -> tuple[InMemoryMetricReader, OtelMetrics]:
    """A sink whose counts can be read."""
    reader = InMemoryMetricReader()
    return reader, OtelMetrics(MeterProvider([reader]))


async def test_metrics() -> None:
    """Counts of exchanges, calls, findings, and how long holds take."""
    reader, sink = counting()
    guarded = CallFuseMiddleware(play(framewise(CHAT, again())), settings("block", blow_after=1))
    guarded.bus.add(sink)
    for _ in range(2):
        await drive(guarded, ask(CHAT, spin(), stream=True))
    found = points(reader)
    assert found["callfuse.exchanges"] == [
        ({"callfuse.dialect": "openai-chat", "callfuse.outcome": "guarded"}, 1),
        ({"callfuse.dialect": "openai-chat", "callfuse.outcome": "answered"}, 1),
    ]
    assert found["callfuse.tool_calls"] == [({"callfuse.dialect": "openai-chat", "callfuse.action": "block"}, 1)]
    assert found["callfuse.findings"] == [
        ({"callfuse.finding.kind": "repeat", "callfuse.verdict": "soft", "callfuse.action": "block"}, 1)
    ]
    assert found["callfuse.hold"] == [({}, 1)]
    assert found["callfuse.blown"] == [({}, 1)]


def test_metrics_in_process() -> None:
    """A detector counts over its own bus."""
    reader, sink = counting()
    detector = LoopDetector({"tool_call_loop": {"mode": "block"}}, bus=Bus(sink))
    for number in range(3):
        if detector.check(ToolCall(f"c{number}", "search", '{"q": "zebra"}')) is None:
            detector.record("nothing was found")
    found = points(reader)
    assert [value for _, value in found["callfuse.findings"]] == [1]
    assert sum(value for _, value in found["callfuse.tool_calls"]) == 3


CONVENTIONS = {one.convention: name for name, one in HISTOGRAMS.items() if one.convention}
"""The histograms that the conventions name."""


def labels_of(name: str) -> tuple[Label, ...]:
    """The labels of a metric."""
    if name in COUNTERS:
        return COUNTERS[name].labels
    return HISTOGRAMS[name].labels if name in HISTOGRAMS else ()


def spelled(name: str) -> str:
    """The name of an instrument as an exporter to Prometheus spells it; a histogram's count stands for it."""
    if name in COUNTERS:
        return f"{PREFIX}{name}_total"
    unit = {"By": "_bytes"}.get(GAUGES[name].unit, "") if name in GAUGES else "_seconds_count"
    return f"{PREFIX}{name}{unit}"


def as_prometheus(reader: InMemoryMetricReader) -> dict[str, float]:
    """The series, as Prometheus names them and their labels."""
    found = {}
    for metric, series in points(reader).items():
        name = CONVENTIONS.get(metric, metric.removeprefix("callfuse."))
        by = {label.attribute: label.name for label in labels_of(name)}
        for attributes, value in series:
            own = {by[one]: value for one, value in attributes.items() if one in by or one.startswith("callfuse.")}
            shown = ",".join(sorted(f"{one}={value}" for one, value in own.items()))
            found[f"{spelled(name)}{{{shown}}}" if shown else spelled(name)] = value
    return found


OF_BOTH: dict[str, Event] = {
    **{name: event for name, (event, _) in EACH.items()},
    "hold": HoldEnded(NOWHERE, 0.4, 100, "released"),
    "decision": Decided(NOWHERE, 0.4),
    "no loop": StoreWithoutLoop("redis://h"),
}


@pytest.mark.parametrize("name", OF_BOTH)
def test_an_event_changes_what_it_changes_for_prometheus(name: str) -> None:
    """The same metrics, labels and values, under the names that an exporter makes of them."""
    reader, sink = counting()
    prometheus = Metrics()
    before = samples(prometheus)
    for one in (sink, prometheus):
        one.take(OF_BOTH[name])
    found = as_prometheus(reader)
    expected = samples(prometheus)
    changed = {name for name, value in expected.items() if value != before.get(name, 0)}
    assert found.items() <= expected.items()
    assert {name for name in changed if not re.search("_(bucket|sum)", name)} <= found.keys()


@pytest.mark.parametrize(
    ("dialect", "operation", "provider"),
    [("openai-chat", "chat", "openai"), ("gemini", "generate_content", "gemini"), ("anthropic", "chat", "anthropic")],
)
def test_what_the_conventions_name_is_named_so(dialect: str, operation: str, provider: str) -> None:
    """With the attributes that they require."""
    reader, sink = counting()
    sink.take(ended(dialect, first_byte_seconds=0.25))
    by = {
        "callfuse.dialect": dialect,
        "callfuse.route": "/",
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider,
    }
    found = points(reader)
    assert found["gen_ai.server.request.duration"] == found["gen_ai.server.time_to_first_token"] == [(by, 1)]


def test_every_event_of_prometheus_is_covered() -> None:
    """Above, and those that set what is so already: nothing is counted by one of both alone."""
    assert {*map(type, OF_BOTH.values()), StoreUp} == Metrics.kinds == OtelMetrics.kinds


def test_every_metric_is_documented() -> None:
    """With its attributes, and none is that does not exist."""
    named = {name: f"callfuse.{name}" for name in (*COUNTERS, *HISTOGRAMS, *GAUGES)}
    named |= {name: one.convention for name, one in HISTOGRAMS.items() if one.convention}
    exported = {shown: {label.attribute for label in labels_of(name)} for name, shown in named.items()}
    known = {attribute for attributes in exported.values() for attribute in attributes}
    table = rows(document("docs/observing.md"), "OpenTelemetry")
    documented = {name: set(quoted(given)) & known for names, given in table for name in quoted(names)}
    assert documented == exported


class Tallied:
    """Something with a bus and figures."""

    def __init__(self, held_bytes: int, lanes: int) -> None:
        self.bus = Bus()
        self.in_flight = 0
        self.held_bytes = held_bytes
        self.lanes = lanes


def test_figures_are_those_of_the_moment() -> None:
    """Of all guards of a provider that are still there, whichever sink watches them; without one there are none."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OtelMetrics(provider)
    assert points(reader) == {"callfuse.store_up": [({}, 1)]}
    one, other = Tallied(100, 1), Tallied(20, 2)
    for guard in (one, other):
        OtelMetrics(provider).watch(guard)
    one.held_bytes = 300
    found = points(reader)
    assert (found["callfuse.held"], found["callfuse.sessions"]) == ([({}, 320)], [({}, 3)])
    other.bus.emit(StoreDown("redis://h", "why"))
    assert points(reader)["callfuse.store_up"] == [({}, 0)]
    other.bus.emit(StoreUp("redis://h"))
    del guard, other
    gc.collect()
    found = points(reader)
    assert (found["callfuse.held"], found["callfuse.store_up"]) == ([({}, 300)], [({}, 1)])


async def test_an_exchange_with_all_on(spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting gives a middleware all metrics, with the version of callfuse beside."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(OtelMetrics.__init__, "__defaults__", (MeterProvider([reader]),))
    guarded = guard(play(framewise(CHAT, again())))
    await drive(guarded, traced(CHAT, spin()))
    found = points(reader)
    assert found["callfuse.saved_calls"] == [({}, 5.8)]
    assert found["callfuse.decide"] == [({}, 1)]
    assert found["callfuse.sessions"] == [({}, 1)]
    assert found["callfuse.held"] == [({}, 0)]
    data = reader.get_metrics_data()
    assert data is not None
    scope = data.resource_metrics[0].scope_metrics[0].scope
    traced_by = only(spans).instrumentation_scope
    assert traced_by is not None
    assert (scope.name, scope.version) == (traced_by.name, traced_by.version) == ("callfuse", version("callfuse"))


async def test_made_up_names_make_no_series() -> None:
    """Tools, models and sessions are no attributes; causes have a bound."""
    reader, sink = counting()
    guarded = CallFuseMiddleware(play(framewise(CHAT, again())), settings("observe"))
    guarded.bus.add(sink)
    for number in range(20):
        name = str(number).encode()
        request = ask(CHAT, spin(), stream=True, headers=(*JSON_REQUEST, (b"x-session-id", name)))
        body = request.body.replace(b"search", b"tool" + name).replace(b'"model":"', b'"model":"' + name)
        await drive(guarded, replace(request, body=body))
    assert {name: len(series) for name, series in points(reader).items()}["callfuse.exchanges"] <= 2
    for number in range(10_000):
        sink.take(NotGuarded(f"cause {number}"))
        sink.take(FailedOpen(f"Error{number} while testing: zebra"))
    series = points(reader)
    assert series["callfuse.not_guarded"] == [({"callfuse.cause": "other"}, 10_000)]
    assert series["callfuse.fail_open"] == [({"callfuse.cause": "other"}, 10_000)]


def test_the_settings_switch_both_on() -> None:
    """Traces and metrics; `content: off` is none, as YAML reads it."""
    bus, guarded = Bus(), Tallied(0, 0)
    assert open_traces(OtelSettings(enabled=True), bus) is not None
    assert bus.wants(FailedOpen)
    open_metrics(OtelSettings(enabled=True), guarded)
    assert guarded.bus.wants(NotGuarded)
    assert OtelSettings.model_validate({"content": False}).content == "none"
    assert OtelSettings.model_validate({"content": "Full"}).content == "full"
    none = Tallied(0, 0)
    assert open_traces(OtelSettings(), none.bus) is None
    open_metrics(OtelSettings(), none)
    assert not none.bus.wants(NotGuarded)

"""Metrics are of events, of few series, and readable by prometheus-client's own parser."""

import ast
import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client import metrics as client_metrics
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from callfuse import CallFuseMiddleware
from callfuse.asgi import body
from callfuse.guard import frames
from callfuse.model import Finding, ToolCall
from callfuse.observe import events, labels
from callfuse.observe.bus import Bus
from callfuse.observe.events import Event, ExchangeEnded, FindingSeen, Where
from callfuse.observe.metrics import COUNTERS, MetricSink
from callfuse.observe.prometheus import PREFIX, Metrics, _InFiles
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from tests.project.sources import document, quoted, rows
from tests.support.asgi import JSON_REQUEST, drive
from tests.support.config import settings
from tests.support.kits import KITS
from tests.support.meeting import ask, framewise
from tests.support.plain import ARGUMENTS, again, saying, spin
from tests.support.scripted import play

parse_open_metrics: Any = open_metrics.text_string_to_metric_families  # it has no types
SOURCE = Path(body.__file__).parents[1]
CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
CALL = ToolCall("call_1", "search", "{}")


def where(dialect: str = "openai-chat", session: str = "s", model: str = "m") -> Where:
    """Where it happens."""
    return Where(session, "x-session-id", "main.f00", model, "openai", dialect)


def finding(kind: str = "repeat", rung: Rung = Rung.BLOCK, *, hard: bool = False, tool: str = "search") -> Verdict:
    """A verdict on a loop."""
    call = ToolCall("call_1", tool, "{}")
    return Verdict(call, Finding(kind, tool, call.signature, 3, 3, 300.0, hard), rung, 1)


def ended(
    dialect: str = "openai-chat", mode: str = "guarded", ending: str = "complete", status: int = 200, **more: Any
) -> ExchangeEnded:
    """An exchange."""
    times = {"seconds": 0.5, "held_seconds": 0.0} | more
    return ExchangeEnded(where(dialect), mode, ending, "", status, 1, "", **times)


PLACE = "{dialect=openai-chat,route=/}"


def timed(dialect: str = "openai-chat", status: int = 0) -> dict[str, float]:
    """What an exchange of half a second changes beside its outcome."""
    by = f"dialect={dialect},route=/"
    found: dict[str, float] = {f"exchange_seconds_count{{{by}}}": 1}
    return found | ({f"upstream_responses_total{{{by},status={status}}}": 1} if status else {})


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample, as it is written, read by prometheus-client's own parser."""
    text = metrics.render()[0].decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            shown = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
            found[f"{one.name}{{{shown}}}" if shown else one.name] = one.value
    return found


def changed(*given: Event) -> dict[str, float]:
    """What these events change."""
    metrics = Metrics()
    before = samples(metrics)
    for event in given:
        metrics.take(event)
    return {name: value for name, value in samples(metrics).items() if before.get(name, 0.0) != value}


EACH: dict[str, tuple[Event, Mapping[str, float]]] = {
    "exchange": (ended(), {"exchanges_total{dialect=openai-chat,outcome=guarded}": 1} | timed(status=200)),
    "one that callfuse answered": (
        ended(mode="answered", first_byte_seconds=1.0, before_seconds=1.0),
        {"exchanges_total{dialect=openai-chat,outcome=answered}": 1} | timed(),
    ),
    "one of an MCP server": (ended("mcp"), {"exchanges_total{dialect=mcp,outcome=guarded}": 1}),
    "one with an odd status": (
        ended(status=299, first_byte_seconds=0.5),
        {"exchanges_total{dialect=openai-chat,outcome=guarded}": 1, f"first_byte_seconds_count{PLACE}": 1}
        | {
            f"exchange_seconds_count{PLACE}": 1,
            "upstream_responses_total{dialect=openai-chat,route=/,status=other}": 1,
        },
    ),
    "one by parts": (
        ended(held_seconds=3.0, asked_seconds=2.5, before_seconds=0.25, first_byte_seconds=0.5, route="/eu"),
        {
            "exchanges_total{dialect=openai-chat,outcome=guarded}": 1,
            "exchange_seconds_count{dialect=openai-chat,route=/eu}": 1,
            "upstream_responses_total{dialect=openai-chat,route=/eu,status=200}": 1,
            "first_byte_seconds_count{dialect=openai-chat,route=/eu}": 1,
            "added_seconds_count{dialect=openai-chat,part=before,route=/eu}": 1,
            "added_seconds_count{dialect=openai-chat,part=held,route=/eu}": 1,
            "added_seconds_count{dialect=openai-chat,part=asked,route=/eu}": 1,
        },
    ),
    "an answer that was paid": (
        events.TokensSpent(where(), 11, 3, 7, 0, 0.25),
        {
            "tokens_total{dialect=openai-chat,source=vendor,type=input}": 11,
            "tokens_total{dialect=openai-chat,source=vendor,type=cached}": 3,
            "tokens_total{dialect=openai-chat,source=vendor,type=output}": 7,
            "cost_total": 0.25,
        },
    ),
    "one that broke off": (
        ended("ollama", ending="broke off"),
        {"exchanges_total{dialect=ollama,outcome=broke_off}": 1} | timed("ollama", 200),
    ),
    "one that the upstream refused": (
        ended(mode="watched", status=500, first_byte_seconds=0.5),
        {"exchanges_total{dialect=openai-chat,outcome=upstream_error}": 1} | timed(status=500),
    ),
    "one that broke off with an error": (
        ended(mode="passed", ending="broke off", status=502),
        {"exchanges_total{dialect=openai-chat,outcome=broke_off}": 1} | timed(status=502),
    ),
    "too many choices": (events.FailedOpen("choices"), {"fail_open_total{cause=choices}": 1}),
    "call": (
        events.CallSeen(where("gemini"), CALL, "none"),
        {"tool_calls_total{action=none,dialect=gemini}": 1},
    ),
    "finding": (
        FindingSeen(where(), finding("cycle", Rung.WARN, hard=True)),
        {"findings_total{action=warn,kind=cycle,verdict=hard}": 1},
    ),
    "withheld": (
        FindingSeen(where(), finding()),
        {"findings_total{action=block,kind=repeat,verdict=soft}": 1, "saved_calls_total": 5.8},
    ),
    "withheld, with a price": (
        FindingSeen(where(), finding(), tokens=100, price=0.01),
        {
            "findings_total{action=block,kind=repeat,verdict=soft}": 1,
            "saved_calls_total": 5.8,
            "saved_tokens_total": 580,
            "saved_cost_total": 0.058,
        },
    ),
    "loop": (
        events.LoopBegan(where(), "id", "cycle", "search"),
        {"loops_total{arm=guarded,kind=cycle}": 1},
    ),
    "loop of the holdout": (
        events.LoopBegan(where(), "id", "repeat", "search", "holdout"),
        {"loops_total{arm=holdout,kind=repeat}": 1},
    ),
    "mended": (
        events.CourseMended(where(), "id", "changed"),
        {"mitigations_total{arm=guarded,result=changed}": 1},
    ),
    "mended by itself": (
        events.CourseMended(where(), "id", "user", "holdout"),
        {"mitigations_total{arm=holdout,result=user}": 1},
    ),
    "blown": (events.FuseBlown(where(), 5), {"blown_total": 1}),
    "not guarded": (events.NotGuarded("websocket"), {"not_guarded_total{cause=websocket}": 1}),
    "not watched": (events.NotWatched("content-type"), {"not_watched_total{cause=content-type}": 1}),
    "a limit": (events.FailedOpen("max_hold_s"), {"fail_open_total{cause=max_hold_s}": 1}),
    "an error": (
        events.FailedOpen("KeyError while keeping: 'x'"),
        {"fail_open_total{cause=error while keeping}": 1},
    ),
    "an error of the guard": (events.FailedOpen("KeyError: 'x'"), {"fail_open_total{cause=error}": 1}),
    "a worker": (events.WorkerReplaced(), {"workers_replaced_total": 1}),
    "callback": (events.CallbackFailed(ValueError("x")), {"callback_errors_total": 1}),
    "store error": (events.StoreFailed("redis://h", "read"), {"store_errors_total{op=read}": 1}),
    "store down": (events.StoreDown("redis://h", "why"), {"store_up": 0}),
    "dropped": (events.LedgerDropped("max_sessions"), {"ledger_dropped_total{limit=max_sessions}": 1}),
    "feedback": (
        events.FeedbackGiven("id", "false_positive"),
        {"feedback_total{kind=false_positive}": 1, "false_positives_total": 1},
    ),
    "too late": (events.FeedbackGiven("id", "too_late"), {"feedback_total{kind=too_late}": 1}),
    "praise": (events.FeedbackGiven("id", "true_positive"), {"feedback_total{kind=true_positive}": 1}),
}


@pytest.mark.parametrize("name", EACH)
def test_each_event_is_counted(name: str) -> None:
    """Under its name and labels, and nothing else changes."""
    event, expected = EACH[name]
    found = {name: value for name, value in changed(event).items() if not re.search("_(bucket|sum)", name)}
    assert found == {PREFIX + name: value for name, value in expected.items()}


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (events.HoldEnded(where(), 0.4, 100, "released"), "hold_seconds"),
        (events.Decided(where(), 0.4), "decide_seconds"),
    ],
)
def test_times_are_measured(event: Event, name: str) -> None:
    """As histograms, in seconds."""
    found = changed(event)
    assert found[f"{PREFIX}{name}_sum"] == 0.4
    assert found[f"{PREFIX}{name}_count"] == found[f"{PREFIX}{name}_bucket{{le=+Inf}}"] == 1


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        (f"exchange_seconds_sum{PLACE}", 4.5),
        (f"first_byte_seconds_sum{PLACE}", 0.5),
        ("added_seconds_sum{dialect=openai-chat,part=before,route=/}", 0.25),
        ("added_seconds_sum{dialect=openai-chat,part=held,route=/}", 1.0),
        ("added_seconds_sum{dialect=openai-chat,part=asked,route=/}", 2.5),
    ],
)
def test_the_time_of_an_exchange_is_measured(name: str, seconds: float) -> None:
    """In all, to the first byte, and what callfuse added: of a hold in which the model is asked again, each part."""
    event = ended(seconds=4.5, held_seconds=3.5, asked_seconds=2.5, before_seconds=0.25, first_byte_seconds=0.5)
    assert changed(event)[PREFIX + name] == seconds


def made_up(number: int) -> Iterator[Event]:
    """Every event that metrics take, each with texts that nobody has foreseen."""
    text = f"made up {number}"
    there = Where(text, text, text, text, text, text)
    call = ToolCall(text, text, "{}")
    yield ExchangeEnded(there, text, text, text, 1000 + number, 1, text, 0.1, 0.0)
    yield ExchangeEnded(there, text, text, text, 1000 + number, 1, text, 0.1, 3.0, 2.0, 1.0, 1.0)
    yield ExchangeEnded(there, text, text, text, 200, 1, text, 0.1, 3.0, 2.0, 1.0, 1.0)
    yield ExchangeEnded(there, text, "complete", text, 1000 + number, 1, text, 0.1, 0.0)
    yield events.CallSeen(there, call, text)
    yield FindingSeen(there, finding(text, tool=text), arm=text)
    yield events.LoopBegan(there, text, text, text, text)
    yield events.CourseMended(there, text, text, text)
    yield events.FuseBlown(there, number)
    yield events.NotGuarded(text, there)
    yield events.NotWatched(text, there)
    yield events.FailedOpen(f"{text}: {text}", text)
    yield events.FailedOpen(f"Error{number} while keeping: {text}", text)
    yield events.FailedOpen(f"Error{number}: {text}", text)
    yield events.CallbackFailed(ValueError(text))
    yield events.StoreFailed(text, text)
    yield events.StoreDown(text, text)
    yield events.StoreUp(text)
    yield events.StoreWithoutLoop(text)
    yield events.LedgerDropped(text)
    yield events.FeedbackGiven(text, text)
    yield events.HoldEnded(there, 1.0, number, text)
    yield events.Decided(there, 1.0)
    yield events.WorkerReplaced()
    yield events.TokensSpent(there, number, 0, 1, 0, 0.5)


@pytest.mark.slow
def test_texts_from_outside_make_no_series() -> None:
    """10,000 tools, models, sessions, errors and causes that are made up leave their number as it is after one, and
    nothing of them is kept."""
    metrics = Metrics()
    kinds = {type(event) for event in made_up(0)}
    assert kinds == metrics.kinds
    for event in made_up(0):
        metrics.take(event)
    before, children = set(samples(metrics)), len(metrics._series)
    for number in range(1, 10_001):
        for event in made_up(number):
            metrics.take(event)
    found = samples(metrics)
    assert set(found) == before
    assert len(metrics._series) == children
    assert found[f"{PREFIX}exchanges_total{{dialect=other,outcome=other}}"] == 40_004
    assert not [name for name in found if "made up" in name]


@pytest.mark.parametrize("created", [True, False])
def test_what_is_exposed_is_what_prometheus_client_would_expose(created: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines for the same events: those of its own instruments, in a host's registry and in callfuse's."""
    monkeypatch.setattr(client_metrics, "_use_created", created)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    metrics, reference = Metrics(ours), MetricSink(_InFiles(theirs))
    edges = [ended(seconds=seconds, before_seconds=seconds) for seconds in (0.01, 0.0100001, 1e-9, 1e9)]
    for event in (*edges, *(event for event, _ in EACH.values()), *made_up(1), *made_up(2)):
        metrics.take(event)
        reference.take(event)
    lines = [re.sub(r"(_created.*) .*", r"\1 -", generate_latest(one).decode()) for one in (ours, theirs)]
    own = [
        sorted(line for line in text.splitlines() if re.search(r"callfuse_(?!held|sessions|in_flight)", line))
        for text in lines
    ]
    assert own[0] == own[1]
    assert any("_created" in line for line in own[0]) is created
    assert [line for line in metrics.render()[0].decode().splitlines() if "_created" in line] == []


def literals(module: Path, method: str) -> set[str]:
    """The texts that are written as the only argument of calls of a method."""
    calls = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == method]
    return {
        found.value
        for one in named
        for given in one.args
        for found in ast.walk(given)
        if isinstance(found, ast.Constant) and isinstance(found.value, str)
    }


def test_the_causes_of_the_source_have_labels() -> None:
    """Each cause that the middleware names has a label of its own, and so has each step that can fail."""
    modules = [*(SOURCE / "asgi").glob("*.py")]
    unguarded = {text for module in modules for text in literals(module, "unguarded")}
    stages = {text for module in modules for text in literals(module, "stage")}
    unread = {
        node.value.value
        for node in ast.walk(ast.parse(Path(body.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr == "unread"
        and node.value.value
    }
    assert len(unguarded) > 5
    assert len(stages) > 5
    assert unguarded | unread <= labels.NOT_GUARDED
    assert stages == set(labels.STAGES)
    broken = {frames._BROKEN_FRAME, frames._BROKEN_STREAM, frames._UNREADABLE}
    failed = broken | literals(SOURCE / "asgi" / "safe_guard.py", "fail")
    failed |= literals(SOURCE / "asgi" / "hold_timer.py", "fail")
    failed |= literals(SOURCE / "guard" / "frames.py", "_fail_before_verdict") - {""}
    assert failed <= labels.FAIL_OPEN


def test_every_metric_is_documented() -> None:
    """With its labels, and none is that does not exist."""
    metrics = Metrics()
    for event in made_up(0):
        metrics.take(event)
    exported: dict[str, set[str]] = {}
    for sample in samples(metrics):
        name, _, shown = sample.rstrip("}").partition("{")
        name = re.sub(r"_(bucket|sum|count)$", "", name)
        exported.setdefault(name, set()).update(set(re.findall(r"(\w+)=", shown)) - {"le"})
    table = rows(document("docs/observing.md"), "Metrics")
    assert {quoted(name)[0]: set(quoted(given)) for name, given, _ in table} == exported


def test_a_host_s_registry() -> None:
    """What is registered there stands beside the host's own, and a second time is refused."""
    host = CollectorRegistry()
    Gauge("own", "The host's.", registry=host).set(7)
    metrics = Metrics(host)
    metrics.take(ended())
    assert host.get_sample_value("own") == 7
    assert host.get_sample_value(f"{PREFIX}exchanges_total", {"dialect": "openai-chat", "outcome": "guarded"}) == 1
    assert "own" not in samples(metrics)
    with pytest.raises(ValueError, match="callfuse"):
        Metrics(host)


def test_formats_are_those_that_are_asked_for() -> None:
    """Prometheus' text, OpenMetrics, and either packed."""
    metrics = Metrics()
    metrics.take(ended())
    text, headers = metrics.render()
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    packed, headers = metrics.render("", "deflate, gzip;q=0.5")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == text
    opened, headers = metrics.render("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert headers["content-type"].startswith("application/openmetrics-text; version=")
    assert {family.name for family in parse_open_metrics(opened.decode())} >= {PREFIX + name for name in COUNTERS}


def test_nothing_of_the_process_is_exported() -> None:
    """No metric of prometheus-client's own, and no time at which a series began."""
    assert [name for name in samples(Metrics()) if not name.startswith(PREFIX) or "_created" in name] == []


class Tallied:
    """Something with a bus and figures."""

    def __init__(self, held_bytes: int, lanes: int) -> None:
        self.bus = Bus()
        self.in_flight = 1
        self.held_bytes = held_bytes
        self.lanes = lanes


def test_figures_are_those_of_the_moment() -> None:
    """Of all middlewares that are watched together."""
    metrics, one, other = Metrics(), Tallied(100, 1), Tallied(20, 2)
    metrics.watch(one)
    metrics.watch(other)
    one.held_bytes = 300
    found = samples(metrics)
    assert (found[f"{PREFIX}held_bytes"], found[f"{PREFIX}sessions"]) == (320, 3)
    assert found[f"{PREFIX}in_flight"] == 2
    other.bus.emit(events.FuseBlown(where(), 5))
    assert samples(metrics)[f"{PREFIX}blown_total"] == 1


async def test_a_middleware_is_watched() -> None:
    """What becomes of an exchange is counted and measured, and the lane that it left."""
    answers = [framewise(CHAT, one) for one in (again(), saying("Good day.", tag="talk"))]
    fuse, metrics = CallFuseMiddleware(play(*answers), settings("steer")), Metrics()
    metrics.watch(fuse)
    before = samples(metrics)
    asked = ask(CHAT, spin(2), stream=True, headers=JSON_REQUEST)
    await drive(fuse, asked)
    found = {name: value for name, value in samples(metrics).items() if value != before.get(name, 0)}
    short = {name.removeprefix(PREFIX): found[name] for name in found if "_bucket" not in name and "_sum" not in name}
    assert short == {
        "exchanges_total{dialect=openai-chat,outcome=guarded}": 1,
        "tool_calls_total{action=steer,dialect=openai-chat}": 1,
        "findings_total{action=steer,kind=repeat,verdict=soft}": 1,
        "loops_total{arm=guarded,kind=repeat}": 1,
        "mitigations_total{arm=guarded,result=ended}": 1,
        "saved_calls_total": 5.8,
        "upstream_responses_total{dialect=openai-chat,route=/,status=200}": 1,
        f"exchange_seconds_count{PLACE}": 1,
        f"first_byte_seconds_count{PLACE}": 1,
        "added_seconds_count{dialect=openai-chat,part=before,route=/}": 1,
        "added_seconds_count{dialect=openai-chat,part=held,route=/}": 1,
        "added_seconds_count{dialect=openai-chat,part=asked,route=/}": 1,
        "saved_tokens_total": round(5.8 * ((len(asked.body) + len(ARGUMENTS)) // 4)),
        "hold_seconds_count": 1,
        "decide_seconds_count": 1,
        "sessions": 1,
    }
    assert fuse.held_bytes == 0


def process(folder: Path, program: str, *arguments: str) -> "subprocess.Popen[str]":
    """A process with a place in the folder; it goes on until its standard input is closed."""
    begin = """
        import os, sys
        from callfuse.observe.bus import Bus
        from callfuse.observe.events import NOWHERE, FuseBlown, HoldEnded, StoreDown, StoreUp
        from callfuse.observe import prometheus
        from callfuse.observe.prometheus import FOLDER, Metrics, take_place
        place, replaces = take_place(os.environ[FOLDER])
        metrics = Metrics()
    """
    end = """
        print(place, replaces, flush=True)
        sys.stdin.read()
    """
    text = dedent(begin) + dedent(program) + dedent(end)
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


COUNTING = """
    class Guard:
        bus, held_bytes, lanes, in_flight = Bus(), 10, 1, 1
    metrics.watch(Guard())
    for _ in range(int(sys.argv[1])):
        metrics.take(FuseBlown(NOWHERE, 1))
        metrics.take(HoldEnded(NOWHERE, 0.2, 1, "released"))
"""
TELLING = (
    COUNTING
    + """
    for line in metrics.render()[0].decode().splitlines():
        if line.startswith(("callfuse_blown", "callfuse_hold_seconds_count", "callfuse_held", "callfuse_store_up")):
            print(line)
"""
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a place is the number of the process there")
def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Any of them shows the sum; what a dead one has counted stays, and the next takes its place."""
    first, second = process(tmp_path, COUNTING, "3"), process(tmp_path, COUNTING, "40")
    assert first.stdout
    assert second.stdout
    places = {first.stdout.readline().strip(), second.stdout.readline().strip()}
    assert places == {"place0 False", "place1 False"}
    first.kill()
    first.wait()
    files = {path.name for path in tmp_path.iterdir()}
    third = process(tmp_path, TELLING, "500")
    told, _ = third.communicate("", timeout=60)
    second.communicate("", timeout=60)
    first.communicate()
    assert told.splitlines()[-1] in {one.replace("False", "True") for one in places}, "it stands in for a dead one"
    assert {path.name for path in tmp_path.iterdir()} == files, "no process leaves files of its own"
    assert sorted(told.splitlines()[:-1]) == [
        "callfuse_blown_total 543.0",
        "callfuse_held_bytes 20.0",
        "callfuse_hold_seconds_count 543.0",
        "callfuse_store_up 1.0",
    ]


@pytest.mark.slow
def test_two_in_one_process_of_several_count_together(tmp_path: Path) -> None:
    """They have the same files, where either would overwrite what the other has counted."""
    program = """
        other = Metrics()
        for one in (metrics, other, metrics):
            one.take(FuseBlown(NOWHERE, 1))
        print(*[line for line in other.render()[0].decode().splitlines() if line.startswith("callfuse_blown")])
    """
    told, _ = process(tmp_path, program).communicate("", timeout=60)
    assert told.splitlines()[0] == "callfuse_blown_total 3.0"

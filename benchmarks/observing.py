"""Measure the time that observing adds to each exchange, in process: all sinks on, compared with no sink.

    python -m benchmarks.observing [--rounds 41] [--exchanges 200]

An app sends an answer of a few chunks to a `send` that does nothing, under callfuse: with a bus without sinks (`off`),
with the sinks that every middleware has (`quiet`: counts, and logs at WARNING, with a line for each block), with the
access line and a log at INFO written to memory (`text`), the same as JSON (`json`), `quiet` with metrics for Prometheus
(`metrics`), with the event feed and the events that wait for the live page (`page`), and `json` with metrics, page and
feed (`all`). `otel` is `quiet` with OpenTelemetry's traces and metrics, over an SDK that records and exports nothing.
The runs are interleaved; the figures are medians of CPU time for each exchange, minus `off`. The goal is for `all`,
because callfuse cannot change the cost of an SDK.
"""

import argparse
import asyncio
import io
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.chunks import Streaming, call_deltas, chat_chunks, request
from benchmarks.driving import timed
from callfuse import CallFuseMiddleware
from callfuse.observe.bus import Bus
from callfuse.observe.feed import Feed
from callfuse.observe.json_lines import JsonHandler
from callfuse.observe.otel import OtelMetrics, OtelTraces
from callfuse.observe.prometheus import Metrics
from callfuse.observe.view import View

TRACES = TracerProvider()
METRICS = MeterProvider([InMemoryMetricReader()])
PATH = "/v1/chat/completions"
SESSIONS = 50
"""Sessions that take turns, because findings in one session of all exchanges would soon end."""


def looping_deltas(count: int) -> list[object]:
    """Return the call of the history once more, in `count` pieces."""
    first, *_ = call_deltas(3)
    pieces = [*['{"a":'], *[" "] * (count - 3), "1}"]
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces)]


ANSWERS: dict[str, tuple[Sequence[object], str, int]] = {
    "text": ([{"content": f" word{n}"} for n in range(10)], "stop", 0),
    "a call": (call_deltas(10), "tool_calls", 0),
    "a held call": (call_deltas(10), "tool_calls", 2),
    "a blocked call": (looping_deltas(10), "tool_calls", 2),
}
"""Answers of ten chunks: their deltas, their finish reason, and how often the call was repeated before."""
GOALS_US = {"text": 15.0, "a call": 15.0, "a held call": 60.0, "a blocked call": 60.0}


@contextmanager
def logging_to(handler: logging.Handler | None) -> Iterator[None]:
    """Set up the loggers of `callfuse serve` with this handler. None: at WARNING, as in a host, written to memory."""
    level = logging.WARNING if handler is None else logging.INFO
    handler = logging.StreamHandler(io.StringIO()) if handler is None else handler
    loggers = [logging.getLogger(name) for name in ("callfuse", "callfuse.access")]
    levels = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    loggers[0].propagate = False
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        loggers[0].removeHandler(handler)
        loggers[0].propagate = True
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def guard(app: Streaming, kind: str) -> CallFuseMiddleware:
    """Return the app under callfuse, with the sinks of this kind."""
    fuse = CallFuseMiddleware(app, {"tool_call_loop": {"mode": "block", "blow_after": 0}})
    if kind == "off":
        fuse._host = replace(fuse._host, bus=Bus())
    if kind in ("metrics", "all"):
        Metrics().watch(fuse)
    if kind in ("page", "all"):
        feed = Feed()
        View(feed, fuse.counts)
        fuse.bus.add(feed)
    if kind == "otel":
        traces = OtelTraces(provider=TRACES)
        fuse.bus.add(traces)
        fuse.bus.add(OtelMetrics(METRICS))
        fuse._host = replace(fuse._host, traces=traces)
    return fuse


def as_text() -> logging.Handler:
    """Return the handler of `callfuse serve`, but writing to memory."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    return handler


def as_json() -> logging.Handler:
    """Return the same for `log_format: json`."""
    return JsonHandler(io.StringIO())


HANDLERS: dict[str, Callable[[], logging.Handler | None]] = {
    "off": lambda: None,
    "quiet": lambda: None,
    "page": lambda: None,
    "text": as_text,
    "json": as_json,
    "metrics": lambda: None,
    "all": as_json,
    "otel": lambda: None,
}


async def one_round(app: Streaming, kind: str, body: bytes, exchanges: int) -> float:
    """Return the average seconds of CPU time of an exchange."""
    fuse = guard(app, kind)
    with logging_to(HANDLERS[kind]()):
        spent = 0.0
        for number in range(exchanges):
            spent += await timed(fuse, PATH, body, [(b"x-session-id", b"session-%d" % (number % SESSIONS))])
    return spent / exchanges


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--exchanges", type=int, default=200)
    options = parser.parse_args(arguments)
    names = ("off", *(f"+ {kind}" for kind in HANDLERS if kind != "off"), "goal")
    print(f"{'us an exchange':<16}{''.join(f'{name:>9}' for name in names)}")
    for name, (deltas, finish, repeats) in ANSWERS.items():
        app, body = Streaming(chat_chunks(deltas, finish=finish)), request(PATH, repeats=repeats)
        times: dict[str, list[float]] = {kind: [] for kind in HANDLERS}
        for _ in range(options.rounds):
            for kind, found in times.items():
                found.append(asyncio.run(one_round(app, kind, body, options.exchanges)))
        off = statistics.median(times["off"])
        added = {
            kind: statistics.median(one - base for one, base in zip(found, times["off"], strict=True))
            for kind, found in times.items()
            if kind != "off"
        }
        row = "".join(f"{1e6 * seconds:>9.1f}" for seconds in (off, *added.values()))
        print(f"{name:<16}{row}{GOALS_US[name]:>9.1f}{'' if 1e6 * added['all'] <= GOALS_US[name] else '  over'}")


if __name__ == "__main__":
    main()

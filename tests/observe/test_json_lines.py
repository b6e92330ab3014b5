"""callfuse's own lines are the same JSON with a record and without one, and without one only where nobody sees it."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import Finding, ToolCall
from callfuse.observe import access, log
from callfuse.observe.events import ExchangeEnded, FindingSeen, Where
from callfuse.observe.json_lines import JsonHandler, only_handler
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

texts = st.text(max_size=30)
places = st.builds(Where, texts, texts, texts, texts, texts, texts)
numbers = st.integers(0, 10**6)
exchanges = st.builds(
    ExchangeEnded, places, texts, texts, texts, numbers, numbers, texts, st.floats(0, 1e6), st.floats(0, 1e6)
)


def logger_with(*handlers: logging.Handler) -> logging.Logger:
    """A logger whose records these handlers get, and nobody else."""
    made = logging.getLoggerClass()("callfuse.test", logging.INFO)
    made.handlers = list(handlers)
    return made


def lines_of(monkeypatch: pytest.MonkeyPatch, event: ExchangeEnded | FindingSeen, *beside: logging.Handler) -> str:
    """The line of an event with these handlers beside the one for JSON, without its time."""
    stream = io.StringIO()
    logger = logger_with(JsonHandler(stream), *beside)
    with monkeypatch.context() as patched:
        for module in (access, log):
            patched.setattr(module, "logger", logger)
        (access.AccessSink() if isinstance(event, ExchangeEnded) else log.LogSink()).take(event)
    line = stream.getvalue()
    assert line.endswith("}\n")
    assert json.loads(line)["time"]
    return line.partition(",")[2]


@given(event=exchanges)
def test_an_exchange_has_one_line(event: ExchangeEnded) -> None:
    """Whatever stands in it."""
    with pytest.MonkeyPatch.context() as patched:
        assert lines_of(patched, event) == lines_of(patched, event, logging.NullHandler())


@given(where=places, tool=texts, arguments=texts, arm=texts)
def test_a_finding_has_one_line(where: Where, tool: str, arguments: str, arm: str) -> None:
    """The same."""
    call = ToolCall("call_1", tool, arguments)
    found = Finding("repeat", tool, call.signature, 3, 3, 300.0, False)
    event = FindingSeen(where, Verdict(call, found, Rung.BLOCK, 1, finding_id="0" * 16), blocks=2, arm=arm)
    with pytest.MonkeyPatch.context() as patched:
        assert lines_of(patched, event) == lines_of(patched, event, logging.NullHandler())


def test_whoever_else_would_get_a_record_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another handler, here or above, a filter, a level, or a factory of records."""
    own, other = JsonHandler(io.StringIO()), logging.NullHandler()
    logger = logger_with()
    parent = logger.parent = logger_with(own)
    assert only_handler(logger, logging.INFO) is own
    parent.handlers = [own, other]
    assert only_handler(logger, logging.INFO) is None
    parent.handlers = [own]
    logger.handlers = [other]
    assert only_handler(logger, logging.INFO) is None
    logger.propagate = False
    assert only_handler(logger, logging.INFO) is None
    logger.handlers = [own]
    assert only_handler(logger, logging.INFO) is own
    for filtering in (logger, own):
        filtering.addFilter(bool)
        assert only_handler(logger, logging.INFO) is None
        filtering.removeFilter(bool)
    own.setLevel(logging.WARNING)
    assert only_handler(logger, logging.INFO) is None
    assert only_handler(logger, logging.WARNING) is own
    monkeypatch.setattr(logging, "getLogRecordFactory", lambda: logging.makeLogRecord)
    assert only_handler(logger, logging.WARNING) is None


def test_other_records_are_lines_too() -> None:
    """Such as those of the server."""
    stream = io.StringIO()
    logger_with(JsonHandler(stream)).warning("plain %s", "words")
    assert json.loads(stream.getvalue())["message"] == "plain words"

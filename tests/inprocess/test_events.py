"""The detector tells what happens as the middleware does."""

import logging
from typing import Any

import pytest

from callfuse.inprocess import LoopDetector
from callfuse.model import ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import CallbackFailed, CallSeen, FailedOpen, FeedbackGiven, FindingSeen
from tests.support.observing import Observed

BLOCK = {"tool_call_loop": {"mode": "block"}}


def spin(detector: LoopDetector, times: int) -> list[Any]:
    """The same call so many times, with the same result."""
    found = []
    for at in range(times):
        detection = detector.check(ToolCall(f"c{at}", "search", '{"q": "zebra"}'))
        found.append(detection)
        if detection is None or not detection.withholds:
            detector.record("nothing was found")
    return found


def test_calls_findings_and_actions_are_told() -> None:
    """With the id that the detection has."""
    seen = Observed()
    *_, last = spin(LoopDetector(BLOCK, session="run-1", model="gpt-x", backend="openai", bus=Bus(seen)), 3)
    assert seen.names() == ["call", "call", "finding", "action", "call"]
    finding = seen.one(FindingSeen)
    assert finding.finding_id == last.finding_id
    assert len(last.finding_id) == 16
    assert finding.where._asdict() == {
        "session": "run-1",
        "source": "",
        "lane": "",
        "model": "gpt-x",
        "backend": "openai",
        "dialect": "in-process",
    }
    assert [one.action for one in seen.of(CallSeen)] == ["none", "none", "block"]


def test_a_false_positive_is_told_once() -> None:
    """As feedback on the finding."""
    seen = Observed()
    detector = LoopDetector(BLOCK, bus=Bus(seen))
    *_, last = spin(detector, 3)
    for _ in range(2):
        detector.report_false_positive(last)
    assert seen.one(FeedbackGiven) == FeedbackGiven(last.finding_id, "false_positive")
    assert detector.stats.false_positives == 1


def test_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the callback, and of callfuse's own."""
    seen = Observed()

    def explode(*_: Any) -> str:
        raise KeyError("own")

    detector = LoopDetector(BLOCK, bus=Bus(seen), on_loop=explode, session="run-1")
    spin(detector, 3)
    assert isinstance(seen.one(CallbackFailed).error, KeyError)
    monkeypatch.setattr(detector, "_judge", explode)
    detector.check(ToolCall("c9", "search", "{}"))
    assert seen.one(FailedOpen).session == "run-1"


def test_without_a_bus_there_are_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Each detector logs what it finds, with the id beside the line."""
    caplog.set_level(logging.INFO, "callfuse")
    *_, last = spin(LoopDetector(BLOCK), 3)
    assert [record.__dict__["finding_id"] for record in caplog.records] == [last.finding_id]

"""The detector tells what happens as the middleware does."""

import logging
from typing import Any

import pytest

from callfuse.inprocess import LoopDetector
from callfuse.model import ToolCall
from callfuse.observe.bus import Bus
from callfuse.observe.events import (
    ActionTaken,
    CallbackFailed,
    CallSeen,
    CourseMended,
    FailedOpen,
    FeedbackGiven,
    FindingSeen,
)
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
    assert seen.names() == ["call", "call", "finding", "loop", "action", "call"]
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
    assert seen.one(FeedbackGiven) == FeedbackGiven(last.finding_id, "false_positive", "repeat", "search")
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


def results(seen: Observed) -> list[tuple[str, str]]:
    """What came of the actions, with the arm."""
    return [(one.result, one.arm) for one in seen.of(CourseMended)]


@pytest.mark.parametrize(
    ("then", "result"),
    [(["other"], "changed"), (["search", "search"], "same"), ([], "user")],
    ids=["other", "on", "turn"],
)
def test_what_comes_of_a_warning(then: list[str], result: str) -> None:
    """Another call, two more of the same, or a message of the user."""
    seen = Observed()
    detector = LoopDetector({"tool_call_loop": {"mode": ["warn", "observe"]}}, bus=Bus(seen))
    spin(detector, 3)
    assert results(seen) == []
    for name in then:
        detector.check(ToolCall("", name, '{"q": "zebra"}'))
        detector.record("nothing was found")
    detector.new_turn()
    assert results(seen) == [(result, "")]
    assert seen.one(CourseMended).finding_id == seen.of(FindingSeen)[0].finding_id


def test_guidance_is_decided_by_the_next_round() -> None:
    """As in the second answer of an exchange."""
    seen = Observed()
    spin(LoopDetector({"tool_call_loop": {"mode": "chance_then_block"}}, bus=Bus(seen)), 5)
    assert results(seen) == [("same", "")]


@pytest.mark.parametrize(("then", "result"), [("Error: no such table", "same"), ("three rows", "changed")])
def test_the_same_error_is_decided_by_results(then: str, result: str) -> None:
    """Whatever the calls are."""
    seen = Observed()
    detector = LoopDetector(BLOCK, bus=Bus(seen))
    for at in range(6):
        detector.check(ToolCall("", "query", {"at": at}))
        detector.record("Error: no such table" if at < 4 else then)
    assert results(seen)[0] == (result, "")


def test_the_detectors_of_a_holdout_only_observe() -> None:
    """Their callback is not asked; what would have come of it is told."""
    seen = Observed()
    config = {"tool_call_loop": {"mode": "chance_then_block", "holdout": 1}}
    found = spin(LoopDetector(config, on_loop=lambda _: "block", bus=Bus(seen)), 5)
    assert [one.action for one in found[2:]] == ["observe"] * 3
    assert seen.of(ActionTaken) == []
    assert {one.arm for one in seen.of(FindingSeen)} == {"holdout"}
    assert results(seen) == [("same", "holdout")]


@pytest.mark.slow
def test_the_arm_of_a_detector() -> None:
    """By the name of its session; by chance for each that has none."""
    config = {"tool_call_loop": {"mode": "block", "holdout": 0.5}}

    def arms(session: str) -> set[str]:
        return {str(spin(LoopDetector(config, session=session), 3)[-1].action) for _ in range(30)}

    assert len(arms("run-1")) == 1
    assert set().union(*(arms(f"run-{at}") for at in range(20))) == {"observe", "block"}
    assert arms("-") == {"observe", "block"}

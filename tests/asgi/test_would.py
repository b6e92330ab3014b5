"""A finding that is only observed says what would have been done about it."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.inprocess import LoopDetector
from callfuse.model import ToolCall
from callfuse.observe.activity import Activity
from callfuse.observe.bus import Bus
from callfuse.observe.events import FeedbackGiven, FindingSeen
from callfuse.observe.fields import fields_of
from tests.support.asgi import JSON_REQUEST, drive
from tests.support.config import settings
from tests.support.kits import KITS
from tests.support.meeting import ask, framewise
from tests.support.observing import Observed, observed
from tests.support.plain import again, spin
from tests.support.scripted import play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")


async def found(ladder: str = "observe", *, times: int = 2, via: bool = False, **more: Any) -> Observed:
    """What is seen of an exchange whose call has come so often before."""
    guarded, seen = observed(play(framewise(CHAT, again())), ladder, **more)
    request = ask(CHAT, spin(times), stream=True, headers=JSON_REQUEST)
    if via:
        request = replace(request, headers=(*request.headers, (b"x-callfuse-via", b"1")))
    await drive(guarded, request)
    return seen


@pytest.mark.parametrize(
    ("times", "would"),
    [(2, "steer"), (3, "block"), (4, "block"), (8, "block")],
)
async def test_observing_tells_the_rung_of_the_default_mode(times: int, would: str) -> None:
    """As if the model had gone on all the same: at the limit the first rung, then the next, the last from then on."""
    event = (await found(times=times)).of(FindingSeen)[-1]
    assert (event.action, event.would) == ("observe", would)
    assert fields_of(event)["callfuse.would"] == would


@pytest.mark.parametrize("ladder", ["warn", "block", "steer"])
async def test_what_is_acted_on_would_have_been_nothing_else(ladder: str) -> None:
    """Nor is the field there."""
    seen = await found(ladder)
    assert {one.would for one in seen.of(FindingSeen)} == {""}
    assert "callfuse.would" not in fields_of(seen.of(FindingSeen)[0])


async def test_a_cap_holds() -> None:
    """A kind that only warns would only have warned; one that only observes, nothing."""
    for most, would in (("warn", "warn"), ("observe", "")):
        event = (await found(detectors={"repeat_most": most, "repeat_most_hard": most})).one(FindingSeen)
        assert event.would == would


async def test_the_holdout_tells_the_rung_of_its_own_mode() -> None:
    """That of the sessions that are guarded."""
    event = (await found("block", holdout=1)).one(FindingSeen)
    assert (event.action, event.arm, event.would) == ("observe", "holdout", "block")


async def test_behind_another_callfuse_nothing_would_have_been_done() -> None:
    """For the other one does it."""
    assert (await found("block", via=True)).one(FindingSeen).would == ""


async def test_a_mode_s_own_rung_is_no_observing() -> None:
    """A ladder that begins with it acts later."""
    seen = await found("observe at first")
    assert (seen.one(FindingSeen).action, seen.one(FindingSeen).would) == ("observe", "")


async def test_the_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """And so does what stands beside it."""
    with caplog.at_level(logging.INFO, "callfuse"):
        await found()
    (record,) = [one for one in caplog.records if "loop detected" in one.getMessage()]
    assert record.getMessage().endswith(", would have been steer")
    assert record.__dict__["would"] == "steer"


async def test_the_page_gets_it() -> None:
    """With the evidence of the finding."""
    seen, activity = await found(), Activity()
    for event in seen.events:
        activity.take_fields(fields_of(event))
    (session,) = activity.page(0, 1, lanes=1, beads=10)["sessions"]
    bead = session["lanes"][0]["beads"][-1]["id"]
    shown = activity.session(session["session"], bead)
    assert shown is not None
    assert shown["lanes"][0]["beads"][-1]["finding"]["would"] == "steer"


def test_feedback_stands_beside_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """So that a report of the log can count it."""
    guarded = CallFuseMiddleware(play(framewise(CHAT, again())), settings())
    with caplog.at_level(logging.INFO, "callfuse"):
        guarded.bus.emit(FeedbackGiven("0123456789abcdef", "false_positive", "repeat", "search"))
    (record,) = [one for one in caplog.records if one.getMessage().startswith("Feedback")]
    assert record.getMessage() == "Feedback on finding 0123456789abcdef (repeat of search): false_positive"
    assert (record.__dict__["finding_id"], record.__dict__["feedback"]) == ("0123456789abcdef", "false_positive")


def test_a_detector_that_observes_says_so() -> None:
    """In process, too."""
    seen = Observed()
    detector = LoopDetector({"tool_call_loop": {"mode": "observe"}}, bus=Bus(seen))
    for number in range(4):
        detector.check(ToolCall(f"c{number}", "search", "{}"))
        detector.record("nothing")
    assert [one.would for one in seen.of(FindingSeen)] == ["steer", "block"]

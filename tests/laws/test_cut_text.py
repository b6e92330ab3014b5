"""Laws 2, 3, 4, 8 and 12 for a text or a reasoning that runs away and is cut off: in any dialect, streamed and whole.

What the client has been shown stays. The vendor's answer is ended; the client's goes on with a sentence that says why,
or with what the model says once it was asked to go on.
"""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callfuse.detect.runaway import LOOK
from callfuse.dialects.cut_reasoning import CUT
from callfuse.guard import growing_texts
from tests.laws.test_runaway import CONVERSATIONS, FRESH, LAP
from tests.laws.test_runaway_text import HEALTHY, PARTS, UNREAD, endless, said
from tests.support.asgi import Request
from tests.support.examples import fewer_examples
from tests.support.kits import DialectKit
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    framewise,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Answer, History, seen
from tests.support.plain import RESULT, new_call, saying
from tests.support.rules import violations
from tests.support.scripted import Reply
from tests.support.streams import chunkings

SIGNING = ("anthropic", "bedrock-converse", "gemini-interactions", "openai-responses")
"""The dialects whose vendors sign reasoning."""
RUNGS = pytest.mark.parametrize("rung", ["block", "steer"])
BEGIN = HEALTHY[:900]
"""What stands before the repetition."""
MOST = UNREAD + 4 * LOOK
"""Characters of a text after which it is found at the latest."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have answers looked at earlier."""
    monkeypatch.setattr(growing_texts, "UNREAD", UNREAD)


def caps(rung: str, part: str = "") -> dict[str, Any]:
    """The settings under which this rung is taken, in all parts or in one."""
    return {"detectors": {"runaway": dict.fromkeys([part] if part else ["text", "reasoning"], rung)}}


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=runaway" in text]


def second() -> Answer:
    """What the model says when it is asked to go on."""
    return Answer(saying("Then serve it.").choices, tag="second")


def one_text(kit: DialectKit, met: Meeting, *, stream: bool) -> str:
    """The text that the client has, of a valid answer that the official SDK reads alike."""
    if stream:
        assert kit.faults(met.body) == []
    (view,) = kit.read(met.body, stream=stream)
    assert kit.sdk(met.body, stream=stream) == (view,)
    assert view.calls == ()
    assert view.finish == kit.stopped
    return view.text


@every_dialect
@CONVERSATIONS
@PARTS
def test_a_stream_is_blocked(kit: DialectKit, history: History, part: str) -> None:
    """It ends properly, with a sentence behind what the client has; the vendor is left. It is told once."""
    script = framewise(kit, endless(part))
    met = meet(ask(kit, history, stream=True), [script], **caps("block"))
    assert met.client.complete
    assert met.client.raised is None
    text = one_text(kit, met, stream=True)
    assert MARK in text
    assert "repeats itself" in text
    if part == "text":
        assert text.startswith(BEGIN + LAP)
        assert len(text) < MOST
    assert len(script.chunks) < 20 or met.app.cancelled or met.app.turn < len(script.chunks) / 1.2
    assert ["action=block" in line for line in told(met)] == [True]


@every_dialect
@CONVERSATIONS
@PARTS
def test_a_stream_goes_on(kit: DialectKit, history: History, part: str) -> None:
    """The model is asked with what it had said before the repetition; its answer goes on in the same stream."""
    script = framewise(kit, endless(part))
    met = meet(ask(kit, history, stream=True), [script, reply(kit, second(), stream=True)], **caps("steer"))
    assert met.client.complete
    text = one_text(kit, met, stream=True)
    assert "Then serve it." in text
    assert MARK not in text
    if part == "text":
        assert text.startswith(BEGIN + LAP)
        assert len(text) < MOST
    assert len(script.chunks) < 20 or met.app.cancelled or met.app.turn < len(script.chunks) / 1.2
    _, again = met.app.heard
    body = json.loads(again.body)
    assert violations(kit.name, body) == []
    shown = json.dumps(body, ensure_ascii=False)
    assert "repeats itself" in shown
    assert shown.count(LAP.strip()) == (part == "text")
    assert (BEGIN[:200] in shown) is (part == "text")
    assert ["action=steer" in line for line in told(met)] == [True]


@every_dialect
@PARTS
def test_the_second_answer_repeats_itself_too(kit: DialectKit, part: str) -> None:
    """Then it is blocked: nobody is asked for ever."""
    scripts = [framewise(kit, endless(part)), framewise(kit, Answer(endless(part).choices, tag="second"))]
    met = meet(ask(kit, FRESH, stream=True), scripts, **caps("steer"))
    assert len(met.app.heard) == 2
    assert MARK in one_text(kit, met, stream=True)
    assert [("action=block" in line) for line in told(met)] == [False, True]


@every_dialect
@RUNGS
@PARTS
def test_a_whole_answer(kit: DialectKit, rung: str, part: str) -> None:
    """It is judged when it is read: its text ends after the first lap, and says why or goes on."""
    scripts = [reply(kit, endless(part), stream=False), reply(kit, second(), stream=False)]
    met = meet(ask(kit, FRESH, stream=False), scripts, **caps(rung))
    text = one_text(kit, met, stream=False)
    assert text.count(LAP.strip()) == (part == "text")
    assert text.startswith(BEGIN if part == "text" else "")
    assert (MARK in text) is (rung == "block")
    assert ("Then serve it." in text) is (rung == "steer")
    assert [violations(kit.name, json.loads(heard.body)) for heard in met.app.heard] == [[]] * len(met.app.heard)
    assert ["kind=runaway" in line for line in told(met)] == [True]


@every_dialect
@streamed_and_whole
@RUNGS
@PARTS
def test_the_next_turn(kit: DialectKit, stream: bool, rung: str, part: str) -> None:
    """The history that the client builds of it is one that the vendor takes."""

    async def talk(session: Session) -> None:
        scripts = [reply(kit, endless(part), stream=stream), reply(kit, second(), stream=stream)]
        met = await session.exchange(ask(kit, FRESH, stream=stream), *scripts)
        following = kit.replay(FRESH, met.body, stream=stream, result=RESULT)
        await session.exchange(Request(kit.path, following), reply(kit, saying("Ok."), stream=False))

    first, following = in_session(talk, **caps(rung)).meetings
    [heard] = following.app.heard
    assert violations(kit.name, json.loads(heard.body)) == []
    is_signed = stream and part == "reasoning" and kit.name in SIGNING
    assert (CUT.encode() in first.body) is is_signed
    assert (CUT.encode() in kit.replay(FRESH, first.body, stream=stream, result=RESULT)) is is_signed
    assert CUT.encode() not in heard.body


@every_dialect
@RUNGS
@PARTS
@settings(fewer_examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_cut_does_not_matter(kit: DialectKit, rung: str, part: str, data: st.DataObject) -> None:
    """Cut anywhere: the same bytes, the same log."""
    answer, later = endless(part, new_call()), reply(kit, second(), stream=True)
    script = reply(kit, answer, stream=True)
    some = data.draw(st.integers(1, 3000))
    even = tuple(script.body[at : at + some] for at in range(0, len(script.body), some))
    scripts = [script, framewise(kit, answer), Reply(even), script.cut(data.draw(chunkings(script.body)))]
    first, *others = [meet(ask(kit, FRESH, stream=True), [one, later], **caps(rung)) for one in scripts]
    assert len(told(first)) == 1
    for other in others:
        assert (other.body, other.log) == (first.body, first.log)


@every_dialect
@streamed_and_whole
@RUNGS
def test_what_is_healthy_passes(kit: DialectKit, stream: bool, rung: str) -> None:
    """Byte for byte, beside calls, too."""
    for part in ("text", "reasoning"):
        script = reply(kit, saying(said(part, HEALTHY), new_call()), stream=stream)
        met = meet(ask(kit, FRESH, stream=stream), [script], **caps(rung))
        assert (met.body, told(met)) == (script.body, [])


@every_dialect
@streamed_and_whole
def test_what_may_not_be_cut_is_told(kit: DialectKit, stream: bool) -> None:
    """By the ladder, by a callback, and where an answer has several choices."""
    script = reply(kit, endless("text"), stream=stream)
    request = ask(kit, FRESH, stream=stream)
    for ladder in ("observe", "warn"):
        met = meet(request, [script], ladder, **caps("block"))
        assert met.body == script.body
        assert [f"action={ladder}" in line for line in told(met)] == [True]
    met = meet(request, [script], on_loop=lambda event: "allow", **caps("block"))
    assert met.body == script.body
    assert ["action=allow" in line for line in told(met)] == [True]
    if kit.most_choices > 1:
        script = reply(kit, Answer(endless("text").choices * 2), stream=stream)
        met = meet(ask(kit, FRESH, stream=stream, n=2), [script], **caps("block"))
        assert met.body == script.body
        assert len(told(met)) == 2


@streamed_and_whole
def test_a_stored_answer_is_told(stream: bool) -> None:
    """The vendor has all of it, and a request may continue it by its id."""
    [kit] = [kit for kit in every_dialect.args[1] if kit.name == "openai-responses"]
    script = reply(kit, endless("text"), stream=stream)
    request = ask(kit, FRESH, stream=stream)
    stored = replace(request, body=json.dumps({**json.loads(request.body), "store": True}).encode())
    met = meet(stored, [script], **caps("block"))
    assert met.body == script.body
    assert ["action=warn" in line for line in told(met)] == [True]


@every_dialect
@streamed_and_whole
@RUNGS
def test_a_complete_call_stays(kit: DialectKit, stream: bool, rung: str) -> None:
    """One that came before it is delivered; the answer ends as with calls, and the next request tells the model."""
    call = new_call()
    answer = saying(call, said("reasoning", BEGIN + LAP * 220))
    script = reply(kit, answer, stream=stream)
    met = meet(ask(kit, FRESH, stream=stream), [script], **caps(rung))
    (view,) = kit.read(met.body, stream=stream)
    assert view.calls == (seen(call),)
    assert view.finish == kit.called
    assert MARK not in view.text
    assert len(told(met)) == 1


@every_dialect
def test_an_unfinished_call_never_leaves(kit: DialectKit) -> None:
    """Of an answer that was cut off, nothing that came behind it."""
    answer = endless("text", new_call())
    met = meet(ask(kit, FRESH, stream=True), [framewise(kit, answer)], **caps("block"))
    assert new_call().id.encode() not in met.body
    one_text(kit, met, stream=True)

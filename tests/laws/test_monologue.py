"""Laws 1, 2, 10 to 12 for answers that say the same again and again: the model is warned in the user's message, or not
asked."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from callfuse.conversations.monologue import equal_answers
from callfuse.dialects import DIALECTS
from tests.support.asgi import JSON_REQUEST
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, in_session, meet, reply
from tests.support.model import Call, History, Round, Style, User
from tests.support.plain import RESULT, new_call, saying
from tests.support.rules import violations
from tests.support.work import lines_run

SAME = "I am sorry, I can only transfer you to a human agent."
OTHER = "Your order has been found, and it will be sent today."
ON: dict[str, Any] = {"detectors": {"monologue": True}}
UP_TO_BLOCK: dict[str, Any] = {"detectors": {"monologue": True, "monologue_most": "block"}}


def said(*answers: str | Round, typed: str = "And now?") -> History:
    """A conversation with these answers, each behind a message of the user's, and with one more message."""
    turns: list[User | Round] = []
    for at, answer in enumerate(answers):
        turns += [User(f"{typed} {'abcdefghij'[at]}"), Round((), (), answer) if isinstance(answer, str) else answer]
    return History((*turns, User(f"{typed} z")))


def users(kit: DialectKit, body: bytes) -> list[str]:
    """The texts of the user's messages in a request."""
    dialect = next(one for one in DIALECTS if one.name == kit.name)
    request = dialect.read_request(body, json.loads(body))
    assert request is not None
    typed = [request.typed_message(at) for at in range(request.length)]
    return ["\n".join(text for text in one.written) for one in typed if one is not None]


def warned(kit: DialectKit, met: Meeting) -> list[bool]:
    """Which messages of the user's have reached the model with a warning."""
    [heard] = met.app.heard
    assert violations(kit.name, json.loads(heard.body)) == []
    return [MARK in text for text in users(kit, heard.body)]


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=monologue" in text]


def once(kit: DialectKit, history: History, ladder: str = "block", *, stream: bool = True, **settings: Any) -> Meeting:
    """The next exchange of a conversation, in which the model says something else."""
    return meet(ask(kit, history, stream=stream), [reply(kit, saying(OTHER), stream=stream)], ladder, **settings)


@every_dialect
@pytest.mark.parametrize("style", [Style(), Style(parts=True), Style(spaced=True)], ids=["plain", "parts", "spaced"])
def test_the_model_is_warned(kit: DialectKit, style: Style) -> None:
    """From the third equal answer on, in the message behind it; every other byte stays, and so does the answer."""
    for count in range(5):
        request = ask(kit, said(*[SAME] * count), stream=True, style=style)
        script = reply(kit, saying(OTHER), stream=True)
        met = meet(request, [script], "chance_then_block", **ON)
        assert met.body == script.body
        assert warned(kit, met) == [at >= 3 for at in range(count + 1)]
        assert len(told(met)) == (count >= 3)
        assert all("action=warn" in text and f"repeats={count}/3" in text for text in told(met))
        if count < 3:
            assert met.app.heard[0].body == request.body


@every_dialect
def test_the_same_history_always_reads_the_same(kit: DialectKit) -> None:
    """What the model has read stays, whatever comes behind it."""
    before: list[str] = []
    for answers in ([SAME] * 3, [SAME] * 4, [*[SAME] * 4, OTHER], [*[SAME] * 4, OTHER, SAME]):
        texts = users(kit, once(kit, said(*answers), **ON).app.heard[0].body)
        assert before == [] or texts[: len(before) - 1] == before[:-1]
        before = texts
    assert [MARK in text for text in before] == [False, False, False, True, True, False, False]


@every_dialect
@pytest.mark.parametrize(
    "answers",
    [
        [SAME, SAME],
        [SAME, OTHER, SAME, OTHER, SAME],
        [SAME, SAME, Round((new_call(),), (RESULT,)), SAME],
        [SAME, SAME, f"{MARK} Stopped.", SAME],
        ["Done."] * 6,
        [f"Part {number} of ten is written." for number in range(1, 6)],
        [Round((new_call(f"call_{at}"),), (RESULT,), SAME) for at in range(2)],
    ],
    ids=["two", "two by turns", "a call between", "a block between", "short", "a number moves", "each with a call"],
)
def test_the_innocent(kit: DialectKit, answers: Sequence[str | Round]) -> None:
    """Nothing is said of them, and their requests stay byte for byte."""
    request = ask(kit, said(*answers), stream=True)
    met = meet(request, [reply(kit, saying(OTHER), stream=True)], **UP_TO_BLOCK)
    assert met.app.heard[0].body == request.body
    assert told(met) == []


@every_dialect
def test_off_by_default(kit: DialectKit) -> None:
    """However often; also where callfuse is off."""
    request = ask(kit, said(*[SAME] * 8), stream=True)
    for settings in ({}, {**UP_TO_BLOCK, "enabled": False}):
        met = meet(request, [reply(kit, saying(OTHER), stream=True)], "block", **settings)
        assert (met.app.heard[0].body, told(met)) == (request.body, [])


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_the_model_is_not_asked(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Where its cap is lifted: callfuse answers, in the form of the dialect; the ladder's chance is a warning."""
    chance = ladder != "block"
    if chance:
        assert warned(kit, once(kit, said(*[SAME] * 3), ladder, **UP_TO_BLOCK)) == [False, False, False, True]
    met = once(kit, said(*[SAME] * (3 + chance)), ladder, stream=stream, **UP_TO_BLOCK)
    assert met.app.heard == []
    assert kit.faults(met.body) == [] if stream else True
    (view,) = kit.read(met.body, stream=stream)
    assert MARK in view.text
    assert "The model was not asked." in view.text
    assert view.calls == ()
    assert dict(met.client.headers)[b"x-callfuse-action"] == b"block; kind=monologue; count=%d" % (3 + chance)
    assert ["action=block" in text for text in told(met)] == [True]


@every_dialect
def test_behind_the_block_the_model_is_asked_again(kit: DialectKit) -> None:
    """The history has callfuse's own answer, behind which the row begins anew; a retry of the request gets the same."""

    async def talk(session: Session) -> None:
        blocked = said(*[SAME] * 3)
        for _ in range(2):
            await session.exchange(ask(kit, blocked, stream=True), reply(kit, saying(OTHER), stream=True))
        (view,) = kit.read(session.meetings[0].body, stream=True)
        after = blocked.and_then(Round((), (), view.text), User("And now?"))
        await session.exchange(ask(kit, after, stream=True), reply(kit, saying(OTHER), stream=True))

    first, second, last = in_session(talk, **UP_TO_BLOCK).meetings
    assert first.app.heard == second.app.heard == []
    assert len(last.app.heard) == 1
    assert told(last) == []


@every_dialect
def test_what_must_not_be_changed(kit: DialectKit) -> None:
    """A signed request is only observed; so is one under `observe`."""
    request = ask(kit, said(*[SAME] * 3), stream=True)
    signed = replace(request, headers=(*JSON_REQUEST, (b"content-digest", b"sha-256=:x:")))
    for one, ladder in ((signed, "chance_then_block"), (request, "observe")):
        met = meet(one, [reply(kit, saying(OTHER), stream=True)], ladder, **ON)
        assert met.app.heard[0].body == request.body
        assert ["action=observe" in text for text in told(met)] == [True]


@every_dialect
@pytest.mark.parametrize("answer", ["allow", "warn", "steer", "block"])
def test_a_callback_decides(kit: DialectKit, answer: str) -> None:
    """Before anything is done about it."""
    asked: list[str] = []

    def decide(event: Any) -> str:
        asked.append(event.finding.kind)
        return answer

    rung = "warn" if answer == "steer" else answer
    met = once(kit, said(*[SAME] * 3), "block", on_loop=decide, **UP_TO_BLOCK)
    assert asked == ["monologue"]
    assert [f"action={rung}" in text for text in told(met)] == [True]
    if rung == "block":
        assert met.app.heard == []
    else:
        assert warned(kit, met)[-1] is (rung == "warn")


@every_dialect
def test_nudges_of_a_harness(kit: DialectKit) -> None:
    """The same message each time, as a harness sends where no call has come: the warning stands in it."""
    nudge = "Tool call error: No tool calls found in the response. Every response MUST include at least one tool call."
    turns = [turn for _ in range(3) for turn in (Round((), (), SAME), User(nudge))]
    met = once(kit, History((User("Write the report."), *turns)), **ON)
    assert len(told(met)) == 1
    [heard] = met.app.heard
    assert heard.body.count(MARK.encode()) == 1
    assert violations(kit.name, json.loads(heard.body)) == []


def test_a_long_history_is_read_once() -> None:
    """Each message a constant number of times."""
    chat = next(one for one in DIALECTS if one.name == "openai-chat")

    def lines(count: int) -> int:
        messages = [{"role": role, "content": SAME} for _ in range(count) for role in ("user", "assistant")]
        payload = {"model": "m", "messages": [*messages, {"role": "user", "content": "x"}], "tools": [{}]}
        request = chat.read_request(json.dumps(payload).encode(), payload)
        assert request is not None
        assert max(one.times for one in equal_answers(request)) == count
        return lines_run(lambda: [*equal_answers(request)])

    assert lines(400) < 2.1 * lines(200)


def test_calls_with_words_beside_them() -> None:
    """In item lists the words of an answer stand before its calls, as items of their own."""
    [kit] = [kit for kit in every_dialect.args[1] if kit.name == "openai-responses"]
    calls = [Round((Call(f"c{at}", "search", (json.dumps({"q": at}),)),), (RESULT,), SAME) for at in range(5)]
    request = ask(kit, History((User("x"), *calls)), stream=True)
    met = meet(request, [reply(kit, saying(OTHER), stream=True)], **ON)
    assert told(met) == []

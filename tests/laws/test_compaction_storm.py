"""Laws 1, 10 and 13 for a client that compacts its history again and again, without a call in between: it is told;
where that is set, callfuse answers, and the vendor is not asked."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from callfuse.conversations.compactions import NEAR, read_compaction
from callfuse.dialects import DIALECTS
from tests.support.asgi import JSON_REQUEST, Headers, Request
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, in_session, reply
from tests.support.model import Answer, History, Round, User
from tests.support.plain import RESULT, new_call, saying
from tests.support.scripted import whole
from tests.support.work import lines_run

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
NAMED: Headers = (*JSON_REQUEST, (b"x-session-id", b"session-of-the-test"))
STOPS: dict[str, Any] = {"detectors": {"compaction_storm": 3, "compaction_storm_most": "block"}}
SUMMARY = "This session is being continued from a previous conversation that ran out of context. Summary: "
ASKED = "Your task is to create a detailed summary of the conversation so far."
GO_ON = "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed."
TALK = saying("I have read it all, and I am ready to go on with the work.")
BUSY = whole(b'{"error": {"message": "busy"}}', 503)


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=compaction_storm" in text]


def compacted(number: int, *behind: User | Round) -> History:
    """A history whose beginning a harness has put a summary for, each time another one."""
    return History((User(f"{SUMMARY}{'the work has begun. ' * number}"), *behind))


def summed(number: int, *behind: User | Round) -> History:
    """The same of OpenCode, where the model has written the summary."""
    summary = Round((), (), f"The goal is as before. {'Some files were read. ' * number}")
    return History((User("What did we do so far?"), summary, User(GO_ON), *behind))


def handed_over(number: int, *behind: User | Round) -> History:
    """The same of Codex, which keeps what the user has said."""
    summary = f"Another language model started to solve this problem. {'It has read files. ' * number}"
    return History((User("Mend the build."), User(summary), *behind))


SHAPES = pytest.mark.parametrize("shape", [compacted, summed, handed_over])


def run(*turns: tuple[History, Answer], kit: DialectKit = CHAT, stream: bool = True, ladder: str = "block",
        headers: Headers = NAMED, **settings: Any) -> list[Meeting]:  # fmt: skip
    """One exchange after the other, each with its answer."""

    async def talk(session: Session) -> None:
        for history, said in turns:
            request = ask(kit, history, stream=stream, headers=headers)
            await session.exchange(request, reply(kit, said, stream=stream))

    return in_session(talk, ladder, **settings).meetings


def asked(meetings: list[Meeting]) -> list[int]:
    """Which requests have reached the vendor."""
    return [len(met.app.heard) for met in meetings]


@every_dialect
@SHAPES
def test_it_is_told_and_nothing_is_stopped(kit: DialectKit, shape: Any) -> None:
    """From the fourth in a row on by default: every request reaches the vendor."""
    meetings = run(*[(shape(at), TALK) for at in range(6)], kit=kit)
    assert asked(meetings) == [1] * 6
    assert [len(told(met)) for met in meetings] == [0, 0, 0, 1, 1, 1]
    assert all("repeats=6/4" in text and "action=observe" in text for text in told(meetings[-1]))


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_vendor_is_not_asked(kit: DialectKit, stream: bool) -> None:
    """Where its cap is lifted: callfuse answers in the form of the dialect; what a person then says reaches the model
    again, for nothing was compacted since."""
    later = compacted(4, Round((), (), f"{MARK} Stopped."), User("Go on without that file."))
    meetings = run(*[(compacted(at), TALK) for at in range(5)], (later, TALK), kit=kit, stream=stream, **STOPS)
    assert asked(meetings) == [1, 1, 0, 0, 0, 1]
    for met in meetings[2:5]:
        assert met.client.status == 200
        (view,) = kit.read(met.body, stream=stream)
        assert MARK in view.text
        assert "The model was not asked." in view.text
        assert ["action=block" in text for text in told(met)] == [True]
    assert dict(meetings[2].client.headers)[b"x-callfuse-action"] == b"block; kind=compaction_storm; count=3"


def test_one_that_only_asks_for_summaries() -> None:
    """The history is too long even when it is only a summary: the harness asks for the next one at once. Behind each of
    them is the same message of its own."""
    meetings = run(*[(compacted(at, User(ASKED)), TALK) for at in range(4)], **STOPS)
    assert asked(meetings) == [1, 1, 0, 0]


def test_one_message_of_a_harness_and_a_person() -> None:
    """Claude Code puts both into one."""
    kit = next(kit for kit in KITS if kit.name == "anthropic")

    def request(number: int, said: str) -> Request:
        plain = ask(kit, compacted(number), stream=True, headers=NAMED)
        payload = json.loads(plain.body)
        [first] = payload["messages"]
        texts = [*[part["text"] for part in first["content"]], said] if isinstance(first["content"], list) else [
            first["content"], said]  # fmt: skip
        first["content"] = [{"type": "text", "text": text} for text in texts]
        return replace(plain, body=json.dumps(payload).encode())

    async def talk(session: Session) -> None:
        for at in range(4):
            await session.exchange(request(at, "Read this."), reply(kit, TALK, stream=True))
        for at in range(4):
            await session.exchange(request(at, f"And part {'abcd'[at]}?"), reply(kit, TALK, stream=True))

    assert asked(in_session(talk, **STOPS).meetings) == [1, 1, 0, 0, 1, 1, 1, 1]


@SHAPES
def test_a_message_that_is_too_long(shape: Any) -> None:
    """A person has pasted a long text, which each compaction leaves as it is."""
    meetings = run(*[(shape(at, User("Read this: " + "zebra " * 50)), TALK) for at in range(4)], **STOPS)
    assert asked(meetings) == [1, 1, 0, 0]


@SHAPES
def test_a_call_in_between(shape: Any) -> None:
    """As in any long task: the history is compacted, and work goes on. So it is whatever the calls bring."""
    turns: list[tuple[History, Answer]] = []
    for at in range(6):
        call = new_call(f"call_{at}")
        turns += [(shape(at), saying(call)), (shape(at, Round((call,), (f"{RESULT} {at}",))), TALK)]
    meetings = run(*turns, **STOPS)
    assert asked(meetings) == [1] * 12
    assert not [text for met in meetings for text in told(met)]


@SHAPES
def test_a_person_in_between(shape: Any) -> None:
    """A long talk without calls is compacted now and then, at the beginning of a turn."""
    meetings = run(*[(shape(at, User(f"And what of part {'abcdef'[at]}?")), TALK) for at in range(6)], **STOPS)
    assert asked(meetings) == [1] * 6


@SHAPES
def test_the_same_summary(shape: Any) -> None:
    """A request that is sent again, or goes on in words, shows no other compaction."""
    again = [(shape(1), TALK)] * 5
    words = [(shape(1, Round((), (), "I am ready."), User(f"And {'abc'[at]}?")), TALK) for at in range(3)]
    assert asked(run(*again, *words, **STOPS)) == [1] * 8


def test_errors_in_between() -> None:
    """The history is too long, says the vendor, and the harness compacts it again."""

    async def talk(session: Session) -> None:
        for at in range(4):
            await session.exchange(ask(CHAT, compacted(at), stream=True, headers=NAMED), BUSY)

    assert asked(in_session(talk, **STOPS).meetings) == [1, 1, 0, 0]


def test_without_a_session() -> None:
    """Without its id, each summary begins another conversation."""
    meetings = run(*[(compacted(at), TALK) for at in range(6)], headers=JSON_REQUEST, **STOPS)
    assert asked(meetings) == [1] * 6


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (b"x-session-id", (b"session-one", b"session-two")),
        (b"x-claude-code-agent-id", (b"agent-one", b"agent-two")),
        (b"authorization", (b"Bearer one", b"Bearer two")),
    ],
)
def test_each_to_his_own(name: bytes, values: tuple[bytes, bytes]) -> None:
    """Compactions of another session, agent or client count there."""

    async def talk(session: Session) -> None:
        for at in range(4):
            headers = (*[one for one in NAMED if one[0] != name], (name, values[at % 2]))
            request = ask(CHAT, compacted(at), stream=True, headers=headers)
            await session.exchange(request, reply(CHAT, TALK, stream=True))

    assert asked(in_session(talk, **STOPS).meetings) == [1] * 4


def test_it_is_off() -> None:
    """Nothing is kept, or nothing is looked at."""
    for off in ({"detectors": {"compaction_storm": False}}, {"enabled": False}):
        assert not [text for met in run(*[(compacted(at), TALK) for at in range(6)], **off) for text in told(met)]


@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_a_ladder_without_a_block_observes(ladder: str) -> None:
    """Whatever the cap: no warning would change the next request."""
    meetings = run(*[(compacted(at), TALK) for at in range(4)], ladder=ladder, **STOPS)
    assert asked(meetings) == [1] * 4
    assert ["action=observe" in text for met in meetings for text in told(met)] == [True, True]


def test_what_the_vendor_has_compacted() -> None:
    """Codex has the vendor write summaries that only that can read."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")

    def request(number: int) -> Request:
        plain = ask(kit, History((User("Mend the build."),)), stream=True, headers=NAMED)
        payload = json.loads(plain.body)
        payload["input"].append({"type": "compaction", "encrypted_content": f"sealed-{number}"})
        return replace(plain, body=json.dumps(payload).encode())

    async def talk(session: Session) -> None:
        for at in range(4):
            await session.exchange(request(at), reply(kit, TALK, stream=True))

    assert asked(in_session(talk, **STOPS).meetings) == [1, 1, 0, 0]


def test_only_the_end_is_read() -> None:
    """Of a history without a summary, however many messages of users stand at its end."""
    dialect = next(one for one in DIALECTS if one.name == CHAT.name)

    def cost(messages: int) -> int:
        body = CHAT.request(History(tuple([User("And?")] * messages)), stream=True, n=1)
        request = dialect.read_request(body, json.loads(body))
        assert request is not None
        assert read_compaction(request) is None
        return lines_run(lambda: read_compaction(request))

    assert cost(NEAR) == cost(8 * NEAR)

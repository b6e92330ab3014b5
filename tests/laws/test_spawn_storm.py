"""Laws 1, 10 and 13 for sub-agents that are started again and again with the same task: it is told; where that is set,
callfuse answers them, and the vendor is not asked."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from callfuse.conversations.storms import MOST
from callfuse.policy.settings import LoopSettings
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, given_log, in_session, reply
from tests.support.model import History, Round, User
from tests.support.plain import RESULT, new_call, saying
from tests.support.scripted import Reply, play, whole

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
TASK = History((User("Scan the project, and delegate what is left."),))
STOPS: dict[str, Any] = {"detectors": {"spawn_storm": 4, "spawn_storm_most": "block"}}
BUSY = whole(b'{"error": {"message": "busy"}}', 503)


def told(met: Meeting) -> list[str]:
    """What the log says of it."""
    return [text for text in met.log_at(logging.INFO) if "kind=spawn_storm" in text]


def claude(agent: int, session: str = "session-of-the-test") -> Headers:
    """The headers of a sub-agent of Claude Code."""
    return (
        *JSON_REQUEST,
        (b"x-claude-code-session-id", session.encode()),
        (b"x-claude-code-agent-id", b"agent-%d" % agent),
    )


def codex(agent: int) -> Headers:
    """The headers of a sub-agent of Codex."""
    return (
        *JSON_REQUEST,
        (b"user-agent", b"codex_cli_rs/0.135.0"),
        (b"session_id", b"session-of-the-test"),
        (b"thread-id", b"thread-%d" % agent),
        (b"x-codex-parent-thread-id", b"thread-of-its-parent"),
    )


def opencode(agent: int, parent: str = "ses_parent") -> Headers:
    """The headers of a sub-agent of OpenCode, whose sessions are their own."""
    return (*JSON_REQUEST, (b"x-session-id", b"ses_%d" % agent), (b"x-parent-session-id", parent.encode()))


HARNESSES = pytest.mark.parametrize("headers", [claude, codex, opencode])


def start(kit: DialectKit, headers: Headers, task: History = TASK, *, stream: bool = True) -> Request:
    """The first request of a sub-agent."""
    return ask(kit, task, stream=stream, headers=headers)


def answer(kit: DialectKit, *, stream: bool = True) -> Reply:
    """The sub-agent delegates in turn."""
    return reply(kit, saying("I delegate that.", new_call()), stream=stream)


def spawn(*requests: Request, kit: DialectKit = CHAT, stream: bool = True, ladder: str = "block",
          **settings: Any) -> list[Meeting]:  # fmt: skip
    """One exchange after the other, each answered with a call."""

    async def talk(session: Session) -> None:
        for request in requests:
            await session.exchange(request, answer(kit, stream=stream))

    return in_session(talk, ladder, **settings).meetings


def asked(meetings: list[Meeting]) -> list[int]:
    """Which requests have reached the vendor."""
    return [len(met.app.heard) for met in meetings]


@HARNESSES
def test_it_is_told_and_nothing_is_stopped(headers: Any) -> None:
    """From the 25th on by default: every request reaches the vendor as it is."""
    requests = [start(CHAT, headers(at)) for at in range(27)]
    meetings = spawn(*requests)
    assert asked(meetings) == [1] * 27
    assert [met.app.heard[0].body for met in meetings] == [one.body for one in requests]
    assert [len(told(met)) for met in meetings] == [0] * 24 + [1] * 3
    assert all("repeats=27/25" in text and "action=observe" in text for text in told(meetings[-1]))


@every_dialect
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_the_vendor_is_not_asked(kit: DialectKit, stream: bool) -> None:
    """Where its cap is lifted: the agent that has started it gets callfuse's answer as the report of its sub-agent."""
    requests = [start(kit, claude(at), stream=stream) for at in range(5)]
    meetings = spawn(*requests, kit=kit, stream=stream, **STOPS)
    assert asked(meetings) == [1, 1, 1, 0, 0]
    for met in meetings[3:]:
        assert met.client.status == 200
        (view,) = kit.read(met.body, stream=stream)
        assert MARK in view.text
        assert "The model was not asked." in view.text
        assert ["action=block" in text for text in told(met)] == [True]
    assert dict(meetings[3].client.headers)[b"x-callfuse-action"] == b"block; kind=spawn_storm; count=4"


def test_each_starts_the_next() -> None:
    """Sub-agents of OpenCode that each start another with the same task: each is the only one of its parent."""
    requests = [start(CHAT, opencode(at, f"ses_{at - 1}")) for at in range(5)]
    assert asked(spawn(*requests, **STOPS)) == [1, 1, 1, 0, 0]


@HARNESSES
def test_fan_out(headers: Any) -> None:
    """Ten at once with different tasks; the same ones go on with their work; each sends its first request again."""
    tasks = [History((User(f"Read file {at} of the project."),)) for at in range(10)]
    requests = [start(CHAT, headers(at), task) for at, task in enumerate(tasks)]
    requests += [
        start(CHAT, headers(at), task.and_then(Round((new_call(),), (RESULT,)))) for at, task in enumerate(tasks)
    ]
    meetings = spawn(*requests, *requests[:10], **STOPS)
    assert asked(meetings) == [1] * 30
    assert not [text for met in meetings for text in told(met)]


def test_what_goes_on_is_no_start() -> None:
    """Sub-agents with one task, each of which works for long: each has been started once."""

    async def talk(session: Session) -> None:
        for rounds in range(6):
            task = TASK.and_then(*[Round((new_call(f"call_{at}"),), (f"{RESULT} {at}",)) for at in range(rounds)])
            for at in range(3):
                await session.exchange(start(CHAT, claude(at), task), reply(CHAT, saying("Done."), stream=True))

    assert asked(in_session(talk, **STOPS).meetings) == [1] * 18


def test_tries_of_a_client() -> None:
    """A sub-agent whose first request fails, and is sent again, is one."""

    async def talk(session: Session) -> None:
        for _ in range(6):
            await session.exchange(start(CHAT, claude(1)), BUSY)

    meetings = in_session(
        talk, detectors={"spawn_storm": 4, "spawn_storm_most": "block", "retry_storm": False}
    ).meetings
    assert asked(meetings) == [1] * 6


@pytest.mark.parametrize(
    "named",
    [(), ((b"x-session-id", b"session-of-the-test"),), ((b"x-litellm-trace-id", b"session-of-the-test"),)],
    ids=["unnamed", "named", "traced"],
)
def test_a_batch_of_equal_prompts(named: Headers) -> None:
    """Samples of one prompt, with or without a session's id: nothing says that an agent has started them."""
    request = start(CHAT, (*JSON_REQUEST, *named))
    meetings = spawn(*[request] * 30)
    assert not [text for met in meetings for text in told(met)]


def test_each_to_his_own() -> None:
    """Sub-agents of another session or client count there."""
    requests = [start(CHAT, claude(at, f"session-{at % 2}-of-the-test")) for at in range(6)]
    assert asked(spawn(*requests, **STOPS)) == [1] * 6
    keys = [b"Bearer one", b"Bearer two"]
    requests = [
        replace(one, headers=(*[pair for pair in one.headers if pair[0] != b"authorization"],
                              (b"authorization", keys[at % 2])))
        for at, one in enumerate([start(CHAT, claude(at)) for at in range(6)])
    ]  # fmt: skip
    assert asked(spawn(*requests, **STOPS)) == [1] * 6


@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_a_ladder_without_a_block_observes(ladder: str) -> None:
    """Whatever the cap: no warning would change what is started next."""
    meetings = spawn(*[start(CHAT, claude(at)) for at in range(5)], ladder=ladder, **STOPS)
    assert asked(meetings) == [1] * 5
    assert ["action=observe" in text for met in meetings for text in told(met)] == [True, True]


def test_it_is_off() -> None:
    """Nothing is kept, or nothing is looked at."""
    requests = [start(CHAT, claude(at)) for at in range(27)]
    for off in ({"detectors": {"spawn_storm": False}}, {"enabled": False}):
        assert not [text for met in spawn(*requests, **off) for text in told(met)]


def test_at_the_same_time() -> None:
    """Sub-agents that begin beside one another are all counted."""

    async def talk() -> int:
        app = play(*[answer(CHAT)] * 8)
        guarded = guard(app, "block", **STOPS)
        requests = [start(CHAT, claude(at)) for at in range(8)]
        await asyncio.gather(*(drive(guarded, one, turn=lambda: 0) for one in requests))
        return len(app.heard)

    with given_log():
        assert asyncio.run(talk()) == 3


@pytest.mark.parametrize("decided", ["allow", "block"])
def test_a_callback_decides(decided: str) -> None:
    """It lets the sub-agent begin, or stops it where the cap would not."""
    kinds: list[str] = []

    def decide(event: Any) -> str:
        kinds.append(event.finding.kind)
        return decided

    most = "block" if decided == "allow" else "observe"
    meetings = spawn(*[start(CHAT, claude(at)) for at in range(3)], on_loop=decide,
                     detectors={"spawn_storm": 3, "spawn_storm_most": most})  # fmt: skip
    assert len(meetings[-1].app.heard) == (decided == "allow")
    assert kinds == ["spawn_storm"]


def test_limits() -> None:
    """A limit beyond what is kept finds nothing; the default is far above what harnesses start at once."""
    assert LoopSettings().limit_of("spawn_storm") == 25
    assert MOST == 250

"""Who is who, through the middleware: what one lane has brought about, no other tenant, agent or conversation meets.

Two things stand in the ledger only, and show whose lane an exchange is in: rounds that the client has dropped when it
compacted its history, and a signature's place on the ladder.
"""

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, Session, ask, every_dialect, in_session, reply
from tests.support.model import Answer, History, Round, User
from tests.support.plain import OTHER_RESULT, RESULT, elsewhere, known_call, new_call, same_call, saying
from tests.support.scripted import play

UUID = "01a0800c-3119-7273-8dfb-387f230c1233"
SUMMARY = User("So far: I have searched. Now go on.")


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: what its requests carry, and what its conversation begins with."""

    headers: Headers = ()
    body: dict[str, Any] = field(default_factory=dict)
    prompt: str = "Find the zebra crossing."

    def ask(self, kit: DialectKit, *turns: User | Round) -> Request:
        """Its request for a conversation."""
        history = History((User(self.prompt), *turns))
        asked = ask(kit, history, stream=True, headers=(*JSON_REQUEST, *self.headers))
        return replace(asked, body=json.dumps(json.loads(asked.body) | self.body).encode())


def searched(at: int) -> Round:
    """The call once more."""
    return Round((same_call(f"call_{at}"),), (RESULT,))


SEARCHED = tuple(searched(at) for at in range(2))
LOOKUP = saying("Another way.", known_call("call_other"), tag="other")


def search(at: int) -> Answer:
    """The answer that makes the call once more."""
    return saying(same_call(f"call_{at}"), tag=f"r{at}")


async def talk(
    session: Session, kit: DialectKit, client: Client, turns: Sequence[Round], answer: Answer, *more: Answer
) -> Meeting:
    """An exchange of a client over these rounds; `more` is what the model says when it is asked again."""
    replies = [reply(kit, one, stream=True) for one in (answer, *more)]
    return await session.exchange(client.ask(kit, *turns), *replies)


async def compacted(session: Session, kit: DialectKit, client: Client) -> Meeting:
    """The client sends a summary in place of its rounds, and the model makes the call."""
    return await session.exchange(client.ask(kit, SUMMARY), reply(kit, search(3), stream=True))


async def looped(session: Session, kit: DialectKit, client: Client) -> None:
    """The client has made the call twice, and was refused the third."""
    for at in range(3):
        await talk(session, kit, client, SEARCHED[:at], search(at))


def untouched(met: Meeting) -> bool:
    """Whether both sides had what they would have had without callfuse."""
    (heard,) = met.app.heard
    return met.client.body == met.app.replies[0].body and MARK.encode() not in heard.body


def refused(met: Meeting) -> bool:
    """Whether the client was told of a loop, and no other answer was asked for."""
    return MARK.encode() in met.client.body and len(met.app.heard) == 1


def put_right(met: Meeting) -> bool:
    """Whether the model was asked again, and its other call came through."""
    return MARK.encode() not in met.client.body and b"lookup" in met.client.body and len(met.app.heard) == 2


# --- pairs that must not meet

SESSION = (b"x-callfuse-session-id", b"session-of-tenant-a")
CLAUDE = (b"x-claude-code-session-id", UUID.encode())
CODEX = ((b"user-agent", b"codex_cli_rs/0.140.0 (Linux)"), (b"session-id", UUID.encode()))
ANOTHER = "Find the giraffe crossing."

TENANTS = (
    Client((SESSION, (b"authorization", b"Bearer key-of-tenant-a"))),
    Client((SESSION, (b"authorization", b"Bearer key-of-tenant-b"))),
)


def agents(header: str, *session: tuple[bytes, bytes]) -> tuple[Client, Client]:
    """Two agents of one session that begin alike."""
    one, other = (Client((*session, (header.encode(), f"agent-number-{at}".encode()))) for at in range(2))
    return one, other


def prompted(headers: Headers = (), **body: Any) -> tuple[Client, Client]:
    """Two agents of one session, told apart by nothing but what they were asked."""
    return Client(headers, body), Client(headers, body, ANOTHER)


NAMED = {kit.name: kit for kit in KITS}
ANTHROPIC, RESPONSES, CHAT = (NAMED[name] for name in ("anthropic", "openai-responses", "openai-chat"))
PAIRS = {
    "Claude Code": (ANTHROPIC, *agents("x-claude-code-agent-id", CLAUDE)),
    "Claude Code, nested": (ANTHROPIC, *agents("x-claude-code-parent-agent-id", CLAUDE)),
    "Claude Code, session header": (ANTHROPIC, *prompted((CLAUDE,))),
    "Claude Code, user id as text": (
        ANTHROPIC,
        *prompted(metadata={"user_id": f"user_{'d' * 64}_account__session_{UUID}"}),
    ),
    "Claude Code, user id as JSON": (
        ANTHROPIC,
        *prompted(metadata={"user_id": json.dumps({"device_id": "d" * 64, "session_id": UUID})}),
    ),
    "Codex": (RESPONSES, *agents("thread-id", *CODEX)),
    "Codex, no threads": (RESPONSES, *prompted(CODEX)),
    **{f"tenants, {name}": (kit, *TENANTS) for name, kit in NAMED.items()},
}
each_pair = pytest.mark.parametrize(("kit", "one", "other"), PAIRS.values(), ids=PAIRS)


@each_pair
def test_equal_calls_of_two_are_no_loop(kit: DialectKit, one: Client, other: Client) -> None:
    """Side by side each makes the same call twice, under the same ids; only the third of either is one."""

    async def talks(session: Session) -> None:
        for at in range(3):
            for client in (one, other):
                await talk(session, kit, client, [searched(before) for before in range(at)], search(at))

    meetings = in_session(talks).meetings
    assert [untouched(met) for met in meetings] == [True] * 4 + [False] * 2
    assert all(refused(met) for met in meetings[4:])


@each_pair
def test_dropped_rounds_are_the_others_own(kit: DialectKit, one: Client, other: Client) -> None:
    """Both compact their histories: the call is another repeat to the one that made it, and new to the other."""

    async def talks(session: Session) -> None:
        await looped(session, kit, one)
        await compacted(session, kit, other)
        await compacted(session, kit, one)

    *_, others, own = in_session(talks).meetings
    assert untouched(others)
    assert refused(own)


async def steered(session: Session, kit: DialectKit, client: Client) -> list[Round]:
    """The model has had its chance, took it, and has come back to the call twice; the conversation since."""
    turns = [*SEARCHED]
    for at in range(2):
        await talk(session, kit, client, turns[:at], search(at))
    await talk(session, kit, client, turns, search(2), elsewhere())
    turns.append(Round((new_call("call_second"),), (OTHER_RESULT,)))
    for at in range(3, 5):
        await talk(session, kit, client, turns, search(at))
        turns.append(searched(at))
    return turns


@each_pair
def test_a_place_on_the_ladder_is_ones_own(kit: DialectKit, one: Client, other: Client) -> None:
    """One has had its chance. The other, with the same history to the letter, still gets it."""

    async def talks(session: Session) -> None:
        turns = await steered(session, kit, one)
        for client in (other, one):
            await talk(session, kit, client, turns, search(5), LOOKUP)

    *_, others, own = in_session(talks, "chance_then_block").meetings
    assert put_right(others)
    assert refused(own)


# --- without an id

NOBODY = Client()
WEAK = [NOBODY, Client(body={"prompt_cache_key": "cache-of-the-app"}), Client(body={"user": "user-12345678"})]


@every_dialect
def test_an_agent_without_an_id_is_known_by_its_conversation(kit: DialectKit) -> None:
    """Its place on the ladder is kept from one exchange to the next."""

    async def talks(session: Session) -> None:
        turns = await steered(session, kit, NOBODY)
        await talk(session, kit, NOBODY, turns, search(5), LOOKUP)

    *_, last = in_session(talks, "chance_then_block").meetings
    assert refused(last)


@pytest.mark.parametrize("client", WEAK, ids=["nothing", "cache key", "user"])
def test_a_weak_id_is_no_name(client: Client) -> None:
    """What a new user message begins counts afresh, for nothing says that it is a summary."""

    async def talks(session: Session) -> None:
        await looped(session, CHAT, client)
        await compacted(session, CHAT, client)

    *_, refusal, last = in_session(talks).meetings
    assert refused(refusal)
    assert untouched(last)


@every_dialect
def test_a_restart_in_mid_conversation(kit: DialectKit) -> None:
    """What the history shows still counts; the place on the ladder is lost, so that the model gets its chance anew."""
    turns: list[Round] = []

    async def before(session: Session) -> None:
        turns.extend(await steered(session, kit, NOBODY))

    async def after(session: Session) -> None:
        await talk(session, kit, NOBODY, turns, search(5), LOOKUP)
        await talk(session, kit, NOBODY, turns, search(5), search(6))

    in_session(before, "chance_then_block")
    chance, spent = in_session(after, "chance_then_block").meetings
    assert put_right(chance)
    assert len(spent.app.heard) == 2
    assert MARK.encode() in spent.client.body


@every_dialect
def test_a_restart_forgets_no_warning(kit: DialectKit) -> None:
    """Two warnings must have gone before: the history shows it, and the next rung is due."""

    async def talks(session: Session) -> None:
        await talk(session, kit, NOBODY, [searched(at) for at in range(4)], search(4))

    (met,) = in_session(talks, "graduated").meetings
    assert refused(met)


# --- logs

DIGEST = "[0-9a-f]{32}"


@pytest.mark.parametrize(
    ("client", "source", "session", "lane"),
    [
        (Client((SESSION,)), "x-callfuse-session-id", "session-of-tenant-a", ""),
        (PAIRS["Claude Code"][1], "x-claude-code-session-id", UUID, "agent-number-0."),
        (Client(((b"x-session-id", b"odd id\x1b[2J"),)), "x-session-id", DIGEST, ""),
        (NOBODY, "fingerprint", DIGEST, ""),
    ],
)
def test_a_finding_says_where_it_was_found(
    client: Client, source: str, session: str, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Session, source and lane stand beside the line; an odd id is hashed, the fingerprint ends the lane."""
    app = guard(play(reply(ANTHROPIC, search(2), stream=True)))
    with caplog.at_level(logging.INFO, "callfuse"):
        asyncio.run(drive(app, client.ask(ANTHROPIC, *SEARCHED)))
    (record,) = caplog.records
    fields = record.__dict__
    assert fields["session_source"] == source
    assert fields["lane"].startswith(lane)
    assert re.fullmatch(DIGEST, fields["lane"].removeprefix(lane))
    assert re.fullmatch(session, fields["session_id"])
    assert f"in session {fields['session_id']}:" in record.getMessage()

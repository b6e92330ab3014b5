"""Two workers that take turns over one Redis are as good as one; over their own memories they are not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from callfuse.conversations.ledger import Closable
from tests.asgi import test_lanes
from tests.asgi.test_fuse import Agent
from tests.asgi.test_lanes import CHAT, LOOKUP, NOBODY, put_right, refused, search, steered, talk
from tests.asgi.test_mending import Talk, loop, other
from tests.dialects.openai_responses import test_chains
from tests.dialects.openai_responses.test_chains import answer, call, going_on, heard, spun
from tests.dialects.openai_responses.wire import message, request, result
from tests.laws import test_compaction_storm, test_spawn_storm
from tests.laws.test_commands import ok, told, typing
from tests.support.asgi import Request
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, reply
from tests.support.model import History, User
from tests.support.plain import saying
from tests.support.redis import RedisServer
from tests.support.scripted import whole

SHARED = pytest.mark.parametrize("shared", [True, False], ids=["redis", "memories"])
CHANCE = "chance_then_block"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the store is not down."""
    monkeypatch.setenv("CALLFUSE_STORE_TIMEOUT_S", "20")


def store_of(server: RedisServer, *, shared: bool) -> str:
    """The store of two workers."""
    return server.url if shared else "memory://"


@SHARED
@every_dialect
def test_a_place_on_the_ladder(server: RedisServer, kit: DialectKit, shared: bool) -> None:
    """The chance that one worker has given is spent in the other; apart, each gives its own."""

    async def talks(session: Session) -> None:
        turns = await steered(session, kit, NOBODY)
        assert len(session.meetings) % 2 == 1, "the last exchange is the other worker's"
        await talk(session, kit, NOBODY, turns, search(5), LOOKUP)

    *_, last = in_session(talks, CHANCE, workers=2, store=store_of(server, shared=shared)).meetings
    assert (refused if shared else put_right)(last)


@SHARED
@every_dialect
def test_a_storm(server: RedisServer, kit: DialectKit, shared: bool) -> None:
    """Errors that one worker has had count in the other."""
    asked = ask(kit, History((User("Find the giraffe."),)), stream=True)
    caps = {"detectors": {"retry_storm": 4, "retry_storm_most": "block"}}

    async def talks(session: Session) -> None:
        for _ in range(4):
            await session.exchange(asked, whole(b"{}", 503))

    meetings = in_session(talks, "block", workers=2, store=store_of(server, shared=shared), **caps).meetings
    assert [len(met.app.heard) for met in meetings] == [1, 1, 1, 0 if shared else 1]


@SHARED
@pytest.mark.parametrize("kind", ["spawn_storm", "compaction_storm"])
def test_a_storm_of_beginnings(server: RedisServer, kind: str, shared: bool) -> None:
    """Sub-agents that one worker has seen begin count in the other; so do compactions."""
    caps = {"detectors": {kind: 4, f"{kind}_most": "block"}}

    def asked(at: int) -> Request:
        if kind == "spawn_storm":
            return test_spawn_storm.start(CHAT, test_spawn_storm.claude(at))
        return ask(CHAT, test_compaction_storm.compacted(at), stream=True, headers=test_compaction_storm.NAMED)

    async def talks(session: Session) -> None:
        for at in range(4):
            await session.exchange(asked(at), reply(CHAT, saying("Yes."), stream=True))

    meetings = in_session(talks, "block", workers=2, store=store_of(server, shared=shared), **caps).meetings
    assert [len(met.app.heard) for met in meetings] == [1, 1, 1, 0 if shared else 1]


async def test_blocks_are_counted_together(server: RedisServer) -> None:
    """The fuse blows in both workers after five blocks of both, and a command that one of them runs resets both."""
    agent = Agent(CHAT, store=store_of(server, shared=True), workers=2)
    await agent.run(30)
    assert all(guard.counts.of("blown") for guard in agent.guards)
    assert (agent.blocks, agent.spent <= 10) == (5, True)
    before, looping = agent.spent, agent.history
    agent.history = looping.and_then(User("!/status"))
    await agent.ask()
    agent.history = looping
    await agent.ask()
    assert agent.spent > before
    for guard in agent.guards:
        assert isinstance(guard.ledger, Closable)
        await guard.ledger.aclose()


@SHARED
async def test_what_came_of_a_warning(server: RedisServer, shared: bool) -> None:
    """The worker that sees the model change its course knows what the other one has told it; apart, neither does."""
    talk = Talk(CHAT, workers=2, store=store_of(server, shared=shared))
    await talk.step(loop(1))
    await talk.step(other("zebra"))
    assert talk.results == (["changed"] if shared else [])
    await talk.close()


@SHARED
def test_what_a_session_has_set(server: RedisServer, shared: bool) -> None:
    """A command that one worker has run holds in the other."""

    async def talks(session: Session) -> None:
        await session.exchange(typing(CHAT, "!/set(tool-loop-max-repeats=7)"))
        await session.exchange(typing(CHAT, "!/status"))

    *_, status = in_session(talks, workers=2, store=store_of(server, shared=shared)).meetings
    assert ("tool-loop-max-repeats = 7 (session)" in told(CHAT, status)) is shared


@SHARED
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_chain_goes_on(server: RedisServer, stream: bool, shared: bool) -> None:
    """A request that names the last answer and brings nothing else is the third of a loop, wherever it arrives."""

    async def talks(session: Session) -> None:
        await spun(session, stream=stream)
        asked = going_on(result(call(2)), after="resp_2", stream=stream)
        await session.exchange(asked, answer(call(3), tag="3", stream=stream))
        await session.exchange(going_on("And?", after="resp_3", stream=stream), answer(message(), tag="4"))

    *_, third, following = in_session(talks, workers=2, store=store_of(server, shared=shared)).meetings
    assert (b"call_3" not in third.body and MARK.encode() in third.body) is shared
    assert (heard(following)["input"][0].get("call_id") == "call_3") is shared


@SHARED
def test_a_chain_keeps_what_its_session_has_set(server: RedisServer, shared: bool) -> None:
    """It is found by the name that stands in the lane's state."""

    async def talks(session: Session) -> None:
        await session.exchange(request("!/set(tool-loop-mode=observe)\nGo.", store=True), answer(call(1), tag="1"))
        for at in (1, 2, 3):
            asked = going_on(result(call(at)), after=f"resp_{at}")
            await session.exchange(asked, answer(call(at + 1), tag=str(at + 1)))

    meetings = in_session(talks, workers=2, store=store_of(server, shared=shared)).meetings
    assert all(met.body == met.app.replies[0].body for met in meetings)
    assert any("action=observe" in line for met in meetings for _, _, line in met.log) is shared


def test_an_exchange_is_two_round_trips(server: RedisServer) -> None:
    """One script to read, one to write, as soon as there is something to be kept; no other command but to connect. A
    finding is a third, for which no exchange waits."""

    async def talks(session: Session) -> None:
        await steered(session, CHAT, NOBODY)
        await session.exchange(typing(CHAT, "Hello."), ok(CHAT))
        await spun(session)
        asked = going_on(result(call(2)), after="resp_2")
        await session.exchange(asked, answer(call(3), tag="3"))

    session = in_session(talks, store=server.url)
    calls = server.calls()
    without_calls = 1
    findings = len({key for key in server.stored() if ":finding:" in key})
    assert findings > 0
    assert calls.pop("evalsha") == 2 * len(session.meetings) - without_calls + findings
    assert calls.pop("eval") == 2, "each script is sent in full once"
    new_lanes = 3
    assert calls.pop("get") == 4 * len(session.meetings) - 2 * without_calls + new_lanes, "within scripts"
    connecting = {"client"}  # servers before 7.2 do not count it: they do not know what redis-py says by it
    assert set(calls) - connecting == {"set", "config"}, "and the reset of these counts"


def test_no_more_is_kept_for_a_request_that_makes_no_call(server: RedisServer) -> None:
    """It is read for, and nothing written."""

    async def talks(session: Session) -> None:
        await session.exchange(typing(CHAT, "Hello."), ok(CHAT))

    in_session(talks, store=server.url)
    assert "set" not in server.calls()


LAWS: dict[str, Callable[[], Any]] = {
    **{
        f"{law.__name__}, {name}": partial(law, *pair)
        for law in (
            test_lanes.test_equal_calls_of_two_are_no_loop,
            test_lanes.test_dropped_rounds_are_the_others_own,
            test_lanes.test_a_place_on_the_ladder_is_ones_own,
        )
        for name, pair in test_lanes.PAIRS.items()
    },
    **{
        f"{law.__name__}, {stream}": partial(law, stream=stream)
        for law in (
            test_chains.test_a_loop_is_blocked_and_the_chain_goes_on,
            test_chains.test_a_steer_goes_on_from_the_answer_just_stored,
            test_chains.test_a_conversation_keeps_its_name,
        )
        for stream in (True, False)
    },
    **{
        law.__name__: law
        for law in (
            test_chains.test_a_steer_in_vain_leaves_the_last_call_to_be_answered,
            test_chains.test_a_withheld_sibling_is_answered_with_the_survivors_result,
            test_chains.test_other_outcomes_are_no_loop,
            test_chains.test_going_on_twice_from_one_answer,
            test_chains.test_the_log_names_one_session,
        )
    },
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_what_holds_over_memory_holds_here(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, law: Callable[[], Any]
) -> None:
    """Whose lane is whose, and what a chain remembers. The environment names the store."""
    monkeypatch.setenv("CALLFUSE_STORE", server.url)
    law()
    assert server.calls()["set"] > 0

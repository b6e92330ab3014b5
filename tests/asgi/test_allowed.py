"""A person lets a call pass, or resets a session: at once, also where it was refused already."""

from dataclasses import replace
from typing import Any

import pytest

from callfuse.asgi.changes import change_sessions
from callfuse.conversations.ledger import SessionState
from callfuse.model.signature import Signature
from callfuse.observe.events import ActionTaken, FindingSeen, FuseBlown, HoldBegan
from callfuse.policy.allowed import MOST, Allowance, with_allowance
from tests.asgi.test_mending import Talk, loop, other
from tests.laws.test_in_hindsight import LIMIT, next_call
from tests.support.model import Answer, Call
from tests.support.plain import saying, spin

CALL = b'"tool_calls"'


async def change(talk: Talk, **values: Any) -> None:
    """An operator changes the state of the session."""
    ledger: Any = talk.guards[0].ledger
    name = talk.seen.of(FindingSeen)[0].where.session
    now = clock(talk)
    found = await ledger.find_sessions(name, now)
    assert found
    await change_sessions(ledger, {one.key: one.state for one in found}, lambda state: replace(state, **values), now)


def clock(talk: Talk) -> float:
    """The time of the guard."""
    return talk.guards[0]._host.clock()


def allowance(talk: Talk, **values: Any) -> tuple[Allowance, ...]:
    """What is let pass of the call that was found."""
    first = talk.seen.of(FindingSeen)[0]
    call = first.verdict.call
    return (Allowance(**{"tool": call.full_name, "signature": call.signature, "lane": first.where.lane, **values}),)


def actions(talk: Talk) -> list[str]:
    """What was done about each finding."""
    return [one.action for one in talk.seen.of(FindingSeen)]


@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
@pytest.mark.parametrize("values", [{}, {"lane": ""}, {"signature": b""}, {"signature": b"", "lane": ""}])
async def test_what_was_blocked_passes(ladder: str, values: dict[str, Any]) -> None:
    """The client asks again, and gets the call; it stays a finding, with the action `allow`. Nobody warns of it."""
    talk = Talk(ladder=ladder, stream=False)
    await talk.ask(loop(1), loop(2))
    assert CALL not in talk.body
    await change(talk, allowed=allowance(talk, **values))
    for number in range(3, 6):
        await talk.step(loop(number))
        assert CALL in talk.body
    assert set(actions(talk)[-3:]) == {"allow"}
    assert b"callfuse" not in b"".join(heard.body for heard in talk.app.heard)


@pytest.mark.parametrize(
    "values", [{"tool": "read", "signature": b""}, {"signature": Signature(b"x" * 16)}, {"lane": "another"}], ids=str
)
async def test_nothing_else_passes(values: dict[str, Any]) -> None:
    """Neither another tool's call, nor another one of the tool, nor that of another lane."""
    talk = Talk(ladder="block", stream=False)
    await talk.ask(loop(1))
    await change(talk, allowed=allowance(talk, **values))
    await talk.ask(loop(2))
    assert CALL not in talk.body


async def test_a_warning_ends_with_it() -> None:
    """The result of a call that a person lets pass carries none, and what stood in earlier results stays."""
    talk = Talk(ladder="warn", stream=False)
    await talk.step(loop(1))
    await talk.ask(other("zebra"))
    warned = talk.app.heard[0].body.count(b"[callfuse]")
    assert warned == 1
    await change(talk, allowed=allowance(talk))
    await talk.step(loop(2))
    await talk.step(other("zebra"))
    assert talk.app.heard[0].body.count(b"[callfuse]") == warned
    assert len(talk.seen.of(ActionTaken)) == 1


async def test_results_of_a_tool_that_passes_warn_of_nothing() -> None:
    """What only results show is let pass, too."""
    talk = Talk(result=lambda call: f"Error: there is no table {call.arguments} here")
    for number in range(LIMIT + 1):
        await talk.step(saying(next_call(number)))
    assert actions(talk)[-1] == "warn"
    await change(talk, allowed=allowance(talk, signature=b""))
    await talk.step(saying(next_call(LIMIT + 1)))
    assert actions(talk)[-1] == "allow"
    assert len(talk.seen.of(ActionTaken)) == len(actions(talk)) - actions(talk).count("allow")


async def test_a_tool_that_passes_is_not_held() -> None:
    """Its calls stream through as they come."""
    talk = Talk(ladder="block")
    await talk.ask(loop(1))
    before = len(talk.seen.of(HoldBegan))
    assert before == 1
    await change(talk, allowed=allowance(talk, signature=b""))
    await talk.step(loop(2))
    assert len(talk.seen.of(HoldBegan)) == before


async def test_a_callback_is_not_asked_about_it() -> None:
    """A person has decided."""
    asked: list[Any] = []

    def on_loop(event: Any) -> str:
        asked.append(event)
        return "block"

    talk = Talk(ladder="warn", stream=False, on_loop=on_loop)
    await talk.ask(loop(1))
    assert (len(asked), CALL in talk.body) == (1, False)
    await change(talk, allowed=allowance(talk))
    await talk.step(loop(2))
    assert (len(asked), CALL in talk.body) == (1, True)


async def test_calls_beside_it_are_withheld_as_ever() -> None:
    """One of a round passes, and the other does not."""
    talk = Talk(ladder="block", stream=False)
    pair = [Call("a", "search", ('{"query": "x"}',)), Call("b", "read", ('{"path": "y"}',))]
    rounds = [Answer((tuple(Call(f"{one.id}{n}", one.name, one.pieces) for one in pair),)) for n in range(4)]
    for one in rounds[:3]:
        await talk.step(one)
    await change(talk, allowed=allowance(talk, tool="read", signature=b""))
    await talk.ask(rounds[3])
    assert b'"read"' in talk.body
    assert b'"search"' not in talk.body


@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
async def test_after_a_reset_a_blocked_request_continues(ladder: str) -> None:
    """The same request gets its call; what came before counts no more, what comes after does. Earlier warnings stay."""
    talk = Talk(ladder=ladder, stream=False)
    for number in range(3):
        await talk.ask(loop(number), loop(number))
        assert CALL not in talk.body
    await change(talk, released=clock(talk), reset=clock(talk))
    for number in range(3, 5):
        await talk.step(loop(number))
        assert CALL in talk.body
    await talk.ask(loop(5), loop(6))
    assert CALL not in talk.body


async def test_after_a_reset_clients_with_ids_of_their_own_loop_again() -> None:
    """Rounds behind the first one after the reset count, whatever ids they have in the history."""
    talk = Talk(ladder="block", stream=False)
    await talk.ask(loop(1))
    await change(talk, released=clock(talk), reset=clock(talk))
    got = []
    for number in range(2, 7):
        talk.history = spin(number)
        await talk.ask(loop(number))
        got.append(CALL in talk.body)
    assert got[:2] == [True, True]
    assert not all(got)


async def test_a_reset_ends_a_blown_fuse() -> None:
    """And its loop: the vendor is asked again, and the call is let pass."""
    talk = Talk(ladder="block", stream=False, loop={"blow_after": 2, "detectors": {"known_pairs": False}})
    for number in range(4):
        await talk.ask(loop(number))
    assert len(talk.seen.of(FuseBlown)) == 2
    now = clock(talk)
    await change(talk, released=now, reset=now)
    await talk.step(loop(5))
    assert CALL in talk.body


async def test_warnings_of_before_a_reset_stay_in_the_history() -> None:
    """So that prompt caches keep hitting; no call after it is warned of because of those before."""
    talk = Talk(ladder="warn", stream=False)
    for number in range(2):
        await talk.step(loop(number))
    await talk.ask(other("zebra"))
    before = talk.app.heard[0].body
    now = clock(talk)
    await change(talk, released=now, reset=now)
    await talk.step(loop(2))
    assert talk.app.heard[0].body == before
    await talk.step(other("zebra"))
    assert talk.app.heard[0].body.count(b"[callfuse]") == before.count(b"[callfuse]")


def test_allowances_are_bounded() -> None:
    """The newest are kept, each once."""
    allowed: tuple[Allowance, ...] = ()
    for number in range(MOST + 10):
        allowed = with_allowance(allowed, Allowance(f"tool{number}"))
    allowed = with_allowance(allowed, Allowance(f"tool{MOST}"))
    assert len(allowed) == MOST
    assert allowed[-1].tool == f"tool{MOST}"
    assert SessionState(allowed=allowed).allowed == allowed

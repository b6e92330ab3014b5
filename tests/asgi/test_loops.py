"""A streak of findings is one loop, however many rungs it took: that is told as an event, once."""

import pytest

from callfuse.observe.events import FindingSeen, LoopBegan
from tests.asgi.test_mending import Talk, loop, other
from tests.laws.test_in_hindsight import LIMIT, next_call
from tests.support.model import Answer, Call
from tests.support.plain import saying


def counts(talk: Talk) -> tuple[int, int]:
    """Findings and loops that were told."""
    return len(talk.seen.of(FindingSeen)), len(talk.seen.of(LoopBegan))


@pytest.mark.parametrize("ladder", ["observe", "warn"])
async def test_a_streak_is_one_loop(ladder: str) -> None:
    """Round after round; and the next one, after a round without a finding, is another."""
    talk = Talk(ladder=ladder)
    for number in range(3):
        await talk.step(loop(number))
    assert counts(talk) == (3, 1)
    begun = talk.seen.one(LoopBegan)
    first = talk.seen.of(FindingSeen)[0]
    assert (begun.finding_id, begun.where) == (first.finding_id, first.where)
    assert (begun.found, begun.tool) == ("repeat", "search")
    await talk.step(other("zebra"))
    for number in range(3, 6):
        await talk.step(loop(number))
    assert len(talk.seen.of(LoopBegan)) == 2
    assert sum(guard.counts.of("loops") for guard in talk.guards) == 2


async def test_every_rung_of_an_exchange_is_of_one_loop() -> None:
    """The model is asked again and does the same: two findings, two rungs, one loop."""
    talk = Talk(ladder="chance_then_block")
    await talk.step(loop(1), loop(2))
    assert counts(talk) == (2, 1)
    await talk.step(loop(3))
    assert counts(talk) == (3, 1)


async def test_calls_of_one_round_are_of_one_loop() -> None:
    """Two calls of a round are found: two findings, one loop."""
    talk = Talk()
    pair = [Call("a", "search", ('{"query": "x"}',)), Call("b", "read", ('{"path": "y"}',))]
    for number in range(3):
        calls = [Call(f"{one.id}{number}", one.name, one.pieces) for one in pair]
        await talk.step(Answer((tuple(calls),)))
    assert len(talk.seen.of(FindingSeen)) == 2
    assert len(talk.seen.of(LoopBegan)) == 1


async def test_it_is_one_loop_for_every_worker() -> None:
    """Guards that take turns over a store see the same streak."""
    talk = Talk(workers=2)
    talk.guards[1] = type(talk.guards[0])(talk._vendor, talk.guards[0].resolved, store=talk.guards[0].ledger)
    talk.guards[1].bus.add(talk.seen)
    for number in range(4):
        await talk.step(loop(number))
    assert counts(talk) == (4, 1)


async def test_what_results_show_is_one_loop_with_what_calls_show() -> None:
    """Hindsight finds a loop in the results of each round: once begun, none of its findings begins another."""
    talk = Talk(result=lambda call: f"Error: there is no table {call.arguments} here")
    for number in range(LIMIT + 3):
        await talk.step(saying(next_call(number)))
    findings, loops = counts(talk)
    assert findings > 1
    assert loops == 1

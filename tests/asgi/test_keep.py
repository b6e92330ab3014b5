"""Two exchanges of one lane at once, as of agents that were started alike and have no session id: neither writes over
what the other has brought."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.changes import change_session
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.policy.tiers import Overrides
from tests.asgi.test_fuse import CHAT, TASK, Agent
from tests.support.asgi import Exchange, drive
from tests.support.config import settings
from tests.support.meeting import ask, reply
from tests.support.model import Answer, History, Round
from tests.support.plain import RESULT, new_call, same_call, saying
from tests.support.scripted import ScriptedApp


@dataclass
class Twin(Agent):
    """A stubborn agent with a twin: it sends each request, too, earlier, and has its answer later. `says`: the model's
    answer to the twin."""

    says: Answer = field(default_factory=lambda: saying("I am thinking."))
    waits: asyncio.Event | None = None
    has_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def _vendor(self, scope: Any, receive: Any, send: Any) -> None:
        if self.waits is not None and not self.has_asked.is_set():
            self.has_asked.set()
            await self.waits.wait()
            await ScriptedApp((reply(self.kit, self.says, stream=self.stream),))(scope, receive, send)
        else:
            await super()._vendor(scope, receive, send)

    async def ask(self) -> Exchange:
        """One request, and the twin's around it."""
        self.waits, self.has_asked = asyncio.Event(), asyncio.Event()
        request = ask(self.kit, self.history, stream=self.stream, headers=self.headers)
        twin = asyncio.create_task(drive(self.guard, request))
        asked = asyncio.create_task(self.has_asked.wait())
        await asyncio.wait({twin, asked}, return_when=asyncio.FIRST_COMPLETED)  # a blown fuse answers by itself
        asked.cancel()
        own = await super().ask()
        self.waits.set()
        await twin
        return own


@pytest.mark.slow
@pytest.mark.parametrize("says", [saying("I am thinking."), saying("Again.", same_call("call_twin"))])
def test_a_block_is_not_forgotten(says: Answer) -> None:
    """A twin that began before the block and ends behind it writes what it brings, and nothing that it has read: the
    call is refused, and the fuse blows after five blocks."""
    agent = Twin(CHAT, says=says)
    told = asyncio.run(agent.run(40))
    assert agent.blocks <= 5
    assert agent.guard.counts.of("blown") > 20
    assert "The fuse has blown" in told[-1]


LOOKED = tuple(Round((same_call(f"call_{at}"),), (RESULT,)) for at in range(2))
WHOLE = History((TASK, *LOOKED))


class Pair:
    """A guard, and a model that gives the answer `late` to a request late, and others at once: the call once more."""

    def __init__(self, late: Answer) -> None:
        self.guard = CallFuseMiddleware(self._vendor, settings())
        self._late = late
        self._waits: tuple[asyncio.Event, asyncio.Event] | None = None

    async def _vendor(self, scope: Any, receive: Any, send: Any) -> None:
        waits, self._waits = self._waits, None
        answer = saying("Once more.", same_call("call_again"))
        if waits is not None:
            answer = self._late
            waits[0].set()
            await waits[1].wait()
        await ScriptedApp((reply(CHAT, answer, stream=True),))(scope, receive, send)

    async def ask(self, history: History) -> bytes:
        """A request, and what the client gets."""
        return (await drive(self.guard, ask(CHAT, history, stream=True))).body

    async def meet(self, late: History, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """The late client's request, with what goes on until it has its answer."""
        has_come, may_go = self._waits = asyncio.Event(), asyncio.Event()
        asked = asyncio.create_task(self.ask(late))
        await has_come.wait()
        await meanwhile()
        may_go.set()
        await asked

    @property
    def lane(self) -> Lane:
        """The only lane."""
        ledger = self.guard.ledger
        assert isinstance(ledger, MemoryLedger)
        (lane,) = ledger._lanes.entries
        return lane

    async def state(self) -> LaneState:
        """What is kept of it."""
        return (await self.guard.ledger.read(self.lane, time.time()))[0]


@pytest.mark.parametrize("late", [WHOLE, History((TASK,))], ids=["alike", "anew"])
async def test_what_each_has_brought(late: History) -> None:
    """The block of the one and the call of the other; also where the other begins a conversation, which ends the blocks
    of those that were before it."""
    pair = Pair(saying("Another way.", new_call("call_other")))
    await pair.meet(late, partial(pair.ask, WHOLE))
    state = await pair.state()
    assert state.blocks.count == 1
    assert [call.name for call in state.blocks.calls] == ["search"]
    assert [call.id for call in state.rounds[-1].calls] == ["call_other"]


async def test_a_reset_meanwhile() -> None:
    """An operator resets the session while an exchange is under way: what that blocks is the first block again."""
    pair = Pair(saying("Once more.", same_call("call_late")))
    await pair.ask(WHOLE)
    assert (await pair.state()).blocks.count == 1

    async def reset() -> None:
        lane, now = pair.lane, time.time()

        def forget(state: SessionState) -> SessionState:
            return replace(state, reset=now)

        await change_session(pair.guard.ledger, (lane.credential, lane.owner), SessionState(), forget, now)

    await pair.meet(WHOLE, reset)
    assert (await pair.state()).blocks.count == 1


async def test_settings_that_are_changed_at_once() -> None:
    """The host's code, a command and the admin page: each changes what is there, not what it has read."""
    ledger, key = MemoryLedger(max_lanes=9, ttl_s=100), (b"credential", "session")
    read = SessionState()
    changes: list[Callable[[SessionState], SessionState]] = [
        lambda one: replace(one, by_code=Overrides({"ttl_seconds": 9.0})),
        lambda one: replace(one, overrides=Overrides({"max_repeats": 4}), ran=(*one.ran, b"turn")),
        lambda one: replace(one, reset=max(one.reset, 7.0)),
    ]
    for change in changes:
        await change_session(ledger, key, read, change, 0)
    (kept,) = await ledger.sessions(0)
    assert kept.state == SessionState(
        Overrides({"max_repeats": 4}), (b"turn",), 7.0, by_code=Overrides({"ttl_seconds": 9.0})
    )

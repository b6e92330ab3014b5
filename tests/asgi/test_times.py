"""The event of an exchange says where its time went, on a clock that only app, client and ledger move."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi import driver, middleware, prepare, tally
from callfuse.conversations.memory import MemoryLedger
from callfuse.observe.events import ExchangeEnded
from tests.support.asgi import Message, Receive, Request, Scope, Send, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, reply, streamed_and_whole
from tests.support.model import History, User
from tests.support.observing import Observed
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import Gate, Reply, play

CHAT = next(kit for kit in KITS if kit.name == "openai-chat")
TALK = saying("Good day.", tag="talk")
UPLOAD_S, LEDGER_S, FIRST_S, NEXT_S = 16.0, 2.0, 100.0, 0.25


@dataclass
class Clock:
    """Seconds that pass where somebody says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def gate(self, first_s: float, next_s: float = NEXT_S) -> Gate:
        """Lets time pass before each chunk."""

        async def wait(at: int) -> None:
            self.now += next_s if at else first_s

        return wait


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all that measures."""
    found = Clock()
    for module in (driver, middleware, prepare, tally):
        monkeypatch.setattr(module, "perf_counter", found)
    return found


class SlowLedger(MemoryLedger):
    """Takes its time to read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(max_lanes=10, ttl_s=300)
        self._own_clock = clock

    async def read(self, *given: Any) -> Any:
        """What is kept."""
        self._own_clock.now += LEDGER_S
        return await super().read(*given)


def slow(clock: Clock, *answers: Reply, ladder: str = "block", **more: Any) -> tuple[CallFuseMiddleware, Observed]:
    """Apps and ledger that take time."""
    guarded, seen = CallFuseMiddleware(play(*answers), settings(ladder, **more), store=SlowLedger(clock)), Observed()
    guarded.bus.add(seen)
    return guarded, seen


def uploading(clock: Clock, app: CallFuseMiddleware) -> Callable[[Scope, Receive, Send], Any]:
    """The app, whose client takes its time for the body."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                clock.now += UPLOAD_S
            return message

        await app(scope, receiving, send)

    return called


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("rounds", [1, 3])
async def test_before_and_first_byte(kit: DialectKit, stream: bool, rounds: int, clock: Clock) -> None:
    """What callfuse adds before the call of the app is without the upload; the first byte is with both. Of an answer
    that passes, and of one that is followed from its start."""
    answer = replace(reply(kit, elsewhere(), stream=stream), gate=clock.gate(FIRST_S))
    guarded, seen = slow(clock, answer)
    begin = clock.now
    await drive(uploading(clock, guarded), ask(kit, spin(rounds), stream=stream))
    ended = seen.one(ExchangeEnded)
    assert ended.mode == ("watched" if rounds == 1 else "guarded")
    assert ended.before_seconds == LEDGER_S
    assert ended.first_byte_seconds == UPLOAD_S + LEDGER_S + FIRST_S
    assert ended.seconds == clock.now - begin >= ended.first_byte_seconds
    assert ended.asked_seconds == 0


async def test_an_answer_that_nobody_reads(clock: Clock) -> None:
    """Its first byte is known all the same."""
    guarded, seen = slow(clock, Reply((b"one", b"two"), gate=clock.gate(FIRST_S)))
    await drive(guarded, Request("/v1/chat/completions", b"no json"))
    ended = seen.one(ExchangeEnded)
    assert (ended.mode, ended.before_seconds, ended.first_byte_seconds) == ("passed", 0, FIRST_S)


async def test_an_answer_of_callfuse_has_no_first_byte_of_the_app(clock: Clock) -> None:
    """Nor has one that never came."""
    guarded, seen = slow(clock, framewise(CHAT, TALK))
    await drive(guarded, ask(CHAT, History((User("!/status"),)), stream=True))
    assert seen.one(ExchangeEnded).mode == "answered"
    assert seen.one(ExchangeEnded).first_byte_seconds == 0
    guarded, seen = slow(clock, Reply((), raises=LookupError()))
    await drive(guarded, ask(CHAT, spin(1), stream=True))
    assert seen.one(ExchangeEnded).first_byte_seconds == 0


@every_dialect
@streamed_and_whole
async def test_time_in_asking_again(kit: DialectKit, stream: bool, clock: Clock) -> None:
    """It is what of the hold came after the call was complete; the rest of the hold is the model's own time."""
    first = replace(reply(kit, again(), stream=stream), gate=clock.gate(FIRST_S, 0.0))
    second = replace(reply(kit, TALK, stream=stream), gate=clock.gate(60.0, 0.0))
    guarded, seen = slow(clock, first, second, ladder="steer")
    await drive(guarded, ask(kit, spin(), stream=stream))
    ended = seen.one(ExchangeEnded)
    assert ended.action == "steer"
    assert ended.asked_seconds == 60.0
    assert ended.held_seconds >= 60.0
    assert ended.first_byte_seconds == LEDGER_S + FIRST_S


async def test_time_in_a_hold_alone(clock: Clock) -> None:
    """Bytes that wait while the model writes on are held, and nobody is asked."""
    guarded, seen = slow(clock, replace(framewise(CHAT, again()), gate=clock.gate(FIRST_S)))
    await drive(guarded, ask(CHAT, spin(), stream=True))
    ended = seen.one(ExchangeEnded)
    assert (ended.action, ended.asked_seconds) == ("block", 0)
    assert ended.held_seconds >= NEXT_S
    assert ended.held_seconds % NEXT_S == 0


async def test_the_route_is_the_setting_s() -> None:
    """And that of its vendor; every other path is `/`."""
    config = {"serve": {"routes": [{"path": "/eu", "upstream": "https://eu.example", "backend": "azure"}]}}
    guarded, seen = CallFuseMiddleware(play(framewise(CHAT, TALK)), config), Observed()
    guarded.bus.add(seen)
    request = ask(CHAT, spin(1), stream=True)
    await drive(guarded, request)
    await drive(guarded, replace(request, path=f"/eu{request.path}"))
    await drive(guarded, replace(request, path=f"/eu{request.path}", body=b"no json"))
    told = [(one.route, one.where.backend) for one in seen.of(ExchangeEnded)]
    assert told == [("/", "openai"), ("/eu", "azure"), ("/eu", "azure")]


async def test_exchanges_in_flight() -> None:
    """From the request to the end, however that comes; also where the guard is off."""
    found = []

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        found.append(guarded.in_flight)
        if len(found) == 2:
            guarded.configure({"tool_call_loop": {"enabled": False}})
        raise LookupError

    guarded = CallFuseMiddleware(app, settings())
    for _ in range(4):
        await drive(guarded, ask(CHAT, spin(1), stream=True))
        assert guarded.in_flight == 0
    assert found == [1, 1, 1, 1]

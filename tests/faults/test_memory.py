"""What stays in memory: after an exchange only the ledger, which is bounded."""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from callfuse.guard.calls import AnswerCalls
from callfuse.guard.queue import HoldQueue, KeptBytes
from tests.support.asgi import drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise
from tests.support.model import Call, History, Round, User
from tests.support.plain import again, elsewhere, new_call, same_call, saying, spin
from tests.support.scripted import OTHER_STREAMS, Reply, ScriptedApp, play

pytestmark = pytest.mark.usefixtures("frozen_heap")
PER_EXCHANGE = ("callfuse.guard", "callfuse.asgi", "callfuse.wire", "callfuse.dialects")
"""Where the objects that serve one exchange are made."""
OF_THE_LOOP = "callfuse.asgi.silence._Waits"
"""Each event loop has one of these, from its first exchange on."""


def living(*, collected: bool = True) -> Counter[str]:
    """The objects of callfuse's exchange-bound modules that are alive, by class."""
    if collected:
        gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    ours = [kind for kind in kinds if str(kind.__module__).startswith(PER_EXCHANGE)]
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in ours]
    return Counter(name for name in names if name != OF_THE_LOOP)


QUIET_WAYS = ("pass", "steer", "block", "garbage", "error status")
HEALTHY_WAYS = ("healthy", "handed over", "handed over and cut")
WAYS = (*QUIET_WAYS, *HEALTHY_WAYS, "break in a hold", "end in a hold")


LONG = History(
    (
        User("Read it all."),
        *[Round((Call(f"call_p{page}", "lookup", (f'{{"page": {page}}}',)),), (f"page {page}",)) for page in range(20)],
    )
)
"""More different calls than a window holds."""


class Broke(Exception):
    """The upstream broke."""


def scripts(kit: DialectKit) -> dict[str, tuple[Reply, ...]]:
    """Exchanges that end in every way."""
    looping, changed = framewise(kit, again()), framewise(kit, elsewhere())
    held = [frame.raw for frame in kit.frames(saying(same_call()))][:3]
    equal = [new_call(f"call_e{at}Q") for at in range(10)]
    return {
        "pass": (framewise(kit, saying("Hi.")),),
        "healthy": (framewise(kit, saying("Well.", new_call())),),
        "handed over": (framewise(kit, saying("Well.", *equal[:5])),),
        "handed over and cut": (framewise(kit, saying("Well.", *equal)),),
        "steer": (looping, changed),
        "block": (looping, looping),
        "break in a hold": (Reply(tuple(held), raises=Broke("x")),),
        "end in a hold": (Reply(tuple(held)),),
        "garbage": (Reply((b"data: {\n\n" * 3,)),),
        "error status": (Reply((b"{}",), status=500),),
    }


def history_of(way: str) -> History:
    """The conversation in which an exchange ends so."""
    return LONG if way in HEALTHY_WAYS else spin()


@every_dialect
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_an_exchange_stays(kit: DialectKit, way: str) -> None:
    """However it ends, its buffers, frames and calls are gone, and twenty of them leave what one does."""
    app = ScriptedApp(())
    guarded = guard(app, "chance_then_block")

    def run(times: int) -> Counter[str]:
        async def each() -> None:
            for _ in range(times):
                app.replies = scripts(kit)[way]
                app.heard.clear()
                await drive(guarded, ask(kit, history_of(way), stream=True))

        asyncio.run(each())
        return living()

    once = run(1)
    assert run(20) == once


@pytest.fixture
def _no_collector(frozen_heap: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@every_dialect
@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("stored", [False, True], ids=["", "stored"])
@pytest.mark.parametrize("way", [*HEALTHY_WAYS, *QUIET_WAYS])
def test_the_collector_has_nothing_to_do(kit: DialectKit, way: str, stored: bool) -> None:
    """An exchange is gone with its last message: no cycle holds its body, which may be large, any longer."""
    app = ScriptedApp(())
    guarded = guard(app, "chance_then_block")
    asked = ask(kit, history_of(way), stream=True)
    if stored:  # by vendors that do
        asked = replace(asked, body=asked.body.replace(b'"store":false', b'"store":true'))

    async def talk() -> None:
        for _ in range(3):  # the first leaves something in the ledger
            app.replies = scripts(kit)[way]
            await drive(guarded, asked)
            app.heard.clear()

    asyncio.run(talk())
    left = living(collected=False)
    gc.collect()
    assert left - living() == Counter()


@every_dialect
async def test_nothing_stays_when_the_client_leaves(kit: DialectKit) -> None:
    """A client that leaves during a hold leaves no task and no buffer behind."""
    before, tasks = living(), len(asyncio.all_tasks())
    for _ in range(20):
        await _leave_in_a_hold(kit)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == tasks
    assert sum((living() - before).values()) == 0


async def _leave_in_a_hold(kit: DialectKit) -> None:
    leave, app = asyncio.Event(), play()
    listed = kit.frames(again())
    last = max(at for at, frame in enumerate(listed) if frame.item == 1)

    async def gate(at: int) -> None:
        if at == last:
            leave.set()
            assert app.left
            await app.left.wait()
            raise Broke("the server ends what nobody reads")

    app.replies, app.left = (Reply(tuple(frame.raw for frame in listed), gate=gate),), asyncio.Event()
    await drive(guard(app), ask(kit, spin(), stream=True), leave=leave)
    assert app.heard[0].disconnected


@every_dialect
@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("breaks", [True, False], ids=["breaks", "ends"])
async def test_the_collector_has_nothing_to_do_when_a_hold_is_cut(kit: DialectKit, breaks: bool) -> None:
    """An upstream that dies in a hold leaves no cycle, whatever frames its exception holds."""
    (held,) = scripts(kit)["end in a hold"]
    start = {"type": "http.response.start", "status": 200, "headers": list(held.headers)}
    start["headers"] = [(name, OTHER_STREAMS.get(kit.path, value)) for name, value in held.headers]
    asked = ask(kit, spin(), stream=True)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(dict(start))
        for chunk in held.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if breaks:
            raise Broke("the connection")

    guarded = guard(app)
    for _ in range(3):
        messages = asked.messages()
        sent: list[str] = []

        async def receive(messages: list[Any] = messages) -> Any:
            return messages.pop(0)

        async def send(message: Any, sent: list[str] = sent) -> None:
            sent.append(message["type"])

        with suppress(Broke):
            await guarded(asked.scope(), receive, send)
        assert "http.response.body" in sent
        await asyncio.sleep(0)
    left = living(collected=False)
    gc.collect()
    assert left - living() == Counter()


@every_dialect
@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("history", [LONG, spin()], ids=["healthy", "looping"])
async def test_bodies_and_chunks_are_let_go_at_once(kit: DialectKit, history: History) -> None:
    """With the last message, nobody but the test holds the request's body or a chunk of the answer any more."""
    asked = ask(kit, history, stream=True)
    chunks = framewise(kit, saying("Well.", new_call())).chunks
    app = ScriptedApp((Reply(chunks),))
    guarded = guard(app)
    things = [asked.body, *(chunk for chunk in chunks if chunks.count(chunk) == 1)]
    before = [sys.getrefcount(thing) for thing in things]
    await drive(guarded, asked)
    app.heard.clear()
    assert [sys.getrefcount(thing) for thing in things] == before


@every_dialect
@pytest.mark.usefixtures("_no_collector")
async def test_a_client_that_leaves_in_its_upload_leaves_nothing(kit: DialectKit) -> None:
    """What has come of the body goes to the app, and then nowhere."""
    body = ask(kit, LONG, stream=True).body
    half = body[: len(body) // 2]
    asked = replace(ask(kit, LONG, stream=True), body=half)
    messages = [{"type": "http.request", "body": half, "more_body": True}, {"type": "http.disconnect"}]
    heard: list[str] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        heard.extend([(await receive())["type"], (await receive())["type"], (await receive())["type"]])

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_message: Any) -> None:
        raise AssertionError("nothing is answered")

    before = living(collected=False)
    count = sys.getrefcount(half)
    await guard(app)(asked.scope(), receive, send)
    assert heard == ["http.request", "http.disconnect", "http.disconnect"]
    assert living(collected=False) == before
    assert sys.getrefcount(half) == count - 1  # the message's own


PARSED = ("ChatRequest", "MessagesRequest", "ResponsesRequest", "GeminiRequest", ".Round", ".PastCall", ".Timeline")
"""The classes of what is parsed of a request: the dialects' requests, and what their history becomes."""


@every_dialect
@pytest.mark.parametrize("ladder", ["chance_then_block", "warn"])
async def test_an_open_healthy_stream_keeps_nothing_parsed(kit: DialectKit, ladder: str) -> None:
    """While it streams: no request, no round, no call of the history; and the answer's end is kept all the same."""
    app = ScriptedApp(())
    guarded = guard(app, ladder)
    found: list[Counter[str]] = []

    async def look(at: int) -> None:
        if at == 1:
            gc.collect()
            things = gc.get_objects()
            found.append(Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in things))
            del things

    def kept() -> int:
        return sum(n for name, n in found[-1].items() if name.startswith("callfuse.") and name.endswith(PARSED))

    async def exchange(history: History, gate: Any = None) -> None:
        chunks = framewise(kit, saying("Well.", again().calls()[0])).chunks
        app.replies = (Reply(chunks, gate=gate),)
        await drive(guarded, ask(kit, history, stream=True))
        app.heard.clear()

    await look(1)
    before = kept()
    await exchange(LONG, look)
    assert kept() == before
    await exchange(LONG.and_then(Round((same_call("call_first"),), ("nothing",))), look)
    assert kept() == before


@every_dialect
@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
async def test_an_error_that_is_kept_keeps_no_held_byte(kit: DialectKit, ladder: str) -> None:
    """Its traceback leads to the exchange: where an upstream dies in a hold, of the first answer or of the one asked
    for, and a host keeps the error, the guard has let go of all."""
    frames = [frame.raw for frame in kit.frames(again())]
    dies = Reply(tuple(frames[:-1]), raises=Broke())
    replies = (dies,) if ladder == "block" else (Reply(tuple(frames)), dies)
    kept: list[Broke] = []
    app = ScriptedApp(replies)
    guarded = guard(app, ladder)
    asked = ask(kit, spin(), stream=True)
    sent: list[Any] = []
    messages = asked.messages()

    async def receive() -> Any:
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message["type"])

    try:
        await guarded(asked.scope(), receive, send)
    except Broke as error:
        kept.append(error)
    del app, guarded, dies, replies
    assert guards_with_bytes() == []
    assert kept or ladder != "block"
    assert sent


def guards_with_bytes() -> list[Any]:
    """The queues of guards in which something waits, or calls that one has assembled."""
    things = [one for one in gc.get_objects() if isinstance(one, HoldQueue | KeptBytes | AnswerCalls)]
    return [
        one
        for one in things
        if (one.any if isinstance(one, AnswerCalls) else one.size if isinstance(one, HoldQueue) else one.chunks != [])
    ]

"""Watched answers whose call of the app has ended: cancelled in the middle, or gone on with behind its end."""

import asyncio
from typing import Any

from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise
from tests.support.model import History, User
from tests.support.plain import new_call, once, saying
from tests.support.scripted import OTHER_STREAMS, whole

FRESH = History((User("Find the giraffe."),))
BODY = "http.response.body"
TURNS = 100
"""Turns of the event loop in which whatever waits for nothing has ended."""


@every_dialect
async def test_a_cancelled_call_waits_for_nobody(kit: DialectKit) -> None:
    """A whole answer waits for its end when the host cancels the exchange: a client that reads nothing is not waited
    for."""
    answer = whole(kit.whole(saying("Well.", new_call())))

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": list(answer.headers)})
        await send({"type": BODY, "body": answer.body[:20], "more_body": True})
        await asyncio.Event().wait()

    asked = ask(kit, FRESH, stream=False)
    messages = asked.messages()

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_message: Any) -> None:
        await asyncio.Event().wait()

    exchange = asyncio.ensure_future(guard(app)(asked.scope(), receive, send))
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not exchange.done()
    exchange.cancel()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert exchange.cancelled()


@every_dialect
async def test_what_comes_behind_the_end_leads_nowhere(kit: DialectKit) -> None:
    """A task that an app has left behind goes on with an answer whose calls are withheld: nothing of it is sent."""
    reply = framewise(kit, saying("Well.", *(new_call(f"call_e{at}Q") for at in range(5))))
    sends: list[Any] = []
    sent: list[bytes] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in reply.chunks[:-2]:
            await send({"type": BODY, "body": chunk, "more_body": True})
        sends.append(send)

    asked = ask(kit, once(new_call()), stream=True)
    headers = [(name, OTHER_STREAMS.get(asked.path, value)) for name, value in reply.headers]
    messages = asked.messages()

    async def receive() -> Any:
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    await guard(app)(asked.scope(), receive, send)
    before = list(sent)
    assert any(before)
    await sends[0]({"type": BODY, "body": reply.chunks[-1], "more_body": False})
    assert sent == before

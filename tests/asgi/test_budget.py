"""`max_total_bytes`, over all exchanges of a middleware, and `read_timeout_s`: what they end; no byte is lost."""

import asyncio
import gzip
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.budget import GRAIN, ByteBudget
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import ask, every_dialect, framewise, given_log, reply, streamed_and_whole
from tests.support.plain import again, elsewhere, same_call, saying, spin
from tests.support.scripted import Reply, play

FIRST = b"call_first"
LONG_CALL = saying("Let me look. " * 400, same_call("call_first"), "And so on. " * 400)
"""Some of it is held, the rest is kept for the model's turn."""


def cut(one: Reply, size: int = 400) -> Reply:
    """The same reply in chunks of a size."""
    body = one.body
    return one.cut(tuple(body[at : at + size] for at in range(0, len(body), size)))


def used(guarded: CallFuseMiddleware) -> int:
    """What the middleware counts as kept."""
    return guarded._host.budget.used


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
async def test_nothing_is_counted_once_an_exchange_is_over(kit: DialectKit, stream: bool, ladder: str) -> None:
    """However it ends: what it has kept is given back to the others."""
    script = [cut(reply(kit, one, stream=stream)) for one in (LONG_CALL, elsewhere())]
    broken = replace(script[0], chunks=script[0].chunks[:-2], raises=ConnectionError("x"))
    for replies in ([script[0], script[1]], [script[0], script[0]], [broken], [Reply((b"{}",), status=500)]):
        for history in (spin(1), spin()):
            guarded = CallFuseMiddleware(play(*replies), settings(ladder))
            with given_log():
                await drive(guarded, ask(kit, history, stream=stream))
            assert used(guarded) == 0


@every_dialect
@streamed_and_whole
async def test_a_hold_over_the_budget_is_released(kit: DialectKit, stream: bool) -> None:
    """The bytes leave as they came, the rest passes, and it is counted."""
    request, script = ask(kit, spin(), stream=stream), cut(reply(kit, LONG_CALL, stream=stream))
    counted: list[int] = []

    async def note(_at: int) -> None:
        counted.append(used(guarded))

    limit = len(request.body) + 7000
    guarded = CallFuseMiddleware(play(replace(script, gate=note)), settings("block", max_total_bytes=limit))
    with given_log():
        exchange = await drive(guarded, request)
    assert exchange.body == script.body
    assert guarded.counts.of("fail_open", "max_total_bytes") == 1
    assert len(request.body) < max(counted) <= limit
    assert used(guarded) == 0


@every_dialect
@streamed_and_whole
async def test_the_budget_is_that_of_all_exchanges(kit: DialectKit, stream: bool) -> None:
    """What one holds is missing for the next; when it is over, the next one is guarded."""
    request, script = ask(kit, spin(), stream=stream), cut(reply(kit, LONG_CALL, stream=stream))
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def stop(at: int) -> None:
        if at == len(script.chunks) - 1 and not go_on.is_set():
            waits.set()
            await go_on.wait()

    app = play(replace(script, gate=stop))
    limit = 2 * len(request.body) + len(script.body) + 2000
    guarded = CallFuseMiddleware(app, settings("block", max_total_bytes=limit))
    with given_log():
        first = asyncio.create_task(drive(guarded, request))
        await waits.wait()
        app.replies = (script,)
        second = await drive(guarded, request)
        go_on.set()
        assert FIRST not in (await first).body
        third = await drive(guarded, request)
    assert second.body == script.body
    assert FIRST not in third.body
    assert guarded.counts.of("fail_open", "max_total_bytes") == 1


@every_dialect
async def test_a_request_over_the_budget_is_not_guarded(kit: DialectKit) -> None:
    """It reaches the app whole."""
    request, script = ask(kit, spin(), stream=True), reply(kit, again(), stream=True)
    size = len(request.body) // 3
    request = replace(request, chunks=(request.body[:size], request.body[size:-size], request.body[-size:]))
    app = play(script)
    guarded = CallFuseMiddleware(app, settings("block", max_total_bytes=2 * size))
    with given_log():
        exchange = await drive(guarded, request)
    assert exchange.body == script.body
    assert app.heard[0].body == request.body
    assert guarded.counts.of("not_guarded", "max_total_bytes") == 1
    assert used(guarded) == 0


@every_dialect
@pytest.mark.parametrize("room", [True, False])
async def test_a_compressed_request_counts_unpacked_too(kit: DialectKit, room: bool) -> None:
    """Both are kept while it is guarded."""
    request, script = ask(kit, spin(), stream=True), reply(kit, again(), stream=True)
    packed = gzip.compress(request.body)
    limit = len(packed) + (10 * len(script.body) + len(request.body) if room else len(request.body) // 2)
    headers = (*request.headers, (b"content-encoding", b"gzip"))
    guarded = CallFuseMiddleware(app := play(script), settings("block", max_total_bytes=limit))
    with given_log():
        exchange = await drive(guarded, replace(request, body=packed, headers=headers))
    assert (FIRST in exchange.body) is not room
    assert guarded.counts.of("not_guarded", "max_total_bytes") == (not room)
    assert room or app.heard[0].body == packed
    assert used(guarded) == 0


@every_dialect
async def test_a_whole_answer_over_the_budget_is_not_watched(kit: DialectKit) -> None:
    """A healthy answer is buffered only to be read; it passes all the same."""
    request, script = ask(kit, spin(1), stream=False), cut(reply(kit, LONG_CALL, stream=False))
    guarded = CallFuseMiddleware(play(script), settings("block", max_total_bytes=len(request.body) + 2000))
    with given_log():
        exchange = await drive(guarded, request)
    assert exchange.body == script.body
    assert guarded.counts.of("not_watched", "max_total_bytes") == 1


@every_dialect
async def test_a_long_event_over_the_budget_is_not_watched(kit: DialectKit) -> None:
    """Of a healthy stream, an event waits for its end; what is counted of it is given back with the event."""
    answer = saying("Let me look. " * 3000, same_call("call_first"))
    request, script = ask(kit, spin(1), stream=True), cut(reply(kit, answer, stream=True))
    longest = max(len(frame.raw) for frame in kit.frames(answer))
    assert longest > 4 * GRAIN
    for room in (2 * longest, longest // 2):
        guarded = CallFuseMiddleware(play(script), settings("block", max_total_bytes=len(request.body) + room))
        with given_log():
            exchange = await drive(guarded, request)
        assert exchange.body == script.body
        assert guarded.counts.of("not_watched", "max_total_bytes") == (room < longest)
        assert used(guarded) == 0


@every_dialect
async def test_a_client_that_falls_silent(kit: DialectKit) -> None:
    """What has come of its request goes to the app; what comes later follows."""
    request, script = ask(kit, spin(), stream=True), reply(kit, again(), stream=True)
    half = len(request.body) // 2
    parts = [request.body[:half], request.body[half:]]
    speaks = asyncio.Event()
    heard: list[Any] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        heard.append(await receive())
        speaks.set()
        heard.append(await receive())
        await play(script)._play(script, send, b"text/event-stream")

    async def receive() -> Any:
        if len(parts) == 1:
            await speaks.wait()
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    guarded = CallFuseMiddleware(app, settings("block", read_timeout_s=0.05))
    with given_log():
        await guarded(request.scope(), receive, send)
    assert b"".join(message["body"] for message in heard) == request.body
    assert b"".join(message.get("body", b"") for message in sent) == script.body
    assert guarded.counts.of("not_guarded", "read_timeout_s") == 1


async def test_a_slow_client_is_read_to_its_end() -> None:
    """The limit is on the pause, not on the whole."""
    kit = KITS[0]
    body = ask(kit, spin(), stream=True).body
    request = replace(ask(kit, spin(), stream=True), chunks=tuple(body[at : at + 50] for at in range(0, len(body), 50)))
    messages = request.messages()

    async def receive() -> Any:
        await asyncio.sleep(0.003)
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    assert len(messages) * 0.003 > 0.05
    guarded = CallFuseMiddleware(play(framewise(kit, again())), settings("block", read_timeout_s=0.5))
    with given_log():
        await guarded(request.scope(), receive, send)
    assert FIRST not in b"".join(message.get("body", b"") for message in sent)


def test_a_share_is_given_back_once() -> None:
    """Closing twice gives back nothing that belongs to others."""
    budget = ByteBudget(10)
    one, other = budget.open(), budget.open()
    assert one.add(4)
    assert other.add(6)
    assert not one.hold(1)
    assert one.hold(0)
    one.close()
    one.close()
    assert budget.used == 6
    other.close()
    assert budget.used == 0


def test_a_new_limit_holds_at_once() -> None:
    """`configure` changes it for all that run."""
    guarded = CallFuseMiddleware(play(), settings("block"))
    assert guarded._host.budget.limit == 512 * 1024 * 1024
    guarded.configure(settings("block", max_total_bytes=5))
    assert guarded._host.budget.limit == 5

"""The middleware: what leaves no trace, what is not changed, and what stacked guards do."""

import gzip
import json
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi.types import Receive, Scope, Send
from callfuse.conversations.memory import MemoryLedger
from tests.guard.driving import each_kit
from tests.guard.written import OPENAI
from tests.support.asgi import JSON_REQUEST, Headers, Request, drive
from tests.support.config import guard, settings
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, given_log, meet, reply, streamed_and_whole
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import ScriptedApp, play


def with_limit(kit: DialectKit, request: Request, key: str, value: Any) -> Request:
    """The same request with one more field."""
    return Request(request.path, json.dumps(json.loads(request.body) | {key: value}).encode(), request.headers)


@each_kit
@pytest.mark.parametrize(("key", "value"), [("max_tokens", 1), ("tools", []), ("tools", None)])
async def test_a_probe_leaves_no_trace(kit: DialectKit, key: str, value: Any) -> None:
    """One token, or no tools: neither judged nor counted, and the ledger is as it was."""
    app = play(reply(kit, again(), stream=True))
    guarded = CallFuseMiddleware(app, settings())
    probe = with_limit(kit, ask(kit, spin(), stream=True), key, value)
    for _ in range(3):
        exchange = await drive(guarded, probe)
        assert exchange.body == app.replies[0].body
        assert app.heard[-1].body == probe.body
    assert len(guarded.ledger) == 0  # type: ignore[arg-type]  # the default ledger has a length
    assert guarded.counts.of("findings") == 0


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["block", "chance_then_block", "warn", "observe"])
async def test_two_guards_are_no_worse_than_one(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Stacked, the inner one acts and the outer one sees a healthy answer; no text stands twice in a result."""
    app = play(reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream))
    alone = play(*app.replies)
    one = await drive(guard(alone, ladder), ask(kit, spin(3), stream=stream))
    two = await drive(guard(guard(app, ladder), ladder), ask(kit, spin(3), stream=stream))
    assert two.raised is None
    assert two.body == one.body
    if ladder == "warn":
        assert all(result.count(MARK) <= 1 for _, result in kit.results(app.heard[0].body))


SIGNED: Headers = (*JSON_REQUEST, (b"content-digest", b"sha-256=:x:"))


@each_kit
@pytest.mark.parametrize(("ladder", "blocked"), [("warn", False), ("chance_then_block", True), ("block", True)])
def test_a_signed_request_is_not_changed(kit: DialectKit, ladder: str, blocked: bool) -> None:
    """Not by a warning, nor is it sent a second time."""
    request = ask(kit, spin(3), stream=True, headers=SIGNED)
    met = meet(request, [reply(kit, again(), stream=True), reply(kit, elsewhere(), stream=True)], ladder)
    assert [heard.body for heard in met.app.heard] == [request.body]
    assert (MARK.encode() in met.body) is blocked


@each_kit
def test_a_packed_request_is_read_and_sent_on(kit: DialectKit) -> None:
    """Unchanged as it came, changed as plain bytes."""
    request = ask(kit, spin(3), stream=True, headers=(*JSON_REQUEST, (b"content-encoding", b"gzip")))
    packed = Request(request.path, gzip.compress(request.body, mtime=0), request.headers)
    kept = meet(packed, [reply(kit, again(), stream=True)], "block").app.heard[0]
    assert kept.body == packed.body
    assert kept.header(b"content-encoding") == b"gzip"
    warned = meet(packed, [reply(kit, again(), stream=True)], "warn").app.heard[0]
    assert MARK.encode() in warned.body
    assert warned.header(b"content-encoding") is None
    assert warned.header(b"content-length") == str(len(warned.body)).encode()


@each_kit
async def test_the_same_cause_is_logged_once(kit: DialectKit) -> None:
    """And counted each time."""
    app = play(reply(kit, again(), stream=True))
    guarded = CallFuseMiddleware(app, settings())
    with given_log() as log:
        for _ in range(3):
            await drive(guarded, Request(kit.path, b"{"))
    assert len(log) == 1
    assert guarded.counts.of("not_guarded") == 3


async def test_the_app_may_write_into_its_scope() -> None:
    """Starlette's `Mount` does; the second call of the app gets a scope as it came in."""
    seen: list[str] = []
    inner = play(reply(OPENAI, again(), stream=True), reply(OPENAI, saying("Done."), stream=True))

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["root_path"])
        scope["root_path"] += "/api"
        await inner(scope, receive, send)

    await drive(guard(mounted, "chance_then_block"), ask(OPENAI, spin(), stream=True))
    assert seen == ["", ""]


def test_an_app_is_all_it_takes() -> None:
    """A class, the app first; nothing is read or opened before the first request."""
    app = ScriptedApp(())
    assert CallFuseMiddleware(app).app is app


def test_a_store_that_is_given_is_used() -> None:
    """Also one that is still empty, and so counts as false."""
    store = MemoryLedger(max_lanes=1, ttl_s=1)
    assert CallFuseMiddleware(play(), {}, store=store).ledger is store

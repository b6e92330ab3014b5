"""Law 1 at its edges: what is none of callfuse's business passes as if it were not there."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.asgi import JSON_REQUEST, App, Message, Request, drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, bare, every_dialect, meet, reply
from tests.support.plain import again, saying, spin
from tests.support.scripted import Reply, gzipped, play, whole


@every_dialect
@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_the_upstreams_errors_stay_its_own(kit: DialectKit, status: int) -> None:
    """An error status keeps its start, headers and body, even where everything else says loop."""
    request = ask(kit, spin(), stream=True)
    script = whole(b'{"error":{"message":"no"}}', status, (b"retry-after", b"7"), (b"etag", b'"x"'))
    met, plain = meet(request, [script]), bare(request, [script])
    assert met.client.start == plain.client.start
    assert met.body == plain.body
    assert len(met.app.heard) == 1


@every_dialect
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", None, b""),
        ("POST", "/v1/embeddings", None),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1/messages/batches", None),
        ("POST", None, b"{not json"),
        ("POST", None, b""),
        ("POST", None, b"[1, 2, 3]"),
        ("POST", None, b'{"messages": "hello"}'),
        ("POST", None, b'{"messages": [1, {"role": 7}], "model": null}'),
        ("POST", None, b"\xff\xfe\x00binary"),
    ],
)
def test_what_is_no_exchange_passes(kit: DialectKit, method: str, path: str | None, body: bytes | None) -> None:
    """Other methods, other paths and bodies that are not of the dialect: both sides see the same messages."""
    asked = ask(kit, spin(), stream=True)
    request = Request(path or asked.path, asked.body if body is None else body, method=method, query=b"a=%20b")
    script = reply(kit, again(), stream=True)
    met, plain = meet(request, [script]), bare(request, [script])
    assert [message for _, message in met.client.sent] == [message for _, message in plain.client.sent]
    assert met.app.heard == plain.app.heard


@every_dialect
@pytest.mark.parametrize("coding", [b"compress", b"x-unheard-of"])
def test_an_answer_in_another_coding_passes(kit: DialectKit, coding: bytes) -> None:
    """An answer in a coding that callfuse cannot take off is passed on as it is, with its header."""
    request = ask(kit, spin(), stream=True)
    packed = gzipped(reply(kit, again(), stream=True))
    script = Reply(packed.chunks, headers=(*packed.headers[:-1], (b"content-encoding", coding)))
    met, plain = meet(request, [script]), bare(request, [script])
    assert met.body == plain.body
    assert met.client.header(b"content-encoding") == coding


@every_dialect
@pytest.mark.parametrize(("before", "wanted"), [(1, b"gzip, br"), (2, b"identity")])
def test_identity_is_asked_for_only_under_suspicion(kit: DialectKit, before: int, wanted: bytes) -> None:
    """The app is asked for plain bytes where a call could be a loop; else the client's wish stands."""
    headers = (*JSON_REQUEST, (b"accept-encoding", b"gzip, br"))
    met = meet(ask(kit, spin(before), stream=True, headers=headers), [reply(kit, saying("Hi."), stream=True)])
    assert met.app.heard[0].header(b"accept-encoding") == wanted


@every_dialect
def test_disabled_means_absent(kit: DialectKit) -> None:
    """Switched off, a loop goes through, and nothing else changes either."""
    request, script = ask(kit, spin(5), stream=True), reply(kit, again(), stream=True)
    met, plain = meet(request, [script], enabled=False), bare(request, [script])
    assert met.client.sent == plain.client.sent
    assert met.app.heard == plain.app.heard
    assert met.log == ()


def echo(*messages: Message) -> tuple[App, list[Any]]:
    """An app that sends these messages and keeps what it got."""
    got: list[Any] = []

    async def app(scope: Any, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        got.append(scope)
        got.append(await receive())
        for message in messages:
            await send(message)

    return app, got


@pytest.mark.parametrize("kind", ["lifespan", "websocket", "something.new"])
async def test_other_scopes_pass_untouched(kind: str) -> None:
    """Scope, messages and callables of other protocols reach the app as they are."""
    app, got = echo({"type": f"{kind}.answer"})
    scope: dict[str, Any] = {"type": kind, "path": "/chat", "headers": []}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": f"{kind}.question"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guard(app)(scope, receive, send)
    assert got[0] is scope
    assert got[1] == {"type": f"{kind}.question"}
    assert sent == [{"type": f"{kind}.answer"}]


@every_dialect
@pytest.mark.parametrize("extra", ["http.response.trailers", "http.response.pathsend", "http.response.debug"])
async def test_messages_of_extensions_pass(kit: DialectKit, extra: str) -> None:
    """Trailers, files sent by path and whatever else ASGI grows go through in their place."""
    start: Message = {"type": "http.response.start", "status": 200, "headers": [], "trailers": True}
    messages = [start, {"type": extra, "path": "/tmp/x", "headers": [(b"a", b"b")], "more_trailers": False}]
    app, _ = echo(*messages)
    exchange = await drive(guard(app), ask(kit, spin(1), stream=True))
    assert [message for _, message in exchange.sent] == messages


@every_dialect
async def test_the_app_hears_the_client_after_the_body(kit: DialectKit) -> None:
    """The body is replayed as the app would have got it, and then the disconnect is the real one."""
    app = play(reply(kit, saying("Hi."), stream=True))
    exchange = await drive(guard(app), ask(kit, spin(), stream=True))
    assert exchange.complete
    assert app.heard[0].body == ask(kit, spin(), stream=True).body
    assert app.heard[0].header(b"content-length") == str(len(app.heard[0].body)).encode()

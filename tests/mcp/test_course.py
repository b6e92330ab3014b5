"""What comes of calls: cancelled, cut off, taken up again, answered with a question or a task; and what goes wrong."""

import asyncio
import gc
from typing import Any

import pytest
import trio

from callfuse.mcp import MCPMiddleware
from callfuse.mcp import exchange as mcp_exchange
from callfuse.mcp.caller import Caller
from callfuse.mcp.callers import KnownCaller
from callfuse.observe.events import ExchangeEnded, NotGuarded
from tests.mcp.server import (
    META,
    NEW,
    OLD,
    ToolServer,
    call,
    dumps,
    guarded,
    notices,
    observed,
    post,
    responses,
    result,
    text,
)
from tests.support.asgi import Exchange, Request, drive, run, run_all


class Stream:
    """Streams these frames in answer to a POST, and then ends, or waits until it is told to. To a GET it answers with
    `later`."""

    def __init__(self, *frames: bytes, later: tuple[bytes, ...] = (), waits: bool = False) -> None:
        self.frames = frames
        self.later = later
        self.runs = 0
        self.began = asyncio.Event()
        self.go: asyncio.Event | None = asyncio.Event() if waits else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["method"] == "POST":
            message = await receive()
            if b"notifications/" in message["body"]:
                await send({"type": "http.response.start", "status": 202, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            self.runs += 1
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in self.frames if scope["method"] == "POST" else self.later:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        self.began.set()
        if self.go is not None and scope["method"] == "POST":
            await self.go.wait()
        await send({"type": "http.response.body", "body": b""})


def frame(message: Any, *, id_: bytes = b"") -> bytes:
    """An event with this message."""
    return (b"id: " + id_ + b"\n" if id_ else b"") + b"event: message\ndata: " + dumps(message) + b"\n\n"


def response(id_: Any = 1, said: str = "nothing was found") -> dict[str, Any]:
    """The response to a call."""
    return {"jsonrpc": "2.0", "id": id_, "result": text(said)}


PRIMING = b"id: 1\ndata: \n\n"


def test_each_event_leaves_in_the_turn_in_which_it_came() -> None:
    """Progress is not delayed by what comes behind it."""
    note = frame({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
    exchange = run(guarded(Stream(PRIMING, note, b": ping\n\n", frame(response()))), call())
    parts = [message["body"] for _, message in exchange.sent[1:]]
    assert parts == [PRIMING, note, b": ping\n\n", frame(response()), b""]


def test_a_question_of_the_server_passes() -> None:
    """A request on the stream is not the response, though it has the same id."""
    asks = frame({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"result": {}}})
    server = Stream(asks, frame(response()))
    app = guarded(server)
    done = run_all(app, [call()] * 3)
    assert done[0].body == asks + frame(response())
    assert (server.runs, len(notices(done[2]))) == (2, 1)


@pytest.mark.parametrize("revision", ["old", "new"])
async def test_calls_that_the_client_leaves_are_hardly_a_loop(revision: str) -> None:
    """To try again after a time-out is what clients do: many more of them are let through."""
    server = Stream(b": open\n\n", waits=True)
    app = guarded(server)
    request = call() if revision == "old" else call(headers=NEW, meta=META)
    for _ in range(8):
        await leave_amid(app, request, server)
    assert server.runs == 8


async def leave_amid(app: MCPMiddleware, request: Request, server: Stream) -> None:
    """Begin a call, and end its task as a server does whose client has gone."""
    server.began.clear()
    task = asyncio.create_task(drive(app, request))
    await server.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


WORK = ("begin", "settle", "give_up", "cancel", "await_later", "take_awaited")


async def test_one_caller_s_calls_are_worked_on_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who works on them holds the lock, for others may do so in threads; also when a client leaves meanwhile."""
    known: list[KnownCaller] = []
    seen: list[str] = []
    original = KnownCaller.__init__

    def keeping(self: KnownCaller, *arguments: Any) -> None:
        original(self, *arguments)
        known.append(self)

    monkeypatch.setattr(KnownCaller, "__init__", keeping)
    for name in WORK:
        monkeypatch.setattr(Caller, name, watched(name, getattr(Caller, name), known, seen))
    server = Stream(PRIMING, waits=True)
    app = guarded(server)
    resume = Request("/mcp", b"", (*OLD, (b"last-event-id", b"1")), method="GET")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    task = asyncio.create_task(drive(app, call(id_=7)))
    await server.began.wait()
    await drive(app, post(cancel))
    await known[0].lock.acquire()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    known[0].lock.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    answering = Stream(later=(frame(response(), id_=b"2"),))
    app.app = answering
    await drive(app, call())
    await drive(app, resume)
    app.app = ToolServer()
    await drive(app, call({"q": "new"}))
    assert {"begin", "settle", "cancel", "await_later"} <= set(seen)


def watched(name: str, work: Any, known: list[KnownCaller], seen: list[str]) -> Any:
    """A method of `Caller` that says that it was called, and looks at the lock."""

    def watching(self: Caller, *arguments: Any) -> Any:
        seen.append(name)
        assert [one.lock.locked() for one in known if one.caller is self] == [True], name
        return work(self, *arguments)

    return watching


async def test_a_cancelled_call_does_not_count() -> None:
    """What the server says of it is no result."""
    server = Stream(waits=True)
    app = guarded(server)
    for at in range(6):
        server.began.clear()
        assert server.go is not None
        server.go.clear()
        task = asyncio.create_task(drive(app, call(id_=at)))
        await server.began.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": at}}
        assert (await drive(app, post(cancel))).status == 202
        server.go.set()
        assert not notices(await task)
    assert server.runs == 6


def test_a_result_that_comes_with_a_later_stream_counts() -> None:
    """The server closes the stream, the client takes it up with `Last-Event-ID`, and the result comes there."""
    server = Stream(PRIMING, later=(frame(response(), id_=b"2"),))
    app = guarded(server)
    resume = Request("/mcp", b"", (*OLD, (b"last-event-id", b"1")), method="GET")
    done = run_all(app, [call(), resume, call(), resume, call()])
    assert done[1].body == frame(response(), id_=b"2")
    assert server.runs == 2
    assert result(done[4])["content"][0]["text"] == "nothing was found"
    assert notices(done[4])
    assert app.held_bytes == 0


def test_a_warning_goes_with_a_result_that_comes_later() -> None:
    """On the stream on which it comes, once."""
    server = Stream(PRIMING, later=(frame(response(), id_=b"2"),))
    app = guarded(server, "warn")
    resume = Request("/mcp", b"", (*OLD, (b"last-event-id", b"1")), method="GET")
    done = run_all(app, [call(), resume, call(), resume, call(), resume, resume])
    assert [len(notices(one)) for one in done[1::2]] == [0, 0, 1]
    assert not notices(done[6])
    assert b"id: 2\n" in done[5].body


def test_a_stream_without_a_place_to_go_on_from_is_untouched() -> None:
    """A GET that takes up nothing passes as it comes."""
    half = frame(response())[:20]
    server = Stream(frame(response()), later=(half, frame(response())[20:]))
    app = guarded(server)
    run(app, call())
    exchange = run(app, Request("/mcp", b"", OLD, method="GET"))
    assert [message["body"] for _, message in exchange.sent[1:3]] == [half, frame(response())[20:]]


def test_a_call_that_asks_for_input_goes_on() -> None:
    """The client sends it again with what was asked for: that is no repeat, and its result is the call's."""

    def tool(params: dict[str, Any]) -> Any:
        if "inputResponses" in params:
            return text("nothing was found", resultType="complete")
        return {"resultType": "input_required", "requestState": "s", "inputRequests": {}}

    server = ToolServer(tool)
    app = guarded(server)
    ask = call(headers=NEW, meta=META)
    go_on = call(headers=NEW, meta=META, inputResponses={"a": {}}, requestState="s")
    done = run_all(app, [ask, go_on, ask, go_on, ask])
    assert len(server.runs) == 4
    assert result(done[4])["content"][0]["text"] == "nothing was found"
    assert notices(done[4])
    assert "requestState" not in result(done[4])


def test_a_warning_waits_for_the_result() -> None:
    """A question cannot carry it."""

    def tool(params: dict[str, Any]) -> Any:
        return text("nothing") if "inputResponses" in params else {"resultType": "input_required"}

    app = guarded(ToolServer(tool), "warn")
    ask, go_on = call(headers=NEW, meta=META), call(headers=NEW, meta=META, inputResponses={})
    done = run_all(app, [ask, go_on] * 3)
    assert [len(notices(one)) for one in done] == [0, 0, 0, 0, 0, 1]


def test_a_task_that_the_client_asks_for_is_the_servers() -> None:
    """Nobody else can give its handle."""
    server = ToolServer(lambda _: {"task": {"taskId": "t", "status": "working"}})
    app, seen = observed(server)
    run_all(app, [call(task={"ttl": 1000})] * 5)
    assert len(server.runs) == 5
    assert [event.cause for event in seen.of(NotGuarded)] == ["task"] * 5


def test_a_task_in_place_of_a_result_waits() -> None:
    """It still runs, and its handle is not given again."""
    server = ToolServer(lambda _: {"resultType": "task", "taskId": "786512e2", "status": "working"})
    app = guarded(server)
    run_all(app, [call(headers=NEW, meta=META)] * 8)
    assert len(server.runs) == 8


def test_an_error_of_the_app_reaches_the_host() -> None:
    """As without a guard, with what had come of the answer."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id"', "more_body": True})
        raise ValueError("oh")

    app, seen = observed(broken)
    exchange = run(app, call())
    assert repr(exchange.raised) == "ValueError('oh')"
    assert seen.one(ExchangeEnded).ending == "error"
    assert app.held_bytes == 0


def test_an_answer_that_breaks_off_does_so_for_the_client() -> None:
    """With the bytes that have come, and no end."""

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id"', "more_body": True})

    app, seen = observed(broken)
    exchange = run(app, call())
    assert exchange.body == b'{"id"'
    assert not exchange.complete
    assert seen.one(ExchangeEnded).ending == "broke off"


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("where", ["begin", "settle", "give_up"])
def test_errors_of_callfuse_let_calls_through(monkeypatch: pytest.MonkeyPatch, form: str, where: str) -> None:
    """Byte for byte, and counted."""

    def fail(*_: Any) -> Any:
        raise KeyError("bug")

    server, bare = ToolServer(form=form), ToolServer(form=form)
    app = guarded(server)
    monkeypatch.setattr(Caller, where, fail)
    done = run_all(app, [call()] * 2)
    assert [one.body for one in done] == [one.body for one in run_all(bare, [call()] * 2)]
    assert len(server.runs) == 2
    if where != "give_up":
        assert app.counts.of("fail_open") >= 2


def test_calls_that_cannot_be_judged_do_not_run_under_fail_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered with a text that says so."""

    def fail(*_: Any) -> Any:
        raise KeyError("bug")

    monkeypatch.setattr("callfuse.detect.engine.Engine.judge_round", fail)
    server = ToolServer()
    done = run_all(guarded(server, fail_closed=True), [call()] * 3)
    assert server.runs == []
    assert all("could not be checked" in notices(one)[0] for one in done)
    assert all(result(one)["isError"] for one in done)


@pytest.mark.parametrize(
    "body",
    [b"{", b"", b"null", b'{"id":1,"result":null}', b'{"id":1,"result":{"content":"x"}}', b'{"id":2,"result":{}}'],
)
def test_odd_answers_pass(body: bytes) -> None:
    """Whatever a server sends, the client gets it."""

    async def odd(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    app = guarded(odd, "warn")
    for _ in range(4):
        exchange = run(app, call())
        assert exchange.body == body
        assert exchange.complete
    assert app.counts.of("fail_open") == 0


def test_what_an_app_leaves_in_its_scope_is_handed_back() -> None:
    """Outer middlewares look for the route there."""
    request, seen = call(), {}

    async def app_(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "mine"
        await ToolServer()(scope, receive, send)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await guarded(app_)(scope, receive, send)
        seen.update(scope)

    run(outer, request)
    assert seen["route"] == "mine"
    assert dict(seen["headers"])[b"accept"] == dict(request.headers)[b"accept"]


def test_lifespan_and_websockets_pass() -> None:
    """They are the app's."""
    got: list[str] = []

    async def app_(scope: Any, receive: Any, send: Any) -> None:
        got.append(scope["type"])

    async def receive() -> Any:
        return {}

    async def send(_: Any) -> None:
        """Nothing is sent."""

    async def each() -> None:
        for kind in ("lifespan", "websocket"):
            await guarded(app_)({"type": kind, "path": "/mcp"}, receive, send)

    asyncio.run(each())
    assert got == ["lifespan", "websocket"]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("form", ["json", "sse"])
def test_nothing_of_an_exchange_stays(form: str, times: int, frozen_heap: None) -> None:
    """No cycle keeps a body until the garbage collector comes, though an app keeps its `send`."""
    kept: list[Any] = []
    server = ToolServer(form=form)

    async def app_(scope: Any, receive: Any, send: Any) -> None:
        kept.append((receive, send))
        await server(scope, receive, send)

    app = guarded(app_)
    gc.disable()
    try:
        run_all(app, [call({"q": "x" * 5000})] * times)
        left = [one for one in gc.get_objects() if isinstance(one, mcp_exchange.ToolExchange)]
    finally:
        gc.enable()
    assert left == []
    assert app.held_bytes == 0


def test_it_runs_under_trio() -> None:
    """As the rest of the shell does."""
    server = ToolServer()
    app = guarded(server)

    async def each() -> list[Exchange]:
        return [await by_hand(app, call()) for _ in range(4)]

    done = trio.run(each)
    assert len(server.runs) == 2
    assert [len(notices(one)) for one in done] == [0, 0, 1, 1]


async def by_hand(app: MCPMiddleware, request: Request) -> Exchange:
    """One exchange, on any event loop."""
    exchange, incoming = Exchange(), request.messages()

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        exchange.sent.append((0, message))

    await app(request.scope(), receive, send)
    return exchange


def test_two_answers_in_one_stream_of_a_batch() -> None:
    """Each response is that of its own call."""
    batch = [
        {"jsonrpc": "2.0", "id": at, "method": "tools/call", "params": {"name": "t", "arguments": {"at": at}}}
        for at in (1, "1")
    ]
    server = Stream(frame([response("1", "text"), response(1, "number")]))
    done: list[Exchange] = run_all(guarded(server), [post(batch)] * 3)
    assert {one["id"]: one["result"]["content"][0]["text"] for one in responses(done[2])} == {1: "number", "1": "text"}

"""The laws of the wire, for MCP: transparent, blind to how bytes are cut, and linear."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.mcp.messages import read_post, read_responses
from tests.mcp.server import OLD, ToolServer, call, call_message, dumps, guarded, notices, post, text
from tests.support.asgi import Request, run, run_all
from tests.support.work import lines_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
WORDS = st.sampled_from(
    ["id", "method", "params", "result", "error", "content", "tools/call", "name", "arguments", "_meta"]
)
NEARLY = st.dictionaries(WORDS, JSON | WORDS | st.dictionaries(WORDS, JSON | WORDS, max_size=4), max_size=6)


class Says:
    """Answers every request with these bytes, as JSON or as events."""

    def __init__(self, body: bytes, kind: bytes) -> None:
        self.body = body
        self.kind = kind

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        await receive()
        headers = [(b"content-type", self.kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in (self.body[:3], self.body[3:]):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@given(message=NEARLY | JSON | st.lists(NEARLY, max_size=3), answer=NEARLY | JSON, is_stream=st.booleans())
def test_whatever_is_sent_arrives(message: Any, answer: Any, *, is_stream: bool) -> None:
    """What is no looping call reaches the app, and what is no result the client, byte for byte."""
    said = dumps(answer)
    kind, said = (b"text/event-stream", b"data: " + said + b"\n\n") if is_stream else (b"application/json", said)
    app = guarded(Says(said, kind), "observe")
    for _ in range(2):
        exchange = run(app, post(message))
        assert exchange.raised is None
        assert exchange.body == said
        assert exchange.complete
    assert app.counts.of("fail_open") == 0
    assert app.held_bytes == 0


@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_whatever_bytes_are_sent_arrive(body: bytes, answer: bytes, is_stream: bool) -> None:
    """They need not be JSON, nor events."""
    kind = b"text/event-stream" if is_stream else b"application/json"
    app = guarded(Says(answer, kind))
    for request in (Request("/mcp", body, OLD), call()):
        assert run(app, request).body == answer


@given(st.integers(1, 60), st.sampled_from(["json", "sse"]), st.sampled_from(["warn", "observe", "steer"]))
def test_the_cuts_of_an_answer_do_not_matter(cut: int, form: str, rung: str) -> None:
    """The client gets the same bytes."""
    whole, cuts = (ToolServer(lambda _: text("nöthing"), form=form, cut=size) for size in (0, cut))
    requests = [call(id_=at) for at in range(4)]
    mine = run_all(guarded(cuts, [rung]), requests)
    assert [one.body for one in mine] == [one.body for one in run_all(guarded(whole, [rung]), requests)]
    assert all(one.complete for one in mine)


@given(st.integers(1, 40))
def test_the_cuts_of_a_request_do_not_matter(cut: int) -> None:
    """Nor do these."""
    body = call().body
    pieces = tuple(body[at : at + cut] for at in range(0, len(body), cut))
    server = ToolServer()
    done = run_all(guarded(server), [Request("/mcp", body, OLD, chunks=pieces)] * 3)
    assert notices(done[2])
    assert server.bodies == [body, body]


def batch_of(calls: int, others: int) -> bytes:
    """A batch with calls among other messages."""
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    return dumps([*[note] * others, *(call_message({"at": at}, id_=at) for at in range(calls))])


def wide(size: int) -> bytes:
    """A call with so many arguments."""
    return dumps(call_message({f"a{at}": at for at in range(size)}))


def answers(size: int) -> bytes:
    """A batch of so many responses."""
    return dumps([{"jsonrpc": "2.0", "id": at, "result": text("x")} for at in range(size)])


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda size: batch_of(20, size), read_post),
        (lambda size: batch_of(size // 20, 10), read_post),
        (wide, read_post),
        (answers, read_responses),
    ],
    ids=["a batch", "calls", "arguments", "responses"],
)
def test_reading_is_linear(make: Any, read: Any) -> None:
    """Twice the size takes at most 2.2 times the work."""
    small, large = make(1000), make(2000)
    assert json.loads(small)
    once, twice = lines_run(lambda: read(small)), lines_run(lambda: read(large))
    assert twice < 2.2 * once


@pytest.mark.slow
def test_a_long_streak_costs_no_more_with_each_call() -> None:
    """What is kept of a caller is bounded, and so is the work on its next call."""
    server = ToolServer()
    app = guarded(server, max_rounds=20)

    def calls(start: int) -> int:
        return lines_run(lambda: run_all(app, [call({"at": start + at}) for at in range(20)]))

    calls(0)
    calls(20)
    steady = calls(40)
    for start in range(60, 200, 20):
        calls(start)
    assert calls(200) < 1.2 * steady

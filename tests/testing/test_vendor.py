"""The scripted vendor by itself: what it keeps, what it counts, what it answers to what it does not serve."""

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import orjson
import pytest

from callfuse.testing import Answer, Call, Fault, ScriptedVendor, Usage, VendorRequest, looping_model
from callfuse.testing.vendor import DIALECTS, REDACTED
from tests.support.rules import RULES

Message = MutableMapping[str, Any]
CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def ask(
    vendor: ScriptedVendor,
    body: bytes | dict[str, Any],
    *,
    path: str = CHAT,
    method: str = "POST",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> tuple[int, bytes, list[Message]]:
    """Ask the app directly, the body in two pieces: the status, the bytes, and every message sent."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    incoming: list[Message] = [
        {"type": "http.request", "body": raw[:5], "more_body": True},
        {"type": "http.request", "body": raw[5:], "more_body": False},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await vendor({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent), sent


async def test_keeps_requests_without_credentials() -> None:
    """Each request is kept as it came, but for what opens doors."""
    vendor = ScriptedVendor(lambda request: Answer("hi"))
    keys = ((b"Authorization", b"Bearer secret"), (b"x-api-key", b"secret"), (b"X-Trace", b"t1"))
    await ask(vendor, BODY, headers=keys)
    (request,) = vendor.requests
    assert request.headers == {"authorization": REDACTED, "x-api-key": REDACTED, "x-trace": "t1"}
    assert (request.body, request.raw, request.number) == (BODY, orjson.dumps(BODY), 1)
    assert (request.dialect, request.path, request.model, request.streams) == ("openai-chat", CHAT, "m", False)
    assert "secret" not in repr(request)


async def test_bills_what_it_answers() -> None:
    """Given usage is billed as given, other answers by their size, refused requests not at all."""
    vendor = ScriptedVendor([Answer("hi", usage=Usage(10, 5, 2)), Answer("12345678"), Fault.http(500)])
    await ask(vendor, BODY)
    assert vendor.billed == Usage(10, 5, 2)
    await ask(vendor, BODY)
    assert vendor.billed == Usage(10 + len(orjson.dumps(BODY)) // 4, 5 + 3, 2)
    before = vendor.billed
    await ask(vendor, BODY)
    await ask(vendor, b"[]")
    assert vendor.billed == before


async def test_script_that_is_over() -> None:
    """One request too many is told so, with a status that no client retries."""
    vendor = ScriptedVendor([Answer("hi")])
    await ask(vendor, BODY)
    status, body, _ = await ask(vendor, BODY)
    assert status == 400
    assert b"the script holds 1 answers" in body


def no_empty_history(dialect: str, body: Mapping[str, Any]) -> Iterator[str]:
    """A rule, and one that names the dialect."""
    if not body["messages"]:
        yield "messages: empty"
        yield f"{dialect}: empty"


async def test_refused_request_does_not_use_up_an_answer() -> None:
    """The rules are asked before the script, which goes on where it was after a refused request."""
    vendor = ScriptedVendor([Answer("hi")], rules=no_empty_history)
    assert (await ask(vendor, {"model": "m", "messages": []}))[0] == 400
    assert (await ask(vendor, BODY))[0] == 200
    assert [one.violations for one in vendor.requests] == [("messages: empty", "openai-chat: empty"), ()]


def test_each_vendor_has_rules() -> None:
    """Tests of the guard ask them about every dialect that is played."""
    assert {one.name for one in DIALECTS} == {*RULES}


async def test_without_rules() -> None:
    """A vendor without rules answers any history."""
    vendor = ScriptedVendor([Answer("hi")])
    assert (await ask(vendor, {"messages": []}))[0] == 200


async def test_async_script() -> None:
    """A script may wait: nothing is sent before it has answered."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: VendorRequest) -> Answer:
        asked.set()
        await go.wait()
        return Answer(f"number {request.number}")

    exchange = asyncio.create_task(ask(ScriptedVendor(script), BODY))
    await asked.wait()
    assert not exchange.done()
    go.set()
    _, body, _ = await exchange
    assert orjson.loads(body)["choices"][0]["message"]["content"] == "number 1"


async def test_frames_go_out_one_by_one() -> None:
    """Each frame of a stream is a message of its own, and `piece_chars` cuts the text."""
    vendor = ScriptedVendor([Answer("abcdef")], piece_chars=2)
    _, _, sent = await ask(vendor, BODY | {"stream": True})
    payloads = [m["body"].removeprefix(b"data: ") for m in sent[1:-2]]
    deltas = [orjson.loads(payload)["choices"][0]["delta"].get("content") for payload in payloads]
    assert deltas == ["", "ab", "cd", "ef", None]
    assert sent[-2]["body"] == b"data: [DONE]\n\n"
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/v1/models", b"", 404, b"GET /v1/models is not served here"),
        ("GET", CHAT, b"", 404, b"is not served here"),
        ("POST", "/v1/messages/count_tokens", b"{}", 404, b"is not served here"),
        ("POST", CHAT, b"{", 400, b"not a JSON object"),
        ("POST", CHAT, b"[]", 400, b"not a JSON object"),
        ("POST", "/anthropic/v1/messages", b"{", 400, b'"type":"error"'),
    ],
)
async def test_not_served(method: str, path: str, body: bytes, status: int, words: bytes) -> None:
    """What is no request of a dialect is answered with an error, and not kept."""
    vendor = ScriptedVendor([])
    found, answer, _ = await ask(vendor, body, path=path, method=method)
    assert (found, words in answer, vendor.requests) == (status, True, [])


async def test_client_that_leaves() -> None:
    """A client that leaves before its body is whole gets nothing and is not kept."""
    vendor = ScriptedVendor([])
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await vendor({"type": "http", "method": "POST", "path": CHAT, "headers": ()}, receive, send)
    assert (sent, vendor.requests) == ([], [])


async def test_other_scopes() -> None:
    """A lifespan is gone through, a WebSocket is closed."""
    vendor = ScriptedVendor([])
    incoming: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message["type"])

    await vendor({"type": "lifespan"}, receive, send)
    await vendor({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def test_wrong_number_of_choices() -> None:
    """A script that gives two answers where one is asked for is a mistake in the test, and raised."""
    vendor = ScriptedVendor([(Answer("a"), Answer("b"))])
    with pytest.raises(ValueError, match="asks for 1 choices, the script gave 2"):
        await ask(vendor, BODY)


def test_wrong_piece_size() -> None:
    """Pieces of no characters would never end."""
    with pytest.raises(ValueError, match="piece_chars must be at least 1, not 0"):
        ScriptedVendor([], piece_chars=0)


def asked(*results: str, call: Call | None = None) -> VendorRequest:
    """A request whose conversation ends with these results."""
    calls = (call,) if call else ()
    return VendorRequest(1, "openai-chat", CHAT, {}, dict(BODY), b"", calls, results)


def test_looping_model() -> None:
    """It loops until it reads guidance, then calls otherwise, then concludes."""
    model = looping_model("find", {"q": "x"}, conclusion="done")
    looping = Answer(calls=(Call("find", {"q": "x"}),))
    assert model(asked()) == looping
    assert model(asked("none", call=Call("find", '{ "q": "x" }'))) == looping
    (other,) = model(asked("[callfuse] think again", call=Call("find", {"q": "x"}))).calls
    assert not other.same_as(looping.calls[0])
    assert model(asked("none", call=other)) == Answer("done")
    assert model(asked("none\n\n[callfuse] third time", call=Call("find", {"q": "x"}))).calls == (other,)


def test_stubborn_model() -> None:
    """It loops whatever it reads."""
    model = looping_model("find", {"q": "x"}, stubborn=True)
    assert model(asked("[callfuse] think again", call=Call("find", {"q": "x"}))) == model(asked())


def test_guidance() -> None:
    """Guidance is what stands in the results from callfuse's mark on."""
    assert asked("none", "x\n[callfuse] stop").guidance == "[callfuse] stop"
    assert asked("none").guidance == ""

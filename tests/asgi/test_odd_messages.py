"""Requests and frames of odd shape: nothing is raised, and everything reaches its reader."""

import json
from typing import Any

import pytest

from callfuse.asgi.types import Scope
from callfuse.dialects.openai_chat.request import ChatRequest
from tests.guard.driving import each_kit
from tests.guard.written import DONE, OPENAI, chunk, part
from tests.support.asgi import Request
from tests.support.kits import DialectKit
from tests.support.meeting import ask, meet, reply
from tests.support.plain import again, spin
from tests.support.scripted import Reply, whole

FIRST = b"call_first"


CHAT = "/v1/chat/completions"


@each_kit
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b"null", b'{"messages": 1}', b'{"messages": [1, null]}', b"\xff"]
)
def test_a_body_that_is_none_passes(kit: DialectKit, body: bytes) -> None:
    """Whatever stands in it, the app gets it and its answer goes out as it is."""
    met = meet(Request(kit.path, body), [whole(kit.whole(again()))])
    assert met.client.raised is None
    assert met.app.heard[0].body == body
    assert met.body == kit.whole(again())


def odd(**more: Any) -> bytes:
    """A chat request with something odd in it."""
    tools = [{"type": "function", "function": {"name": "search"}}]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools} | more).encode()


ODD: list[dict[str, Any]] = [
    {"messages": [{"role": "assistant", "tool_calls": 5}]},
    {"messages": [{"role": "assistant", "tool_calls": [None, 1, {"function": None}, {"function": "x"}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": 8, "arguments": {"a": 1}}}]}]},
    {"messages": [{"role": "tool", "content": {"a": [1]}}, {"role": ["x"]}, "text", None]},
    {"messages": [{"role": "user", "content": {"type": "text"}}]},
    {"messages": [{"role": "user", "content": [None, 5, {"type": None}]}]},
    {"messages": []},
    {"model": None},
    {"model": {"a": 1}},
    {"n": "two"},
    {"n": True},
    {"tools": {"a": 1}},
    {"tools": "all"},
    {"stream_options": []},
    {"response_format": "json"},
    {"max_tokens": "1"},
]


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_odd_requests_reach_the_app(more: dict[str, Any], path: str) -> None:
    """A shape that callfuse does not understand is the vendor's to refuse."""
    body = odd(max_tokens=100, **more) if "max_tokens" not in more else odd(**more)
    met = meet(Request(path, body), [whole(b'{"error": {}}', 400)], "warn")
    assert met.client.raised is None
    assert met.app.heard[0].body == body
    assert met.client.status == 400


@pytest.mark.parametrize("kind", ["\ud83d", [[]] * 2, None])
@pytest.mark.parametrize("raises", [False, True])
def test_something_odd_before_many_rounds(kind: Any, raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads so far back before the answer comes, but for the digest of what the user has said."""
    turns: list[Any] = [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": kind}]}]
    for at in range(40):
        function = {"name": "ab"[at % 2], "arguments": f'{{"page": {at}}}'}
        turns.append({"role": "assistant", "tool_calls": [{"id": f"c{at}", "type": "function", "function": function}]})
        turns.append({"role": "tool", "tool_call_id": f"c{at}", "content": "read " * 99})
    if raises:

        def of_another_shape(*_: Any) -> Any:
            raise ValueError("a shape that nobody has thought of")

        monkeypatch.setattr(ChatRequest, "last_user_message", of_another_shape)
    answer = whole(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Fine."}}]}')
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    met = meet(Request(CHAT, body := odd(messages=turns, tools=tools)), [answer])
    assert met.client.raised is None
    assert met.app.heard[0].body == body
    assert met.body == answer.body
    assert bool(met.log) == raises


@each_kit
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_a_body_in_another_dress_is_read(kit: DialectKit, ladder: str, encoding: str) -> None:
    """A byte order mark, UTF-16 or UTF-32, which Python's `json` reads, and so do vendors: it is guarded. The body goes
    on as it came, or in UTF-8 where it is changed."""
    plain = ask(kit, spin(3), stream=True)
    typed = (b"content-type", b"application/json; charset=" + encoding.encode())
    headers = tuple(typed if pair[0] == b"content-type" else pair for pair in plain.headers)
    request = Request(plain.path, plain.body.decode().encode(encoding), headers)
    replies = [reply(kit, again(), stream=True)] * 2
    met, known = meet(request, replies, ladder), meet(plain, replies, ladder)
    assert met.body == known.body
    assert met.log == known.log
    first, *later = met.app.heard
    assert first.body == (known.app.heard[0].body if ladder == "warn" else request.body)
    assert [heard.body for heard in later] == [heard.body for heard in known.app.heard[1:]]
    for heard in met.app.heard:
        is_changed = heard.body != request.body and encoding != "utf-8-sig"
        assert heard.header(b"content-type") == (b"application/json" if is_changed else typed[1])


@each_kit
@pytest.mark.parametrize("body", [b"\xff\xfe{\x00", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_a_body_that_no_parser_reads_is_told(kit: DialectKit, body: bytes) -> None:
    """Broken UTF-16, a nesting or a number beyond all bounds: passes, and is counted as not guarded."""
    met = meet(Request(kit.path, body), [reply(kit, again(), stream=True)], fail_closed=True)
    assert met.app.heard[0].body == body
    assert met.body == met.app.replies[0].body
    assert ["not JSON" in text for _, _, text in met.log] == [True]


@each_kit
@pytest.mark.parametrize("length", [b"x", b"-1", b"99999999999"])
def test_a_length_that_is_odd_or_too_long(kit: DialectKit, length: bytes) -> None:
    """The request is not read, and passes."""
    request = ask(kit, spin(), stream=True)
    scope = request.scope()
    scope["headers"] = [*request.headers, (b"content-length", length)]

    class Odd(Request):
        def scope(self) -> Scope:
            return scope

    met = meet(Odd(request.path, request.body), [reply(kit, again(), stream=True)])
    assert met.body == met.app.replies[0].body
    assert any("max_request_bytes" in text for _, _, text in met.log)


@pytest.mark.slow
def test_frames_of_odd_shape_do_not_stop_a_stream() -> None:
    """Whatever a chunk holds, the client gets it, and the loop behind it is still blocked or all is let go."""
    odd_chunks = [
        chunk({"tool_calls": [{"index": 0, "function": None}]}),
        chunk({"tool_calls": [{"index": 0, "id": "call_first"}]}),
        chunk({"tool_calls": [{"index": 0, "type": "function"}]}),
        chunk({"tool_calls": [None]}),
        chunk({"tool_calls": 5}),
        chunk({"tool_calls": {}}),
        chunk({"content": {"a": 1}}),
        b'data: {"choices": [null]}\n\n',
        b'data: {"choices": [{"delta": []}]}\n\n',
        b'data: {"choices": {"a": 1}}\n\n',
        b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [{}]}}]}\n\n',
        b'data: {"usage": 5, "choices": []}\n\n',
    ]
    loop = [chunk({"role": "assistant", "content": ""}), chunk({"tool_calls": [part()]}), chunk({}, "tool_calls"), DONE]
    for one in odd_chunks:
        for at in range(1, 4):
            given = Reply((*loop[:at], one, *loop[at:]))
            for ladder in ("warn", "block", "chance_then_block"):
                met = meet(
                    ask(OPENAI, spin(), stream=True), [given, Reply((chunk({"content": "x"}, "stop"), DONE))], ladder
                )
                assert met.client.raised is None, (one, at, ladder)
                assert met.client.complete, (one, at, ladder)
                assert met.body == given.body or FIRST not in met.body, (one, at, ladder)

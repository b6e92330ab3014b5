"""Ollama's habits by small examples: what each version of it, and each of its clients, does differently."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import OpenCall, Request, What
from callfuse.dialects.ollama import Ollama
from callfuse.model import PastCall, Round
from tests.support.asgi import Request as Asked
from tests.support.meeting import MARK, meet
from tests.support.scripted import Reply, whole
from tests.support.wire import bytewise

OLLAMA = Ollama()
QUERY = {"query": "zebra"}
HELLO: dict[str, Any] = {"role": "user", "content": "Find the zebra."}
TOOLS = [{"type": "function", "function": {"name": "search"}}]
TIMES = {"total_duration": 9, "prompt_eval_count": 3, "eval_count": 2}


def call(name: str = "search", arguments: Any = QUERY, **more: Any) -> dict[str, Any]:
    """A call as old versions write it; `index` and `id` as newer ones do."""
    index = {"index": more.pop("index")} if "index" in more else {}
    return {**more, "function": {**index, "name": name, "arguments": arguments}}


def line(*calls: dict[str, Any], content: str = "", end: bytes = b"\n", **more: Any) -> bytes:
    """A line of a stream."""
    made = {"tool_calls": list(calls)} if calls else {}
    message = {"role": "assistant", "content": content, **made}
    body = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False, **more}
    return json.dumps(body, separators=(",", ":")).encode() + end


def done(*calls: dict[str, Any], content: str = "", end: bytes = b"\n", reason: str = "stop") -> bytes:
    """The last line."""
    return line(*calls, content=content, end=end, done=True, done_reason=reason, **TIMES)


def history(times: int = 2, *, result: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The same call so many times, in the way of old clients."""
    messages: list[dict[str, Any]] = [HELLO]
    for _ in range(times):
        messages.append({"role": "assistant", "content": "", "tool_calls": [call()]})
        messages.append({"role": "tool", "content": "nothing", **(result or {})})
    return messages


def ask(messages: list[dict[str, Any]], **more: Any) -> Asked:
    """A chat request."""
    body = {"model": "m", "messages": messages, "tools": TOOLS, **more}
    return Asked("/api/chat", json.dumps(body).encode())


def request(messages: list[Any], **more: Any) -> Request:
    """A chat request as the dialect reads it."""
    body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS, **more}).encode()
    found = OLLAMA.read_request(body, json.loads(body))
    assert found is not None
    return found


def parts(body: bytes) -> list[dict[str, Any]]:
    """The lines of a body."""
    return [json.loads(one) for one in body.splitlines()]


def calls_in(body: bytes) -> list[Any]:
    """The calls that a client has."""
    return [one for part in parts(body) for one in part["message"].get("tool_calls") or []]


@pytest.mark.parametrize(
    "body",
    [
        line(call()) + done(),
        done(call()),
        done(call(), end=b""),
        line(call(), content="Let me look.") + done(),
        line(call(), call()) + done(),
        line(call(id="call_1", index=0), end=b"\r\n") + done(end=b"\r\n"),
        b"\n" + line(call()) + b"\n" + done(),
    ],
    ids=["a line", "the last line", "no line feed", "with text", "twice", "new", "blank lines"],
)
@pytest.mark.parametrize("bytes_apart", [False, True], ids=["whole", "bytes"])
def test_the_third_call_is_withheld(body: bytes, bytes_apart: bool) -> None:
    """Wherever it stands; the text that came with it stays, and callfuse says why before the end, or in its line."""
    met = meet(ask(history()), [Reply(bytewise(body) if bytes_apart else (body,))])
    said = [part for part in parts(met.body.replace(b"\n\n", b"\n").lstrip()) if part]
    assert calls_in(b"\n".join(json.dumps(part).encode() for part in said)) == []
    text = "".join(part["message"]["content"] for part in said)
    assert text.removeprefix("Let me look.").lstrip().startswith(MARK)
    assert [part["done"] for part in said] == [False] * (len(said) - 1) + [True]
    assert (said[-1]["done_reason"], said[-1]["eval_count"]) == ("stop", 2)


@pytest.mark.parametrize("body", [line(call()) + done(), line(call()), done(call())])
def test_a_second_call_passes(body: bytes) -> None:
    """Below the threshold nothing changes."""
    assert meet(ask(history(1)), [Reply((body,))]).body == body


def test_a_cut_answer_stays_as_it_was() -> None:
    """Without the line that is done nobody knows what else came: the call goes through."""
    body = line(content="Let me look.") + line(call())
    assert meet(ask(history()), [Reply((body,))]).body == body


def test_a_limit_stays_the_done_reason() -> None:
    """A call is whole whatever ended the answer; `length` stays, for the answer was cut."""
    met = meet(ask(history()), [Reply((line(call()) + done(reason="length"),))])
    assert calls_in(met.body) == []
    assert parts(met.body)[-1]["done_reason"] == "length"


def test_an_error_in_the_stream_lets_go() -> None:
    """What was held comes before the error."""
    body = line(call()) + b'{"error":"the model has crashed"}\n'
    assert meet(ask(history()), [Reply((body,))]).body == body


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ([call(index=0), call("read", {"a": 1}, index=1)], [call("read", {"a": 1}, index=0)]),
        ([call(), call("read", {"a": 1}, index=1)], [call("read", {"a": 1}, index=0)]),
        ([call("read", {"a": 1}), call()], [call("read", {"a": 1})]),
        ([call("read", {"a": 1}, id="x"), call(id="y")], [call("read", {"a": 1}, id="x")]),
    ],
)
@pytest.mark.parametrize("together", [False, True], ids=["lines", "one line"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_sibling_is_counted_anew(sent: list[Any], kept: list[Any], together: bool, stream: bool) -> None:
    """Where calls are counted, the ones that stay count from 0; else nothing is added."""
    known = {"role": "assistant", "content": "", "tool_calls": [call("read", {"a": 1})]}
    turns = [HELLO, known, {"role": "tool", "content": "x"}, *history()[1:]]
    if not stream:
        reply = whole(done(*sent, end=b""))
    elif together:
        reply = Reply((line(*sent) + done(),))
    else:
        reply = Reply((*(line(one) for one in sent), done()))
    met = meet(ask(turns, stream=stream), [reply])
    assert calls_in(met.body) == kept
    assert MARK.encode() not in met.body


def test_a_whole_answer_without_arguments() -> None:
    """A call without arguments is the call with none."""
    turns = [HELLO]
    for _ in range(2):
        turns += [{"role": "assistant", "tool_calls": [call(arguments={})]}, {"role": "tool", "content": "x"}]
    bare = {"function": {"name": "search"}}
    met = meet(ask(turns, stream=False), [whole(done(bare, end=b""))])
    assert calls_in(met.body) == []
    assert parts(met.body)[0]["message"]["content"].startswith(MARK)


def test_parts_that_cannot_go_back_are_named() -> None:
    """A part of a message that callfuse cannot put together is not asked again with."""
    odd = {"message": {"role": "assistant", "content": ["x"], "tool_calls": [call()]}, "done": True}
    with pytest.raises(CannotReplay, match="content"):
        OLLAMA.model_turn([odd])


def test_unknown_parts_are_left_out() -> None:
    """Of a streamed message, as is a call without a name; a whole one goes as it is."""
    nameless = {"function": {"name": "", "arguments": {}}}
    message = {"role": "assistant", "content": "", "hologram": "x", "tool_calls": [call(), nameless]}
    odd = {"message": message, "done": True}
    assert json.loads(OLLAMA.model_turn([odd])) == {"role": "assistant", "content": "", "tool_calls": [call()]}
    whole = json.loads(OLLAMA.model_turn_of_whole(json.dumps(odd).encode(), odd))
    assert whole == message


def test_the_turn_keeps_every_digit() -> None:
    """Ids beyond 64 bits go back to the model as it wrote them."""
    wide = line(call(arguments={"id": 123456789012345678901234567890})) + done()
    met = meet(ask(_wide_history()), [Reply((wide,)), Reply((done(content="Ok."),))], "chance_then_block")
    assert len(met.app.heard) == 2
    assert met.app.heard[1].body.count(b'"arguments":{"id":123456789012345678901234567890}') == 1


def _wide_history() -> list[dict[str, Any]]:
    made = call(arguments={"id": 123456789012345678901234567890})
    spun: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [made]}, {"role": "tool", "content": "x"}]
    return [HELLO, *spun, *spun]


@pytest.mark.parametrize(
    ("results", "wanted"),
    [
        ([{"content": "1"}, {"content": "2"}], ["1", "2"]),
        ([{"tool_name": "read", "content": "2"}, {"tool_name": "search", "content": "1"}], ["1", "2"]),
        ([{"name": "read", "content": "2"}, {"name": "search", "content": "1"}], ["1", "2"]),
        ([{"tool_call_id": "b", "content": "2"}, {"tool_call_id": "a", "content": "1"}], ["1", "2"]),
        ([{"tool_name": "other", "content": "1"}, {"tool_name": "another", "content": "2"}], ["1", "2"]),
        ([{"tool_name": "read", "content": "2"}], [None, "2"]),
        ([], [None, None]),
    ],
    ids=["order", "tool_name", "name", "ids", "strange names", "one missing", "none"],
)
def test_results_find_their_calls(results: list[dict[str, Any]], wanted: list[str | None]) -> None:
    """By id, by name, or in order."""
    turn = {"role": "assistant", "tool_calls": [call(id="a"), call("read", {}, id="b")]}
    found = request([HELLO, turn, *({"role": "tool", **result} for result in results)])
    assert [_said(one) for one in _newest(found).calls] == wanted


def _newest(found: Request) -> Round:
    newest = next(found.rounds())
    assert newest is not None
    return newest


def _said(one: PastCall) -> str | None:
    return None if one.result is None else one.result[0]


def test_two_calls_of_one_tool_get_their_results_in_order() -> None:
    """Names alone do not tell them apart."""
    turn = {"role": "assistant", "tool_calls": [call(arguments={"n": 1}), call(arguments={"n": 2})]}
    results = [{"role": "tool", "tool_name": "search", "content": text} for text in ("one", "two")]
    assert [_said(one) for one in _newest(request([HELLO, turn, *results])).calls] == ["one", "two"]


def test_images_are_part_of_a_result() -> None:
    """Two screenshots that differ are two outcomes."""
    turn = {"role": "assistant", "tool_calls": [call()]}

    def outcome(image: str) -> object:
        tool = {"role": "tool", "content": "a screen", "images": [image]}
        return _newest(request([HELLO, turn, tool])).calls[0].outcome

    assert outcome("AAAA") != outcome("BBBB")
    assert outcome("AAAA") == outcome("AAAA")


@pytest.mark.parametrize(
    ("more", "probe"),
    [
        ({}, False),
        ({"options": {"num_predict": 1}}, True),
        ({"options": {"num_predict": 9}}, False),
        ({"tools": []}, True),
    ],
)
def test_probes(more: dict[str, Any], probe: bool) -> None:
    """A request for one token, or without tools, is none that counts."""
    assert request([HELLO], **more).probe is probe


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [HELLO]},
        {"model": None, "messages": [HELLO]},
        {"model": "m", "prompt": "x"},
        {"id": "chat-1", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]},
        [HELLO],
    ],
)
def test_an_applications_own_chat_is_none_of_ollamas(body: Any) -> None:
    """Many web applications have an `/api/chat`; without a model it is not Ollama's."""
    assert OLLAMA.read_request(json.dumps(body).encode(), body) is None


@pytest.mark.parametrize(
    ("content_type", "stream", "streamed"),
    [
        (b"application/x-ndjson", True, True),
        (b"application/x-ndjson", False, True),
        (b"application/json; charset=utf-8", True, True),
        (b"application/json; charset=utf-8", False, False),
        (b"text/event-stream", True, False),
    ],
)
def test_how_an_answer_comes(content_type: bytes, stream: bool, streamed: bool) -> None:
    """By its content type, and by what was asked for where that says only JSON."""
    assert (OLLAMA.stream_format(content_type, asked=request([HELLO], stream=stream).stream) is not None) is streamed


def test_lines_that_say_nothing_may_overtake() -> None:
    """Blank ones, callfuse's own, and a vendor's without content; not the one that is done, nor one with an error."""

    def silent(raw: bytes) -> bool:
        return OLLAMA.is_keep_alive(raw, json.loads(raw) if raw.strip() else None)

    assert all(silent(raw) for raw in (b"\n", OLLAMA.heartbeat, line()))
    assert not any(silent(raw) for raw in (line(content="x"), line(call()), done(), b'{"error":"x"}\n'))


def test_a_reader_tells_calls_and_the_end() -> None:
    """A call opens and closes in its line; in the last line the end comes after it."""
    reader = OLLAMA.reader(trace=True)
    assert reader.read(json.loads(line(content="x"))) == ()
    events = reader.read(json.loads(done(call())))
    assert [event.what for event in events] == [What.OPENED, What.CLOSED, What.FINISHED, What.ENDED]
    made: OpenCall | None = events[0].call
    assert made is not None
    assert (made.name, made.arguments, made.numbered) == ("search", {"query": "zebra"}, False)
    assert [event.what for event in reader.read({"error": "x"})] == [What.BROKE]


def test_structured_text_is_not_gone_on_with() -> None:
    """A text that must fit a schema takes no second one: the call is blocked rather than steered."""
    body = line(content='{"title"') + line(call()) + done()
    met = meet(ask(history(), format="json"), [Reply((body,))], "chance_then_block")
    assert len(met.app.heard) == 1
    assert MARK.encode() in met.body

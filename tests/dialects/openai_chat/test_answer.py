"""OpenAI chat completions: calls put together from deltas by the rules that naive code breaks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import Block, Frame, OpenCall, What
from callfuse.dialects.openai_chat import OpenAIChat
from callfuse.dialects.openai_chat.answer import ChatReader, model_turn, model_turn_of_whole, read_whole
from callfuse.dialects.openai_chat.chunk import ChoicePart, choice_parts
from callfuse.dialects.openai_chat.writer import ChatWriter, _ends
from callfuse.wire import sse
from callfuse.wire.jsontext import dumps
from callfuse.wire.values import MOST_INSIDE

MANY = [1] * MOST_INSIDE
"""More values than are parsed: such a text is over where its last bracket closes."""


def delta(*parts: Any, finish: str | None = None, choice: int | None = 0) -> dict[str, Any]:
    """One chunk with these parts of calls."""
    return {
        "choices": [{"index": choice, "delta": {"tool_calls": list(parts)} if parts else {}, "finish_reason": finish}]
    }


def piece(arguments: Any = None, index: int | None = 0, **more: Any) -> dict[str, Any]:
    """A part of a call; without an index where that is None."""
    name = {"name": more.pop("name")} if "name" in more else {}
    part = {"function": {**name, "arguments": arguments}, **more}
    return part if index is None else {"index": index, **part}


def assembled(*payloads: dict[str, Any]) -> list[tuple[int, int, str, str, str, bool]]:
    """Choice, place, id, name, arguments and whether it is complete, of each call."""
    reader = ChatReader(trace=True)
    for payload in payloads:
        reader.read(payload)
        assert all(entry.call in reader.calls for entry in reader.entries)
    return [(call.choice, call.index, call.id, call.name, call.arguments, call.closed) for call in reader.calls]


END = delta(finish="tool_calls")
A = (0, 0, "a", "f", '{"x":1}', True)


@pytest.mark.parametrize(
    "payloads",
    [
        [delta(piece('{"x":1}', id="a", name="f")), END],
        [delta(piece('{"x":1}', id="a", name="f"), finish="tool_calls")],
        [delta(piece("", id="a", name="f")), delta(piece('{"x"')), delta(piece(":1}")), END],
        [delta(piece(None, id="a", name="f")), delta(piece('{"x":1}')), delta(piece(None)), END],
        [delta(piece('{"x"', id="a", name="f")), delta(piece(":1}", id="a", name="f")), END],
        [delta(piece('{"x"', id="a", name="f")), delta(piece(":1}", id="", name="")), END],
        [delta(piece('{"x"', id="a", name="f")), delta(piece(":1}", id=None, name=None, type=None)), END],
        [delta(piece('{"x"', 1, id="a", name="f")), delta(piece(":1}", 1)), END],
        [delta(piece('{"x"', None, id="a", name="f")), delta(piece(":1}", None)), END],
        [delta(piece('{"x"', None, id="a", name="f")), delta(piece(":1}", None, id="a")), END],
        [delta(piece("", id="a")), delta(piece('{"x":1}', name="f")), END],
        [delta(piece("", name="f")), delta(piece('{"x":1}', id="a")), END],
        [delta(piece({"x": 1}, id="a", name="f")), END],
        [delta(piece('{"x":1}', id="a", name="f")), END, END],
        [delta(piece('{"x":1}', id="a", name="f")), delta(piece("", id="a"), finish="stop")],
        [delta(piece('{"x":1}', id="a", name="f"), choice=None), delta(finish="tool_calls", choice=None)],
        [delta(piece('{"x":1}', id="a", name="f")), {"choices": [{"index": 0, "finish_reason": "stop"}]}],
        [{"choices": []}, {"usage": {}}, delta(piece('{"x":1}', id="a", name="f")), {"choices": None}, END],
        [delta(piece('{"x":1}', id="a", name="f")), {"index": 0, "choices": [{"delta": {"tool_calls": None}}]}, END],
    ],
)
def test_one_call(payloads: list[dict[str, Any]]) -> None:
    """However it comes, it is this one."""
    assert assembled(*payloads) == [A]


@pytest.mark.parametrize(
    "parts",
    [
        [piece('{"x":1}', id="a", name="f"), piece("{}", 1, id="b", name="g")],
        [piece('{"x":1}', None, id="a", name="f"), piece("{}", None, id="b", name="g")],
        [piece('{"x":1}', None, name="f", id="a"), piece("{}", None, name="g", id="b")],
        [piece('{"x":1}', 0, id="a", name="f"), piece("{}", 0, id="b", name="g")],
        [piece('{"x":1}', 3, id="a", name="f"), piece("{}", 5, id="b", name="g")],
    ],
)
def test_two_calls(parts: list[dict[str, Any]]) -> None:
    """By index; without one, or with one that comes twice, by id and name. In one chunk or in two."""
    both = [A, (0, 1, "b", "g", "{}", True)]
    assert assembled(delta(*parts), END) == both
    assert assembled(*map(delta, parts), END) == both


def test_interleaved_calls_and_choices() -> None:
    """Pieces find their own call."""
    found = assembled(
        delta(piece('{"a"', id="a", name="f")),
        delta(piece('{"b"', 1, id="b", name="g")),
        delta(piece('{"c"', id="c", name="h"), choice=1),
        delta(piece(":1}")),
        delta(piece(":3}"), choice=1),
        delta(piece(":2}", 1)),
    )
    assert [call[:5] for call in found] == [
        (0, 0, "a", "f", '{"a":1}'),
        (0, 1, "b", "g", '{"b":2}'),
        (1, 0, "c", "h", '{"c":3}'),
    ]


def test_calls_without_any_id() -> None:
    """A name opens a call, else the last one grows."""
    found = assembled(
        delta(piece('{"x"', None, name="f")), delta(piece(":1}", None)), delta(piece("", None, name="f")), END
    )
    assert [call[2:5] for call in found] == [("", "f", '{"x":1}'), ("", "f", "")]


def whats(*payloads: dict[str, Any]) -> list[str]:
    """What is told, in order."""
    reader = ChatReader()
    return [event.what.name for payload in payloads for event in reader.read(payload)]


def test_what_is_told() -> None:
    """A call opens with its name; it closes with the finish, or with the next one, unless pieces come by turns."""
    opened = delta(piece("", id="a", name="f"))
    assert whats(opened, delta(piece("{}")), END) == ["OPENED", "CLOSED", "FINISHED"]
    second = delta(piece("", 1, id="b", name="g"))
    assert whats(opened, delta(piece("{}")), second) == ["OPENED", "CLOSED", "OPENED"]
    assert whats(opened, second, delta(piece("{}")), END) == ["OPENED", "OPENED", "CLOSED", "CLOSED", "FINISHED"]
    assert whats(opened, END, END) == ["OPENED", "CLOSED", "FINISHED", "FINISHED"]
    assert whats(delta(), {"choices": []}, {}) == []
    assert whats({"error": {"message": "x"}}) == ["BROKE"]


@pytest.mark.parametrize("reason", ["length", "content_filter", "repetition"])
def test_a_cut_answer(reason: str) -> None:
    """The call that was growing is named; those before it are whole."""
    reader = ChatReader()
    reader.read(delta(piece("{}", id="a", name="f"), piece('{"x', 1, id="b", name="g")))
    (event,) = reader.read(delta(finish=reason))
    assert (event.what, event.call) == (What.CUT, reader.calls[1])


@pytest.mark.parametrize(
    ("payloads", "told", "closed"),
    [
        ([delta(piece('{"x":1}', id="a", name="f"))], ["CLOSED", "FINISHED"], [True]),
        ([delta(piece("", id="a", name="f"))], ["CLOSED", "FINISHED"], [True]),
        ([delta(piece("NaN", id="a", name="f"))], ["CLOSED", "FINISHED"], [True]),
        ([delta(piece('{"x":', id="a", name="f"))], [], [False]),
        ([delta(piece(f'{{"x":{MANY}}}', id="a", name="f"))], ["CLOSED", "FINISHED"], [True]),
        ([delta(piece(f'{{"x":{MANY}', id="a", name="f"))], [], [False]),
        ([delta(piece("{}", id="a", name="f"), piece("{", 1, id="b", name="g"))], [], [True, False]),
        ([delta(piece("{}", id="a", name="f")), delta(finish="length")], [], [True]),
        ([delta(piece("{", id="a", name="f")), delta(finish="length")], [], [False]),
        ([delta(piece("{}", id="a", name="f")), END], [], [True]),
        ([delta(piece("{", id="a", name="f")), delta(piece("{}", id="b", name="g"), choice=1)],
         ["CLOSED", "FINISHED"], [False, True]),
        ([delta(finish="stop")], [], []),
    ],
)  # fmt: skip
def test_the_end_of_the_stream(payloads: list[dict[str, Any]], told: list[str], closed: list[bool]) -> None:
    """It finishes each choice that has no finish reason, if all its calls are whole."""
    reader = ChatReader()
    for payload in payloads:
        reader.read(payload)
    assert [event.what.name for event in reader.end()] == [*told, "ENDED"]
    assert [call.closed for call in reader.calls] == closed
    assert [event.what.name for event in reader.end()] == ["ENDED"]


def test_vendor_keys_of_a_call_are_kept() -> None:
    """Gemini's thought signature stands in `extra_content`."""
    reader = ChatReader()
    extra = {"google": {"thought_signature": "c2ln"}}
    reader.read(delta(piece("{}", id="a", name="f", type="function", extra_content=extra)))
    assert reader.calls[0].extra == {"extra_content": extra}


def test_legacy_function_call() -> None:
    """One call a choice, without id."""

    def legacy(**function: str) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"function_call": function}}]}

    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "function_call"}]}
    assert assembled(legacy(name="f", arguments=""), legacy(arguments='{"x"'), legacy(arguments=":1}"), end) == [
        (0, 0, "", "f", '{"x":1}', True)
    ]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({}, []),
        ({"tool_calls": None, "function_call": None}, []),
        ({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, [("a", "f", "{}")]),
        ({"tool_calls": [{"id": None, "function": {"name": "f", "arguments": None}}]}, [("", "f", "")]),
        ({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}, [("a", "f", '{"x":1}')]),
        ({"tool_calls": [None, {"id": "a"}]}, [("a", "", "")]),
        ({"function_call": {"name": "f", "arguments": "{}"}}, [("", "f", "{}")]),
        ({"function_call": {"name": "", "arguments": ""}}, []),
        ({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "1 + 2"}}]},
         [("a", "f", "1 + 2")]),
        ({"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": None}}]}, [("a", "f", "")]),
        ({"tool_calls": [{"custom": {"name": "f", "input": ["x"]}}]}, [("", "f", '["x"]')]),
        ({"tool_calls": [{"id": "a", "type": "custom", "custom": None}]}, [("a", "", "")]),
        ({"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"},
                          "custom": {"name": "", "input": ""}}],
          "function_call": {"name": "", "arguments": ""}}, [("a", "f", "{}")]),
    ],
)  # fmt: skip
def test_whole_answers(message: dict[str, Any], found: list[tuple[str, str, str]]) -> None:
    """The calls of a message, whatever is missing in it."""
    (choice,) = read_whole({"choices": [{"index": 2, "message": message, "finish_reason": "tool_calls"}]})
    assert [(call.id, call.name, call.arguments) for call in choice.calls] == found
    assert choice.index == 2
    assert read_whole({}) == read_whole({"choices": None}) == []


CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":9007199254740993}'}}
WHOLE = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":9007199254740993}'}}


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    """The turn that these deltas and a call come to."""
    payloads = [{"choices": [{"index": 0, "delta": delta}]} for delta in (*deltas, {"tool_calls": [CALL]})]
    found: dict[str, Any] = json.loads(model_turn(payloads))
    assert found.pop("role") == "assistant"
    assert found.pop("tool_calls") == [WHOLE]
    return found


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([], {"content": None}),
        ([{"role": "assistant", "content": ""}], {"content": None}),
        ([{"content": "a"}, {"content": "b"}], {"content": "ab"}),
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"}], {"content": None, "reasoning_content": "ab"}),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}], {"content": "c", "reasoning": "ab"}),
        ([{"refusal": None, "audio": None, "x": None, "y": [], "z": ""}], {"content": None}),
        ([{"annotations": [1]}, {"annotations": [2]}], {"content": None, "annotations": [1, 2]}),
        ([{"channel": "a", "provider_metadata": {"b": 1}, "graph_data": {"sources": [1]}}], {"content": None}),
        ([{"token_id": 7, "executed_tools": [1], "reasoning_encrypted": "x", "name": "f"}], {"content": None}),
        (
            [{"audio": {"id": "", "data": "", "expires_at": 0}, "function_call": {"name": "", "arguments": ""}}],
            {"content": None},
        ),
        (
            [{"provider_specific_fields": {"a": [1], "b": None}}, {"provider_specific_fields": {"a": [1, 2]}}],
            {"content": None, "provider_specific_fields": {"a": [1, 2], "b": None}},
        ),
        (
            [
                {"extra_content": {"google": {"thought": True}}},
                {"extra_content": {"google": {"thought_signature": "c2ln"}}},
            ],
            {"content": None, "extra_content": {"google": {"thought": True, "thought_signature": "c2ln"}}},
        ),
    ],
)
def test_what_vendors_want_back(deltas: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    """Texts and reasoning in each spelling; keys that say nothing are left out."""
    assert message(*deltas) == expected


def details(*pieces: dict[str, Any]) -> Any:
    """The reasoning details that these come to, a delta each."""
    return message(*({"reasoning_details": [piece]} for piece in pieces)).get("reasoning_details")


TEXT = {"type": "reasoning.text", "index": 0, "format": "anthropic"}


def test_reasoning_details() -> None:
    """Pieces of one index and type grow together, signatures stay whole, others begin anew."""
    pieces = [TEXT | {"text": "a"}, TEXT | {"text": "b"}, TEXT | {"signature": "c2ln"}]
    assert details(*pieces) == [TEXT | {"text": "ab", "signature": "c2ln"}]
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "ZGF0YQ==", "id": "r1"}
    assert details(TEXT | {"text": "a"}, sealed) == [TEXT | {"text": "a"}, sealed]
    assert details(TEXT | {"text": "a"}, TEXT | {"index": 1, "text": "b"}) == [
        TEXT | {"text": "a"},
        TEXT | {"index": 1, "text": "b"},
    ]
    loose = {"type": "reasoning.summary", "id": "s", "summary": "a"}
    assert details(loose, loose | {"summary": "b"}) == [loose | {"summary": "ab"}]
    assert details(loose, loose | {"id": "t"}) == [loose, loose | {"id": "t"}]


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        ({"audio": {"data": "x"}}, "delta.audio"),
        ({"annotations": {"a": 1}}, "delta.annotations"),
        ({"extra_content": "x"}, "delta.extra_content"),
        ({"content": [{"type": "text"}]}, "delta.content"),
        ({"reasoning_details": "x"}, "delta.reasoning_details"),
        ({"reasoning_details": ["x"]}, "delta.reasoning_details"),
        ({"thinking_blocks": [{"a": 1}]}, "delta.thinking_blocks"),
    ],
)
def test_what_cannot_be_rebuilt_is_named(delta: dict[str, Any], part: str) -> None:
    """So that the next rung is taken, and it is known why."""
    with pytest.raises(CannotReplay) as told:
        message(delta)
    assert told.value.part == part


def test_details_of_two_calls_stay_apart() -> None:
    """Though they have one index: each is its own call's."""
    one = {"type": "reasoning.encrypted", "index": 0, "data": "YQ==", "id": "tool_f_1"}
    assert details(one, one | {"id": "tool_g_2", "data": "Yg=="}) == [one, one | {"id": "tool_g_2", "data": "Yg=="}]


def test_custom_calls() -> None:
    """Their input grows like arguments, and goes back as it came."""

    def custom(index: int, text: str, **more: Any) -> dict[str, Any]:
        name = {"name": more.pop("name")} if "name" in more else {}
        return {"index": index, **more, "custom": {**name, "input": text}}

    chunks = [
        delta(custom(0, "1 ", id="a", type="custom", name="f", vendor={"x": 1})),
        delta(custom(0, "+ 2")),
        delta(piece("{}", 1, id="b", name="g")),
        END,
    ]
    assert assembled(*chunks) == [(0, 0, "a", "f", "1 + 2", True), (0, 1, "b", "g", "{}", True)]
    first, second = json.loads(model_turn(chunks))["tool_calls"]
    assert first == {"id": "a", "type": "custom", "custom": {"name": "f", "input": "1 + 2"}, "vendor": {"x": 1}}
    assert second == {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("detail", "opened"),
    [
        ({"type": "reasoning.encrypted", "format": "google-gemini-v1", "id": "x1"}, True),
        ({"type": "reasoning.encrypted", "id": "tool_f_x1"}, True),
        ({"type": "reasoning.encrypted", "format": "openai-responses-v1", "id": "rs_1"}, False),
        ({"type": "reasoning.encrypted", "format": "google-gemini-v1"}, False),
        ({"type": "reasoning.encrypted", "format": "google-gemini-v1", "id": 7}, False),
        ({"type": "reasoning.text", "format": "google-gemini-v1", "id": "x1"}, False),
        ("x", False),
    ],
)
def test_a_detail_that_names_a_call_opens_it(detail: Any, opened: bool) -> None:
    """Only where somebody may hold it; the call itself is the same one, and its detail may come again."""
    chunk = {"choices": [{"index": 0, "delta": {"reasoning_details": [detail]}}]}
    assert list(ChatReader().read(chunk)) == []
    reader = ChatReader(trace=True)
    (*events,) = reader.read(chunk)
    assert [event.what.name for event in events] == ["OPENED"] * opened
    assert reader.calls == []
    id_ = detail["id"] if opened else "a"
    (event,) = reader.read(delta(piece("{}", id=id_, name="f")))
    assert not opened or event.call is events[0].call
    assert [(call.index, call.name) for call in reader.calls] == [(0, "f")]
    assert list(reader.read(chunk)) == []


def test_custom_tools() -> None:
    """Their input goes back as the text that it was."""
    parts = [
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "maths", "input": "4 "}},
        {"index": 0, "custom": {"input": "+ 4"}},
    ]
    (back,) = json.loads(model_turn([{"choices": [{"delta": {"tool_calls": [part]}}]} for part in parts]))["tool_calls"]
    assert back == {"id": "a", "type": "custom", "custom": {"name": "maths", "input": "4 + 4"}}
    (choice,) = read_whole({"choices": [{"message": {"tool_calls": [back]}}]})
    (call,) = choice.calls
    assert (call.id, call.name, call.arguments, call.kind) == ("a", "maths", "4 + 4", "custom")


def test_parallel_calls_and_vendor_keys() -> None:
    """Every call in order, with what the vendor added to it."""
    extra = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    other = {"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [CALL | extra, other]}}]}]
    first, second = json.loads(model_turn(chunks))["tool_calls"]
    assert first == WHOLE | extra
    assert second == {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}


def test_a_whole_turn_keeps_its_bytes() -> None:
    """Without the keys that say nothing; big numbers, order and white space stay."""
    call = b'{"function":{"name":"f"}, "n":9007199254740993.0}'
    raw = b'{ "reasoning" : "r\\u00e9" , "tool_calls":[ ' + call + b' ], "audio":{"x":1} }'
    body = b'{"choices":[{"message":' + raw + b"}]}"
    assert model_turn_of_whole(body, json.loads(body)) == raw
    body = body.replace(b'"audio":{"x":1}', b'"big":1.50,"refusal":null,"annotations":[],"audio":null,"content":null')
    assert json.loads(model_turn_of_whole(body, json.loads(body))).keys() == {"reasoning", "tool_calls", "content"}
    with pytest.raises(CannotReplay):
        model_turn_of_whole(b'{"choices":[]}', {"choices": []})


def test_a_whole_turn_without_unknown_keys() -> None:
    """What a gateway adds, nobody is known to want back; nor a call without a name."""
    more = {"provider_metadata": {"x": 1}, "channel": "final", "graph_data": {"y": [1]}, "name": "x", "token_id": 7}
    calls = [WHOLE, {"id": "b", "type": "function", "function": {"name": "", "arguments": "{}"}}, None]
    payload = {"choices": [{"message": {"role": "assistant", "content": None, **more, "tool_calls": calls}}]}
    found = json.loads(model_turn_of_whole(json.dumps(payload).encode(), payload))
    assert found == {"role": "assistant", "content": None, "tool_calls": [WHOLE]}


def test_a_streamed_turn_without_nameless_calls() -> None:
    """Nobody could answer them."""
    parts = delta(piece("{}", id="a", name="f"), piece("{}", 1, id="b", name=""))
    assert [call["id"] for call in json.loads(model_turn([parts, END]))["tool_calls"]] == ["a"]


@pytest.mark.parametrize(
    "payload",
    [
        delta({"index": 0, "id": "a"}),
        delta({"index": 0, "type": "function"}),
        delta({"index": 0, "function": None}),
        delta({"index": 0, "function": []}),
        delta({"index": 0, "function": "f"}),
        delta({"index": [0], "function": {"arguments": ""}}),
        delta({"index": {}, "id": 7, "function": {"name": 5, "arguments": 3}}),
        delta({"index": 0, "custom": "x"}),
        delta(None, 7, "x", []),
        {"choices": [None, 7, "x", []]},
        {"choices": {"0": {}}},
        {"choices": "x"},
        {"choices": [{"index": "x", "delta": "y", "finish_reason": None}]},
        {"choices": [{"index": [0], "delta": [1]}]},
        {"choices": [{"delta": {"tool_calls": {"0": {}}}}]},
        {"choices": [{"delta": {"tool_calls": "x", "function_call": "y", "reasoning_details": 7}}]},
        {"choices": [{"delta": {"function_call": {"name": ["f"], "arguments": {}}}}]},
        {"choices": [{"delta": {"reasoning_details": [None, 7, {"id": [1], "type": "reasoning.encrypted"}]}}]},
        {"choices": [{"finish_reason": {"x": 1}}]},
        {"choices": [{"finish_reason": ["stop"]}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}", "x": 1}}]}}]},
    ],
)
def test_what_no_vendor_documents_is_no_trouble(payload: dict[str, Any]) -> None:
    """A value of another type counts as missing: neither the reader raises, nor what rewrites the stream."""
    for trace in (True, False):
        reader = ChatReader(trace=trace)
        reader.read(payload)
        first = len(reader.calls)
        reader.read(delta(piece('{"x":1}', 9, id="c", name="f")))
        reader.read(payload)
        reader.read(END)
        assert reader.calls[first].complete().id == "c"
    writer = ChatWriter(structured=False, wants_usage=True, summed=False)
    writer.note_sent(payload)
    frame = Frame(sse.event(dumps(payload)), payload, tuple(reader.entries))
    assert writer.thin([frame], set(reader.calls), {0: Block("x")})
    writer.before_asking([frame], set(reader.calls))
    writer.next_answer(foreign=True)
    writer.splice(frame.raw, payload)
    assert OpenAIChat().choices_of(payload) in ([], [0])


def test_a_name_in_pieces() -> None:
    """It is joined, as SDKs do; one that only comes again is not."""
    opening, rest = delta(piece("", id="a", name="get_")), delta(piece("", name="weather"))
    again = delta(piece('{"x":1}', name="get_weather"))
    assert assembled(opening, rest, again, END) == [(0, 0, "a", "get_weather", '{"x":1}', True)]
    assert assembled(opening, rest, delta(piece('{"x":1}')), END) == [(0, 0, "a", "get_weather", '{"x":1}', True)]


class Looked(list[OpenCall]):
    """Calls that count how often one is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[OpenCall]:
        for call in super().__iter__():
            Looked.looks += 1
            yield call


def test_many_choices_finish_in_linear_time() -> None:
    """A finish looks at the calls of its choice only; so does an end that comes again and again."""
    cost = []
    for size in (100, 200):
        Looked.looks = 0
        reader = ChatReader(trace=True)
        reader.calls = Looked()
        for choice in range(size):
            reader.read(delta(piece("{}", id="a", name="f"), choice=choice))
        for choice in range(size):
            reader.read(delta(finish="stop", choice=choice))
            reader.end()
        cost.append(Looked.looks)
        assert all(call.closed for call in reader.calls)
    assert cost[1] <= 2 * cost[0]


class CountedFrames(list[list[ChoicePart]]):
    """The choices of frames, which count how often a frame is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[list[ChoicePart]]:
        for frame in super().__iter__():
            CountedFrames.looks += 1
            yield frame


def test_many_choices_end_in_linear_time() -> None:
    """Where each choice of an answer is blocked, its end is found in one pass."""
    cost = []
    for size in (50, 100):
        CountedFrames.looks = 0
        frames = CountedFrames(choice_parts(delta(finish="stop", choice=choice)) for choice in range(size))
        assert len(_ends(frames, range(size))) == size
        cost.append(CountedFrames.looks)
    assert cost[1] <= 2 * cost[0]


def test_what_a_vendor_adds_to_a_call_piece_by_piece_is_kept() -> None:
    """All of it, in one object of the call's own."""
    reader = ChatReader()
    reader.read(delta(piece("{}", id="a", name="f"), piece("{}", 1, id="b", name="g", other=1)))
    for at in range(3):
        reader.read(delta(piece("", **{f"extra{at}": at})))
    assert reader.calls[0].extra == {"extra0": 0, "extra1": 1, "extra2": 2}
    assert reader.calls[1].extra == {"other": 1}


def test_a_whole_turn_without_what_does_not_apply() -> None:
    """Snowflake writes out what a message does not have; a request with a nameless call would be refused."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    hollow = {"function_call": {"name": "", "arguments": ""}, "audio": {"id": "", "expires_at": 0}, "refusal": ""}
    said = {"role": "assistant", "content": "", "tool_calls": [call | {"custom": {"name": "", "input": ""}}]}
    payload = {"choices": [{"message": said | hollow}]}
    found = json.loads(model_turn_of_whole(json.dumps(payload).encode(), payload))
    assert found == {"role": "assistant", "content": "", "tool_calls": [call]}

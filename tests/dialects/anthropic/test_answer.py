"""Anthropic messages: calls put together from content blocks."""

import json
from typing import Any

import pytest

from callfuse.dialects.anthropic.answer import (
    MessagesReader,
    is_client_call,
    model_turn,
    model_turn_of_whole,
    read_whole,
)
from callfuse.dialects.ask_again import CannotReplay
from callfuse.wire.values import MOST_INSIDE


def start(index: int, kind: str = "tool_use", **more: Any) -> dict[str, Any]:
    """A block opens."""
    block = {"type": kind, "id": f"id{index}", "name": "f", "input": {}, **more}
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, text: str | None, kind: str = "input_json_delta") -> dict[str, Any]:
    """It grows."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, "partial_json": text}}


def stop(index: int) -> dict[str, Any]:
    """It closes."""
    return {"type": "content_block_stop", "index": index}


def finish(reason: str | None) -> dict[str, Any]:
    """The answer's reason to stop."""
    return {"type": "message_delta", "delta": {"stop_reason": reason}}


def assembled(*payloads: dict[str, Any]) -> list[tuple[int, str, str, bool]]:
    """Index, id, arguments and whether it is complete, of each call."""
    reader = MessagesReader()
    for payload in payloads:
        reader.read(payload)
    return [(call.index, call.id, call.arguments, call.closed) for call in reader.calls]


@pytest.mark.parametrize(
    ("payloads", "arguments"),
    [
        ([start(0), grow(0, '{"x"'), grow(0, ":1}"), stop(0)], '{"x":1}'),
        ([start(0), grow(0, ""), grow(0, None), stop(0)], ""),
        ([start(0, input={"x": 1}), stop(0)], '{"x":1}'),
        ([start(0, input=None), grow(0, '{"x":1}'), stop(0)], '{"x":1}'),
        ([start(0), {"type": "ping"}, grow(0, "{}"), {"type": "unheard_of"}, stop(0)], "{}"),
    ],
)
def test_one_call(payloads: list[dict[str, Any]], arguments: str) -> None:
    """Its input comes in pieces, in its start, or not at all."""
    assert assembled(*payloads) == [(0, "id0", arguments, True)]


def test_blocks_of_other_kinds_are_no_calls() -> None:
    """Text, thinking, and calls that the vendor executes."""
    kinds = ["text", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "web_search_tool_result"]
    payloads = [event for at, kind in enumerate(kinds) for event in (start(at, kind), grow(at, "{}"), stop(at))]
    assert assembled(*payloads) == []


def test_interleaved_blocks() -> None:
    """Pieces find their block by its index."""
    found = assembled(start(1), start(2), grow(2, "[2]"), grow(1, "[1]"), stop(2))
    assert found == [(1, "id1", "[1]", False), (2, "id2", "[2]", True)]


@pytest.mark.parametrize(
    ("block", "is_call"),
    [
        ({"type": "tool_use"}, True),
        ({"type": "tool_use", "caller": None}, True),
        ({"type": "tool_use", "caller": {"type": "direct"}}, True),
        ({"type": "tool_use", "caller": {"type": "code_execution_20250825", "tool_id": "x"}}, False),
        ({"type": "server_tool_use"}, False),
        ({"type": "text"}, False),
        (None, False),
        ("tool_use", False),
    ],
)
def test_which_blocks_are_calls_of_the_model(block: Any, is_call: bool) -> None:
    """Those that the client executes and that no program waits for."""
    assert is_client_call(block) is is_call


def whats(*payloads: dict[str, Any]) -> list[str]:
    """What is told, in order."""
    reader = MessagesReader()
    return [event.what.name for payload in payloads for event in reader.read(payload)]


def test_what_is_told() -> None:
    """Opening, closing, the reason to stop, the end, and what breaks a stream."""
    begin = {"type": "message_start", "message": {}}
    end = {"type": "message_stop"}
    assert whats(begin, start(0), grow(0, "{}"), stop(0), finish("tool_use"), end) == [
        "OPENED",
        "CLOSED",
        "FINISHED",
        "ENDED",
    ]
    assert whats(begin, start(0, "text"), stop(0), finish(None), {"type": "ping"}) == []
    assert whats(begin, start(0), {"type": "error", "error": {}}) == ["OPENED", "BROKE"]
    assert whats(begin, start(0), begin) == ["OPENED", "BROKE"]
    assert whats({}, {"type": None}, {"type": "content_block_delta"}, {"type": "content_block_start"}) == []


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded"])
def test_a_cut_answer(reason: str) -> None:
    """The last call may lack its end."""
    assert whats(start(0), grow(0, '{"x'), finish(reason)) == ["OPENED", "CUT"]
    assert whats(finish(reason)) == ["CUT"]
    whole = {"content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}], "stop_reason": reason}
    (choice,) = read_whole(whole)
    assert choice.complete() == ()


@pytest.mark.parametrize("content", [[], [None], [{"type": "text", "text": "x"}]])
def test_whole_answers_without_calls(content: Any) -> None:
    """Have none."""
    (choice,) = read_whole({"content": content})
    assert choice.calls == ()


@pytest.mark.parametrize("content", [None, "text", {"type": "text"}])
def test_what_has_no_list_of_blocks_is_no_answer(content: Any) -> None:
    """Nothing can be spliced with it."""
    assert read_whole({"content": content}) == []


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}


def rebuilt(start: dict[str, Any], *deltas: dict[str, Any]) -> Any:
    """One block, as it stands in the turn."""
    found = json.loads(
        model_turn([{"type": "message_start", "message": {}}, *block(0, start, *deltas), {"type": "ping"}])
    )
    assert found["role"] == "assistant"
    return found["content"][0] if found["content"] else None


@pytest.mark.parametrize(
    ("start", "deltas", "expected"),
    [
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": "b"}],
            {"type": "text", "text": "ab"},
        ),
        ({"type": "text", "text": ""}, [], None),
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln+/=="}],
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln+/=="},
        ),
        ({"type": "redacted_thinking", "data": "ZGF0YQ=="}, [], {"type": "redacted_thinking", "data": "ZGF0YQ=="}),
        (
            {"type": "text", "text": "", "citations": None},
            [{"type": "citations_delta", "citation": {"n": 1}}, {"type": "citations_delta", "citation": {"n": 2}}],
            None,
        ),
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "a"}, {"type": "citations_delta", "citation": {"n": 1}}],
            {"type": "text", "text": "a", "citations": [{"n": 1}]},
        ),
        (USE, [], USE),
        (USE, [{"type": "input_json_delta", "partial_json": ""}], USE),
        (USE | {"input": {"x": 1}}, [], USE | {"input": {"x": 1}}),
        (
            USE | {"caller": {"type": "direct"}},
            [{"type": "input_json_delta", "partial_json": '{"x"'}, {"type": "input_json_delta", "partial_json": ":1}"}],
            USE | {"caller": {"type": "direct"}, "input": {"x": 1}},
        ),
    ],
)
def test_a_block_goes_back_as_it_came(start: dict[str, Any], deltas: list[dict[str, Any]], expected: Any) -> None:
    """Thinking and signatures included; an empty text, which the vendor refuses, is left out."""
    assert rebuilt(start, *deltas) == expected


def test_input_keeps_its_text() -> None:
    """Big numbers and escapes are not read and written again."""
    raw = '{ "n" : 123456789012345678901 , "s":"\\u00e9", "f":1.0}'
    events = block(0, USE, {"type": "input_json_delta", "partial_json": raw})
    assert f'"input":{raw}'.encode() in model_turn(events)


def test_blocks_keep_their_order() -> None:
    """Server tools and their results among them."""
    kinds = ["thinking", "server_tool_use", "web_search_tool_result", "tool_use"]
    events = [event for at, kind in enumerate(kinds) for event in block(at, {"type": kind, "name": "f", "x": at})]
    assert [one["type"] for one in json.loads(model_turn(events))["content"]] == kinds


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        ({"type": "input_json_delta", "partial_json": '{"x'}, "input_json_delta"),
        ({"type": "input_json_delta", "partial_json": "[1]"}, "input_json_delta"),
        ({"type": "input_json_delta", "partial_json": json.dumps({"a": [1] * MOST_INSIDE})}, "input_json_delta"),
    ],
)
def test_what_cannot_be_rebuilt_is_named(delta: dict[str, Any], part: str) -> None:
    """So that the next rung is taken, and it is known why."""
    with pytest.raises(CannotReplay) as told:
        rebuilt(USE, delta)
    assert told.value.part == part


def test_thinking_that_cannot_be_rebuilt_is_named() -> None:
    """The vendor wants it back whole."""
    for delta, part in (({"type": "unheard_of_delta"}, "unheard_of_delta"), ({}, "delta")):
        with pytest.raises(CannotReplay) as told:
            rebuilt({"type": "thinking", "thinking": ""}, delta)
        assert told.value.part == part


def test_what_is_unknown_is_left_out() -> None:
    """A delta of an unknown kind; the block, too, if its type is unknown; and a call without a name."""
    odd = {"type": "unheard_of_delta", "x": 1}
    events = [
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hi."}, odd),
        *block(1, {"type": "unheard_of", "x": 1}, odd, {}),
        *block(2, {"type": "unheard_of", "x": 2}),
        *block(3, {"type": "tool_use", "id": "a", "name": "f", "input": {}}, odd),
        *block(4, {"type": "tool_use", "id": "b", "name": "", "input": {}}),
        *block(5, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "Before."}),
    ]
    assert json.loads(model_turn(events))["content"] == [
        {"type": "text", "text": "Hi."},
        {"type": "unheard_of", "x": 2},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "compaction", "content": "Before."},
    ]


def test_a_whole_turn_keeps_its_bytes() -> None:
    """Every block as it stands in the answer."""
    blocks = b'{ "type":"thinking", "signature":"c2ln\\/" }', b'{"type":"tool_use","input":{"n":9007199254740993.0}}'
    body = b'{"id":"m", "content" : [ ' + b" , ".join(blocks) + b' ], "usage":{}}'
    assert model_turn_of_whole(body, json.loads(body)) == b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"
    with pytest.raises(CannotReplay):
        model_turn_of_whole(b'{"id":"m"}', {"id": "m"})

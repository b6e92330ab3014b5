"""The model's own turn of an Anthropic message, put together from events or taken from a whole answer."""

import json
from typing import Any

import pytest

from callfuse.dialects.anthropic.answer import turn, turn_of_whole
from callfuse.dialects.base import AskError


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
    found = json.loads(turn([{"type": "message_start", "message": {}}, *block(0, start, *deltas), {"type": "ping"}]))
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
    assert f'"input":{raw}'.encode() in turn(events)


def test_blocks_keep_their_order() -> None:
    """Server tools and their results among them."""
    kinds = ["thinking", "server_tool_use", "web_search_tool_result", "tool_use"]
    events = [event for at, kind in enumerate(kinds) for event in block(at, {"type": kind, "x": at})]
    assert [one["type"] for one in json.loads(turn(events))["content"]] == kinds


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        ({"type": "unheard_of_delta"}, "unheard_of_delta"),
        ({}, "None"),
        ({"type": "input_json_delta", "partial_json": '{"x'}, "input_json_delta"),
        ({"type": "input_json_delta", "partial_json": "[1]"}, "input_json_delta"),
    ],
)
def test_what_cannot_be_rebuilt_is_named(delta: dict[str, Any], part: str) -> None:
    """So that the next rung is taken, and it is known why."""
    with pytest.raises(AskError) as told:
        rebuilt(USE, delta)
    assert told.value.part == part


def test_a_whole_turn_keeps_its_bytes() -> None:
    """Every block as it stands in the answer."""
    blocks = b'{ "type":"thinking", "signature":"c2ln\\/" }', b'{"type":"tool_use","input":{"n":9007199254740993.0}}'
    body = b'{"id":"m", "content" : [ ' + b" , ".join(blocks) + b' ], "usage":{}}'
    assert turn_of_whole(body) == b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"
    with pytest.raises(AskError):
        turn_of_whole(b'{"id":"m"}')

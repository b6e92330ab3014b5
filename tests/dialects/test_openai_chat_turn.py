"""The model's own turn of an OpenAI chat completion, put together from chunks or taken from a whole answer."""

import json
from typing import Any

import pytest

from callfuse.dialects.base import AskError
from callfuse.dialects.openai_chat.answer import turn, turn_of_whole

CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":9007199254740993}'}}
WHOLE = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":9007199254740993}'}}


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    """The turn that these deltas and a call come to."""
    payloads = [{"choices": [{"index": 0, "delta": delta}]} for delta in (*deltas, {"tool_calls": [CALL]})]
    found: dict[str, Any] = json.loads(turn(payloads))
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
        ({"web_search_data": [1]}, "delta.web_search_data"),
        ({"content": [{"type": "text"}]}, "delta.content"),
        ({"reasoning_details": "x"}, "delta.reasoning_details"),
        ({"reasoning_details": ["x"]}, "delta.reasoning_details"),
        ({"thinking_blocks": [{"a": 1}]}, "delta.thinking_blocks"),
    ],
)
def test_what_cannot_be_rebuilt_is_named(delta: dict[str, Any], part: str) -> None:
    """So that the next rung is taken, and it is known why."""
    with pytest.raises(AskError) as told:
        message(delta)
    assert told.value.part == part


def test_parallel_calls_and_vendor_keys() -> None:
    """Every call in order, with what the vendor added to it."""
    extra = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    other = {"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [CALL | extra, other]}}]}]
    first, second = json.loads(turn(chunks))["tool_calls"]
    assert first == WHOLE | extra
    assert second == {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}


def test_a_whole_turn_keeps_its_bytes() -> None:
    """Without the keys that say nothing; big numbers, order and white space stay."""
    raw = b'{ "reasoning" : "r\\u00e9" , "tool_calls":[ {"id":"a", "n":9007199254740993.0} ], "big":1.50 }'
    body = b'{"choices":[{"message":' + raw + b"}]}"
    assert turn_of_whole(body) == raw
    body = body.replace(b'"big":1.50', b'"refusal":null,"annotations":[],"audio":null,"content":null')
    assert json.loads(turn_of_whole(body)).keys() == {"reasoning", "tool_calls", "content"}
    with pytest.raises(AskError):
        turn_of_whole(b'{"choices":[]}')

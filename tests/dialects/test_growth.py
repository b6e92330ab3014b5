"""The turn of a long answer costs what its length is: texts that come in many pieces are joined once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from callfuse.wire import Payload
from tests.dialects.reading import dialect_of


class Counting(str):
    """A text that counts the characters that are copied where it is joined to another."""

    __slots__ = ()
    characters = 0

    def __add__(self, other: str) -> "Counting":
        Counting.characters += len(self) + len(other)
        return Counting(str.__add__(self, other))

    def __radd__(self, other: str) -> "Counting":
        Counting.characters += len(self) + len(other)
        return Counting(str.__add__(other, self))


X = Counting("x")


def _chat(**delta: Any) -> Payload:
    return {"choices": [{"index": 0, "delta": delta}]}


def _block(kind: str, **start: Any) -> Payload:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **start}}


def _delta(**delta: Any) -> Payload:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def _cohere(kind: str, **message: Any) -> Payload:
    return {"type": kind, "index": 0, "delta": {"message": message}}


def _gemini(**part: Any) -> Payload:
    return {"candidates": [{"content": {"parts": [part]}}]}


def _details(size: int) -> list[Payload]:
    return [_chat(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": X}]) for _ in range(size)]


LONG: dict[str, tuple[str, Callable[[int], list[Payload]]]] = {
    "chat content": ("openai-chat", lambda size: [_chat(content=X)] * size),
    "chat reasoning": ("openai-chat", lambda size: [_chat(reasoning_content=X)] * size),
    "chat details": ("openai-chat", _details),
    "anthropic text": (
        "anthropic",
        lambda size: [_block("text", text=""), *[_delta(type="text_delta", text=X)] * size],
    ),
    "anthropic thinking": (
        "anthropic",
        lambda size: [_block("thinking", thinking=""), *[_delta(type="thinking_delta", thinking=X)] * size],
    ),
    "cohere text": (
        "cohere-v2",
        lambda size: [
            _cohere("content-start", content={"type": "text", "text": ""}),
            *[_cohere("content-delta", content={"text": X})] * size,
        ],
    ),
    "ollama content": ("ollama", lambda size: [{"message": {"role": "assistant", "content": X}}] * size),
    "ollama thinking": ("ollama", lambda size: [{"message": {"role": "assistant", "thinking": X}}] * size),
    "gemini text": ("gemini", lambda size: [_gemini(text=X)] * size),
    "gemini thought": ("gemini", lambda size: [_gemini(text=X, thought=True)] * size),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_is_joined_once(name: str) -> None:
    """Twice as many pieces cost twice as much, at most."""
    dialect, payloads = LONG[name]
    cost = []
    for size in (200, 400):
        Counting.characters = 0
        turn = dialect_of(dialect).model_turn(payloads(size))
        assert "x" * size in turn.decode()
        cost.append(Counting.characters)
    assert cost[1] <= 2 * cost[0]


def test_many_citations_and_fields_grow_in_place() -> None:
    """What an answer adds to a list or an object one by one is not copied each time, nor is the answer changed."""
    dialect = dialect_of("anthropic")
    start = _block("text", text="Hi.", citations=[{"n": 0}])
    cited = [start, *(_delta(type="citations_delta", citation={"n": at}) for at in range(1, 5))]
    (block,) = json.loads(dialect.model_turn(cited))["content"]
    assert block["citations"] == [{"n": at} for at in range(5)]
    assert start["content_block"]["citations"] == [{"n": 0}]
    chat = [_chat(provider_specific_fields={"a": {f"k{at}": at}, f"b{at}": at}) for at in range(3)]
    fields = json.loads(dialect_of("openai-chat").model_turn(chat))["provider_specific_fields"]
    assert fields == {"a": {"k0": 0, "k1": 1, "k2": 2}, "b0": 0, "b1": 1, "b2": 2}
    assert chat[0] == _chat(provider_specific_fields={"a": {"k0": 0}, "b0": 0})

"""The model's own turn as it goes back: parts as they came, texts joined, calls that came in pieces put together."""

import json
from typing import Any

import pytest

from callfuse.dialects.base import AskError
from callfuse.dialects.gemini.answer import turn, turn_of_whole
from tests.dialects.gemini.test_read import call, chunk, piece


def parts_of(*chunks: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the turn that a stream comes to."""
    content = json.loads(turn(chunks))
    assert content["role"] == "model"
    parts: list[dict[str, Any]] = content["parts"]
    return parts


def test_texts_are_joined_and_thoughts_kept_apart() -> None:
    """Pieces of one kind are one part; a part with a signature stays by itself; empty texts go."""
    assert parts_of(
        chunk({"text": "I ", "thought": True}),
        chunk({"text": "think.", "thought": True}),
        chunk({"text": "So "}, {"text": "it "}),
        chunk({"text": "is."}),
        chunk({"text": "", "thoughtSignature": "c2ln"}),
        chunk({"text": "More."}),
        chunk({"text": ""}, finish="STOP"),
    ) == [
        {"text": "I think.", "thought": True},
        {"text": "So it is."},
        {"text": "", "thoughtSignature": "c2ln"},
        {"text": "More."},
    ]


def test_calls_keep_their_signatures_and_order() -> None:
    """Whole calls as they came, those in pieces without the marks of a stream."""
    assert parts_of(
        chunk({"functionCall": {"name": "f", "willContinue": True, "id": "a"}, "thoughtSignature": "c2ln"}),
        chunk(call(partialArgs=[piece("$.q", stringValue="x", goes_on=True)], willContinue=True)),
        chunk(call(partialArgs=[piece("$.q", stringValue="y")], willContinue=True)),
        chunk(call()),
        chunk({"text": "and"}),
        chunk(call(name="g", args={"n": 1.0})),
    ) == [
        {"functionCall": {"name": "f", "id": "a", "args": {"q": "xy"}}, "thoughtSignature": "c2ln"},
        {"text": "and"},
        {"functionCall": {"name": "g", "args": {"n": 1.0}}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "X", "id": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"somethingNew": {"a": [1]}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_other_parts_go_back_as_they_came(part: dict[str, Any]) -> None:
    """Nothing of them comes in pieces."""
    assert parts_of(chunk(part), chunk(call(name="f"))) == [part, call(name="f")]


def test_pieces_that_cannot_be_put_together() -> None:
    """Then the model is not asked again."""
    with pytest.raises(AskError):
        turn([chunk(call(name="f", partialArgs=[piece("$.a[*]", numberValue=1)]))])


def test_a_whole_answer_keeps_its_bytes() -> None:
    """White space, escapes and numbers; a role is added where it lacks."""
    parts = b'[ {"functionCall":{"name":"f","args":{"n": 1e2}}} ]'
    body = b'{"candidates": [{"content" : { "parts":%b, "role": "model" }}]}' % parts
    assert turn_of_whole(body, json.loads(body)) == body[body.index(b"{ ") : body.rindex(b"}]}")]
    bare = body.replace(b', "role": "model"', b"")
    assert json.loads(turn_of_whole(bare, json.loads(bare)))["role"] == "model"
    with pytest.raises(AskError):
        turn_of_whole(b'{"candidates":[]}', {"candidates": []})

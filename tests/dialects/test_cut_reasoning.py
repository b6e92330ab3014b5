"""Reasoning that was cut off is left out of later requests, wherever it stands; every other byte stays."""

import json
from typing import Any

import pytest

from callfuse.dialects.cut_reasoning import CUT, CUT_MARK, leave_out

ANTHROPIC = {"type": "thinking", "thinking": "so so", "signature": CUT}
BEDROCK = {"reasoningContent": {"reasoningText": {"text": "so so", "signature": CUT}}}
RESPONSES = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": CUT}
TEXT = {"type": "text", "text": "Ok."}


@pytest.mark.parametrize("block", [ANTHROPIC, BEDROCK])
def test_a_block_goes(block: object) -> None:
    """A message with nothing else goes with it."""
    messages: list[Any] = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": [block, TEXT, block]}]
    body = json.dumps({"n": 1.5, "messages": [*messages, {"role": "assistant", "content": [block]}]}).encode()
    assert CUT_MARK in body
    messages[1]["content"] = [TEXT]
    assert leave_out(body) == json.dumps({"n": 1.5, "messages": messages}).encode()


def test_an_item_goes() -> None:
    """Of a list that is not a message's, also where nothing is left."""
    assert json.loads(leave_out(json.dumps({"input": [RESPONSES, TEXT]}).encode())) == {"input": [TEXT]}
    assert json.loads(leave_out(json.dumps({"input": [RESPONSES]}).encode())) == {"input": []}


def test_the_words_alone_are_no_mark() -> None:
    """Said in a text, or as an argument."""
    body = json.dumps({"messages": [{"content": [{"text": CUT}, {"input": {"name": CUT}}]}], "signature": CUT}).encode()
    assert leave_out(body) == body

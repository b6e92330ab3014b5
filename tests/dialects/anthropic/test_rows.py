"""Anthropic histories with several messages of the model in a row, as some clients write them."""

import json
from typing import Any

import pytest

from callfuse.dialects.anthropic import Anthropic
from callfuse.dialects.base import Note
from tests.support.asgi import Request
from tests.support.meeting import MARK, meet
from tests.support.scripted import whole

HEAD: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}


def turn(*calls: str) -> dict[str, Any]:
    """A message of the model's with these calls."""
    made = [{"type": "tool_use", "id": id_, "name": "search", "input": {"query": "zebra"}} for id_ in calls]
    return {"role": "assistant", "content": made or [{"type": "text", "text": "So."}]}


def back(*results: tuple[str, str]) -> dict[str, Any]:
    """A message with these results."""
    blocks = [{"type": "tool_result", "tool_use_id": id_, "content": content} for id_, content in results]
    return {"role": "user", "content": blocks}


def asked(*messages: dict[str, Any]) -> bytes:
    """A request."""
    hello = {"role": "user", "content": "Find it."}
    body = {"model": "m", "max_tokens": 9, "messages": [hello, *messages], "tools": [{"name": "search"}]}
    return json.dumps(body).encode()


JOINED = [
    ([turn("a"), turn("b"), back(("a", "1"), ("b", "2"))], ["1", "2"]),
    ([turn("a"), turn("b"), back(("a", "1")), back(("b", "2"))], ["1", "2"]),
    ([turn("a"), turn(), back(("a", "1"))], ["1"]),
    ([turn("a"), back(("a", "1")), turn("a"), turn("b"), back(("a", "3"), ("b", "2"))], ["1", "3", "2"]),
    ([turn("a"), turn("b"), back(("b", "2")), turn("a"), back(("a", "1"))], ["?", "2", "1"]),
]


@pytest.mark.parametrize(("messages", "found"), JOINED)
def test_messages_of_the_model_in_a_row(messages: list[dict[str, Any]], found: list[str]) -> None:
    """The vendor takes them for one (pydantic-ai sends such, a call each): results behind them are those of all."""
    body = asked(*messages)
    request = Anthropic().read_request(body, json.loads(body))
    assert request is not None
    rounds = [one for one in request.rounds() if one is not None]
    calls = [call for one in reversed(rounds) for call in one.calls]
    assert [call.outcome.text if call.outcome else "?" for call in calls] == found


def test_a_note_finds_its_result_behind_messages_in_a_row() -> None:
    """Of the first of two messages as of the second."""
    body = asked(turn("a"), turn("b"), back(("a", "1"), ("b", "2")), turn("a"), back(("a", "3")))
    request = Anthropic().read_request(body, json.loads(body))
    assert request is not None
    newest, second, first = [one for one in request.rounds() if one is not None]
    notes = [Note(one.position, one.calls[0].call, f"to {at}") for at, one in enumerate((first, second, newest))]
    messages = json.loads(request.with_notes(notes))["messages"]
    results = [block["content"] for message in (messages[3], messages[5]) for block in message["content"]]
    assert results == ["1\n\nto 0", "2\n\nto 1", "3\n\nto 2"]


def test_messages_in_a_row_are_a_loop_by_their_results() -> None:
    """The third call is blocked where both results before it were the same, and passes where they were not."""
    answer = whole(json.dumps({**HEAD, **turn("c"), "stop_reason": "tool_use"}).encode())
    for second, blocked in (("1", True), ("another", False)):
        request = Request("/v1/messages", asked(turn("a"), turn("b"), back(("a", "1"), ("b", second))))
        assert (MARK.encode() in meet(request, [answer]).body) is blocked

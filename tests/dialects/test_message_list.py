"""Histories of messages of any shape are read without an error, and alike however they are looked at."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects.base import Note
from tests.dialects.reading import dialect_of

ODD: st.SearchStrategy[Any] = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just({}), st.just([]))
NAMES = st.sampled_from(["search", "lookup", "read_file"])
FUNCTION = st.one_of(ODD, st.fixed_dictionaries({}, optional={"name": st.one_of(NAMES, ODD), "arguments": ODD}))
PART = st.one_of(ODD, st.fixed_dictionaries({}, optional={"id": ODD, "function": FUNCTION}))
BLOCK = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["tool_use", "tool_result", "text", "server_tool_use", None])},
        optional={"name": st.one_of(NAMES, ODD), "id": ODD, "text": st.just("<system-reminder>"), "caller": ODD},
    ),
    st.fixed_dictionaries({}, optional={"toolUse": st.one_of(ODD, FUNCTION), "toolResult": st.one_of(ODD, FUNCTION)}),
)
ROLES = st.sampled_from(["assistant", "assistant", "user", "tool", "system", "function", None])
MESSAGE = st.one_of(
    ODD,
    st.fixed_dictionaries(
        {"role": ROLES},
        optional={
            "content": st.one_of(ODD, st.lists(st.one_of(PART, BLOCK), max_size=3)),
            "tool_calls": st.one_of(st.none(), st.lists(PART, max_size=3)),
            "function_call": FUNCTION,
            "tool_call_id": ODD,
            "images": ODD,
        },
    ),
)


@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "ollama", "cohere-v2", "bedrock-converse"])
@given(data=st.data())
def test_messages_of_any_shape(name: str, data: st.DataObject) -> None:
    """The last real user message is where the rounds have one, and a note on a call without result changes nothing.

    Of equal calls without ids, one may have the result, and then the note is there.
    """
    messages = data.draw(st.lists(MESSAGE, max_size=6))
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode()
    request = dialect_of(name).read_request(body, json.loads(body), "/model/m/converse")
    assert request is not None
    rounds = list(request.rounds())
    position, _ = request.last_user_message()
    assert (None in rounds) == (position >= 0)
    newest = rounds[: rounds.index(None)] if None in rounds else rounds
    assert all(one is not None and one.position > position for one in newest)
    assert list(request.opening()) == list(request.opening())
    for at in range(request.length):
        typed, said = request.typed_message(at), request.own_text(at)
        assert typed is None or said is None
        assert typed is None or at <= position
    for one in filter(None, rounds):
        answered = {(call.id, call.signature) for call in one.calls if call.result is not None}
        for call in one.calls:
            if (call.id, call.signature) not in answered:  # equal calls of one answer share their result
                assert request.with_notes([Note(one.position, call.call, "A note.")]) == body

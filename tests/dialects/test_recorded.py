"""What is recorded without its path is recognised by its dialect, and nothing else is taken for it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.dialects import DIALECTS, Dialect, dialect_of, recognise_answer, recognise_request
from callfuse.wire.jsontext import loads
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect
from tests.support.plain import spin

AS: dict[str, str] = {"cohere-v2": "openai-chat"}
"""Whose messages are those of another dialect."""
KEYS = ("messages", "input", "contents", "choices", "candidates", "output", "content", "message", "role", "parts")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*KEYS, "type")), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_its_usual_path_is_its_own(dialect: Dialect) -> None:
    """Where a recorded request says nothing else, it is taken for one to this path."""
    assert dialect_of(dialect.usual_path) is dialect


@every_dialect
def test_a_request_is_its_dialects(kit: DialectKit) -> None:
    """As a whole body, and as the bare history in it."""
    payload = loads(ask(kit, spin(), stream=False).body)
    key = next(key for key in ("messages", "input", "contents") if key in payload)
    for value in (payload, {key: payload[key]}, payload[key]):
        found = recognise_request(value)
        assert found
        assert found[0].name == AS.get(kit.name, kit.name)
        assert found[1][key] == payload[key]
        assert recognise_answer(value) is None


@given(value=values)
def test_anything_else_raises_nothing(value: Any) -> None:
    """Whatever stands where."""
    for dialect in DIALECTS:
        dialect.recognise(value)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ({"choices": []}, "openai-chat"),
        ({"candidates": []}, "gemini"),
        ({"output": []}, "openai-responses"),
        ({"output": {}}, "bedrock-converse"),
        ({"content": []}, "anthropic"),
        ({"message": {}}, "ollama"),
    ],
)
def test_whole_answers(answer: dict[str, Any], name: str) -> None:
    """They are known by one key, and by what stands under it."""
    found = recognise_answer(answer)
    assert found
    assert (found[0].name, found[1]) == (name, answer)
    assert recognise_request(answer) is None


@pytest.mark.parametrize(
    "value", [None, "text", 1, {}, ["text"], {"messages": "text"}, {"input": "text"}, {"choices": 1}]
)
def test_what_is_of_no_dialect(value: Any) -> None:
    """An input that is a text stands in other records, too: it needs a model beside it."""
    assert recognise_request(value) is None
    assert recognise_answer(value) is None

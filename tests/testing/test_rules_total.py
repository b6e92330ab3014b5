"""The rules read foreign JSON: whatever it is, they judge it and never raise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.testing.vendor import DIALECTS
from tests.support.examples import more_examples
from tests.support.rules import RULES, violations

# fmt: off
KEYS = st.sampled_from([
    "model", "messages", "role", "content", "type", "text", "tools", "tool_choice", "tool_calls", "id", "function",
    "name", "arguments", "tool_call_id", "n", "tool_use_id", "input", "thinking", "signature", "budget_tokens",
    "is_error", "max_tokens", "stream", "stream_options",
])
# fmt: on
WORDS = st.sampled_from(
    ["user", "assistant", "tool", "text", "tool_use", "tool_result", "thinking", "function", "enabled", "any", "", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)
MESSAGES = st.lists(st.fixed_dictionaries({"role": WORDS, "content": JSON}, optional={"tool_calls": JSON}) | JSON)
BODIES = st.fixed_dictionaries({"messages": MESSAGES | JSON}, optional={"tools": JSON, "thinking": JSON, "n": JSON})


@pytest.mark.parametrize("dialect", RULES)
@more_examples(5)
@given(body=BODIES | st.dictionaries(KEYS, JSON))
def test_total(dialect: str, body: dict[str, Any]) -> None:
    """Any JSON object is judged, in sentences, and the same each time."""
    found = violations(dialect, body)
    assert all(sentence and isinstance(sentence, str) for sentence in found)
    assert violations(dialect, body) == found


@more_examples(5)
@given(body=BODIES | st.dictionaries(KEYS, JSON))
def test_last_round_is_total(body: dict[str, Any]) -> None:
    """Any JSON object has a last round, and one without results has no calls."""
    for dialect in DIALECTS:
        calls, results = dialect.last_round(body)
        assert results or not calls
        assert dialect.choice_count(body) >= 1

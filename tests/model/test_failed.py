"""Whether a result is an error is known for less than its outcome costs, and is what the outcome says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import PastCall, Result, ToolCall
from callfuse.model.outcomes import OutcomeKind, is_failure, outcome_of
from tests.support.examples import more_examples

PHRASES = (
    "Error: no such key", "ls: cannot access 'a'", "cat: a: No such file or directory", "bash: a: command not found",
    "Traceback (most recent call last)", "fine", "12: The error log is empty", "", " ", "\n", "Exit code: 1",
    "Exit code: 0", "<returncode>2</returncode>", '{"error": "x"}',
    '{"output": "{\\"ok\\": false}"}', "[]", "{", "no data",
    "[Old tool result content cleared]", "[Trimmed result: a]", "null", "429 Too Many Requests",
    "\x1b[31mError\x1b[0m: no such key", "\x1b[",
)  # fmt: skip
texts = st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3).map("\n".join) | st.text(max_size=30)
keys = st.sampled_from(["error", "content", "tool_output", "result", "status", "exit_code", "success", "data", "a"])
values = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 404, 0.5]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
parts = st.lists(texts | st.builds(lambda text: {"type": "text", "text": text}, texts) | values, max_size=3)


@more_examples(5)
@given(content=values | parts, flag=st.sampled_from([None, True, False]))
def test_it_is_what_the_outcome_says(content: Any, flag: bool | None) -> None:
    """Of any content, with the client's flag or without; nothing is said where the outcome is unknown."""
    outcome = outcome_of(content, flag)
    said = is_failure(content, flag)
    assert said is (None if outcome is None else outcome.kind is OutcomeKind.ERROR)


@pytest.mark.parametrize("asks_before", [True, False])
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Result("Error: no such key"), True),
        (Result("fine"), False),
        (Result("fine", True), True),
        (Result("Error: no such key", False), False),
        (Result("[Old tool result content cleared]"), None),
        (None, None),
    ],
)
def test_a_call_knows_whether_it_failed(result: Result | None, said: bool | None, asks_before: bool) -> None:
    """Before its outcome is asked for, and after."""
    call = PastCall(ToolCall("id", "search", "{}"), result)
    if asks_before:
        assert call.failed is said
        assert call.result is result
    assert (call.outcome is None) is (said is None)
    assert call.failed is said


@pytest.mark.parametrize(
    "result", [None, Result("[Old tool result content cleared]"), Result("fine"), Result("Error: x")]
)
@pytest.mark.parametrize("text", ["fine", "Error: no such key"])
def test_what_the_ledger_recalls_counts_where_the_result_says_nothing(result: Result | None, text: str) -> None:
    """As it does for the outcome."""
    recalled = outcome_of(text, None)
    assert recalled is not None
    call = PastCall(ToolCall("id", "search", "{}"), result)
    call.recall(recalled, certain=False)
    said = call.failed
    assert call.outcome is not None
    assert said is (call.outcome.kind is OutcomeKind.ERROR)

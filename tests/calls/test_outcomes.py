"""Outcomes: which results are the same, of which kind they are, and which say nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.calls.outcomes import SHORT_TEXT, OutcomeKind, outcome_of, same_outcome

UUID = "550e8400-e29b-41d4-a716-446655440000"
OTHER_UUID = "0b1c2d3e-ffff-4eee-8ddd-123456789abc"
OWN = "[callfuse] This is call 3 of search in a row."


def same(one: Any, other: Any) -> bool:
    """Whether two results are known and equal."""
    first, second = outcome_of(one), outcome_of(other)
    assert first is not None
    assert second is not None
    return first.digest == second.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://a\x07link\x1b]8;;\x1b\\", "link"),
        ("at 2026-11-20T10:00:00.123Z", "at 2026-11-21T09:59:07.001Z"),
        ("[10:00:01] done", "[23:59:59] done"),
        ("took 850 ms", "took 1.2 s"),
        ("took 3 minutes", "took 12 hours"),
        ("Elapsed: 4.02s", "Elapsed: 17s"),
        (f"job {UUID}", f"job {OTHER_UUID}"),
        (f"job_{UUID}", f"job_{OTHER_UUID}"),
        ("commit 3f2a9bc1", "commit a0b1c2d3e4f5a6b7"),
        ("commit a1b2c3d", "commit 9f8e7d6"),
        ("container deadb33f", "container 0badcafe"),
        ("tmp_3f2a9bc1d", "tmp_a0b1c2d3e"),
        ("at 0x7ffee3", "at 0xdeadbeef"),
        ("pid 4711", "pid 42"),
        ("3 files, 1024 bytes", "12 files, 9 bytes"),
        ([{"type": "text", "text": "in 3 s"}], [{"type": "text", "text": "in 4 s"}]),
        ({"ok": True, "took_ms": 12}, {"ok": True, "took_ms": 13}),
    ],
)
def test_what_changes_from_run_to_run_does_not_count(one: Any, other: Any) -> None:
    """Colours, times, durations, ids and digits are taken out before results are compared."""
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("found a", "found b"),
        ("yes", "no"),
        ("x" * 10_000 + "a", "x" * 10_000 + "b"),
        ("a\nb", "ab"),
        (["a", "b"], ["ab"]),
        (["a", "b"], ["b", "a"]),
        ([{"type": "image", "source": {"data": "AAAA1"}}], [{"type": "image", "source": {"data": "AAAA2"}}]),
        ([{"type": "image_url", "image_url": {"url": "a"}}], [{"type": "image_url", "image_url": {"url": "b"}}]),
        ([{"type": "text", "text": "a"}, {"type": "image", "d": 1}], [{"type": "text", "text": "a"}]),
        ({"a": "x"}, {"a": "y"}),
        ("a", ""),
    ],
)
def test_everything_else_counts(one: Any, other: Any) -> None:
    """The full text and every other part, as it stands."""
    assert not same(one, other)


def test_an_error_is_not_the_same_as_its_text() -> None:
    """The flag is part of the outcome."""
    assert not same_outcome(outcome_of("x", is_error=True), outcome_of("x", is_error=False))
    assert same_outcome(outcome_of("x", is_error=False), outcome_of("x"))


@pytest.mark.parametrize(
    ("plain", "noted"),
    [
        ("a", f"a\n\n{OWN}"),
        ("a\n", f"a\n\n\n{OWN}"),
        ("", OWN),
        ("a", f"a\n\n{OWN}\n\n{OWN}"),
        ([{"type": "text", "text": "a"}], [{"type": "text", "text": f"a\n\n{OWN}"}]),
        ([{"type": "image", "d": 1}], [{"type": "image", "d": 1}, {"type": "text", "text": OWN}]),
        ({"a": 1}, {"a": 1, "callfuse": OWN}),
    ],
)
def test_own_texts_do_not_count(plain: Any, noted: Any) -> None:
    """A result that carries a warning is the result that it was, in each shape in which warnings are added."""
    assert same(plain, noted)
    outcome = outcome_of(noted)
    assert outcome is not None
    assert "[callfuse]" not in outcome.text


@pytest.mark.parametrize(
    "text",
    [
        "[Old tool result content cleared]",
        "[Tool result removed to save context]",
        "(previous output omitted)",
        "<tool output truncated>",
        "Old result compacted",
        "[result pruned]",
    ],
)
def test_a_placeholder_says_nothing(text: str) -> None:
    """What a client puts where a result stood leaves the outcome unknown."""
    assert outcome_of(text) is None
    assert outcome_of([{"type": "text", "text": text}]) is None


@pytest.mark.parametrize(
    "text", ["output of the tool:\n3 lines removed", "The result was removed by hand " + "x" * 100]
)
def test_a_text_about_results_is_no_placeholder(text: str) -> None:
    """Longer texts, or several lines, are results."""
    assert outcome_of(text) is not None


@pytest.mark.parametrize(
    ("content", "flag", "kind"),
    [
        ("all good", None, OutcomeKind.OK),
        ("Error: no such file", None, OutcomeKind.ERROR),
        ("ValueError: bad", None, OutcomeKind.ERROR),
        ("Traceback (most recent call last):", None, OutcomeKind.ERROR),
        ("[error] x", None, OutcomeKind.ERROR),
        ("The tool failed", None, OutcomeKind.ERROR),
        ("Error: handled", False, OutcomeKind.OK),
        ("all good", True, OutcomeKind.ERROR),
        ("we talked at length about an error", None, OutcomeKind.OK),
        ("", None, OutcomeKind.NO_DATA),
        (None, None, OutcomeKind.NO_DATA),
        ([], None, OutcomeKind.NO_DATA),
        ("[]", None, OutcomeKind.NO_DATA),
        ("{}", None, OutcomeKind.NO_DATA),
        ("null", None, OutcomeKind.NO_DATA),
        ("No results found.", None, OutcomeKind.NO_DATA),
        ("no matches", None, OutcomeKind.NO_DATA),
        ("Nothing found", None, OutcomeKind.NO_DATA),
        ("0 results", None, OutcomeKind.OK),
        ([{"type": "image", "d": 1}], None, OutcomeKind.OK),
        (5, None, OutcomeKind.OK),
        (True, None, OutcomeKind.OK),
    ],
)
def test_the_kind_of_a_result(content: Any, flag: bool | None, kind: OutcomeKind) -> None:
    """The client's own flag decides about errors; where it is silent, how the text begins."""
    outcome = outcome_of(content, flag)
    assert outcome is not None
    assert outcome.kind is kind


def test_the_text_is_short() -> None:
    """The beginning of the result is kept to be shown, own texts left out."""
    outcome = outcome_of([{"type": "image", "d": 1}, {"type": "text", "text": "x" * 1000}])
    assert outcome is not None
    assert outcome.text == "x" * SHORT_TEXT


def test_an_unknown_outcome_is_equal_to_all() -> None:
    """Otherwise the digests decide."""
    known, other = outcome_of("a"), outcome_of("b")
    assert same_outcome(None, known)
    assert same_outcome(known, None)
    assert same_outcome(None, None)
    assert same_outcome(known, known)
    assert not same_outcome(known, other)


contents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "type", "a"]), inner, max_size=3)
    ),
)


@given(content=contents)
def test_any_content_has_an_outcome(content: Any) -> None:
    """Nothing that a client can send makes it raise, and the same content is always the same outcome."""
    one, other = outcome_of(content), outcome_of(content)
    assert one == other

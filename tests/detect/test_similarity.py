"""How alike two sets of arguments are: between 0 and 1, the same both ways, and cheap whatever comes."""

import json
import math
from typing import Any

import pytest
from hypothesis import given

from callfuse.detect.similarity import END, LONGEST, alike, outcomes_alike
from callfuse.model import ToolCall
from callfuse.model.outcomes import outcome_of
from callfuse.policy.settings import LoopSettings
from tests.detect.values import arguments
from tests.support.examples import more_examples

SETTINGS = LoopSettings(similarity_threshold=0.9)


def likeness(one: Any, other: Any, **how: Any) -> float:
    """Of two arguments, as text or as values."""
    settings = LoopSettings.model_validate({"similarity": how})
    found = alike(ToolCall("1", "a", one), ToolCall("2", "a", other), settings)
    assert found == alike(ToolCall("2", "a", other), ToolCall("1", "a", one), settings)
    return round(found, 3)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"q": "abcd"}, {"q": "abcd"}, 1),
        ({"q": "abcd"}, {"q": "abce"}, 0.75),
        ({"q": "abcd", "n": 1}, {"q": "abce", "n": 1}, 0.875),
        ({"q": "abcd", "n": 1}, {"q": "abcd"}, 0.5),
        ({"q": "ab cd"}, {"q": " AB \n cd "}, 1),
        ({"q": ["a", "b"]}, {"q": ["a", "b", "c"]}, 0.667),
        ({"q": {"x": "abcd", "y": "z"}}, {"q": {"x": "abcf", "y": "z"}}, 0.875),
        ({}, {"q": "abcd"}, 0),
        ({}, {}, 1),
        ({"q": "abcd"}, {"q": ["abcd"]}, 0.5),
        ([1, 2], [1, 3], 0.5),
        ("no json at all", "no json at ale", 0.929),
        ({"q": 10}, {"q": 11}, 0.5),
        ({"q": True}, {"q": 1}, 0),
    ],
)
def test_levenshtein_field_by_field(one: Any, other: Any, expected: float) -> None:
    """The mean over all keys of both, lists by position, all else as text; without case and white space."""
    assert likeness(one, other) == expected
    if not isinstance(one, str):
        assert likeness(json.dumps(one), other) == expected


@pytest.mark.parametrize(
    ("one", "other", "whole", "by_field"),
    [
        ("/tmp/data.csv", "data.csv", 0.8, 0.615),
        ("/tmp/data.csv", "./data.csv", 0.84, 0.692),
        ("data.csv", "./data.csv", 0.909, 0.8),
    ],
)
def test_arguments_as_one_text(one: str, other: str, whole: float, by_field: float) -> None:
    """Keys and punctuation count, so that a threshold means something else than field by field; the order of keys does
    not."""
    assert likeness({"path": one}, {"path": other}, algorithm="levenshtein_json") == whole
    assert likeness({"path": one}, {"path": other}) == by_field
    assert likeness('{"a":1, "b":2}', '{"b":2,"a":1}', algorithm="levenshtein_json") == 1


def test_settings() -> None:
    """Words instead of characters; case and white space may count."""
    words = {"q": "the cat sat"}, {"q": "sat the cat down"}
    assert likeness(*words, algorithm="jaccard") == 0.75
    assert likeness(*words, ignore_word_order=False) < 0.6
    assert likeness({"q": "a b"}, {"q": "A b"}, ignore_case=False) == 0.667
    assert likeness({"q": "a b"}, {"q": "a  b"}, normalize_whitespace=False) == 0.75
    assert likeness({"q": ""}, {"q": "a"}, algorithm="jaccard") == 0


SEED_EXAMPLES = (
    ({"query": "population of France 2023"}, {"query": "France population 2023"}),
    ({"location": "New York"}, {"location": "New York"}),
    ({"location": "New York"}, {"location": "new  york"}),
)


@pytest.mark.parametrize(("one", "other"), SEED_EXAMPLES)
def test_the_same_question_in_other_words(one: Any, other: Any) -> None:
    """The threshold of 0.9 finds it; without the setting other words are another question."""
    assert likeness(one, other) >= 0.9
    assert likeness({"query": "a b c d e"}, {"query": "e d c b a"}) == 1
    assert likeness({"query": "a b c d e"}, {"query": "e d c b a"}, ignore_word_order=False) < 0.9


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cp a", "a cp"),
        ("move every file from a to b", "delete each line of c"),
        ("a b c", "a b d"),
        ("7 x 12", "12 x 8"),
    ],
)
def test_other_words_are_another_question(one: str, other: str) -> None:
    """Nor does their order play no part in two words, as in a command and its file."""
    assert likeness({"query": one}, {"query": other}) < 0.9


def test_word_order_counts_in_results_and_in_what_is_no_text_of_its_own() -> None:
    """A swapped pair of results is another result, and JSON is no sentence."""
    one, other = (
        outcome_of(text) for text in ("moved the big stone to the left bank", "left bank moved to the big stone the")
    )
    assert one is not None
    assert other is not None
    assert outcomes_alike(one, other, SETTINGS) < 0.9
    assert likeness("not json of five words", "words five of json not") < 0.9


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (["a", "b", "c"], ["c", "a", "b"], 1),
        ([{"x": 1, "y": 2}, 3], [3, {"y": 2, "x": 1}], 1),
        (["a", "b", "b"], ["b", "a", "a"], 0.667),
        ([1, 2, 3], [3, 2], 0.667),
        (["ab", "cd", "same"], ["same", "ab", "ce"], 0.833),
    ],
)
def test_arrays_in_any_order(one: Any, other: Any, expected: float) -> None:
    """Where a setting says that it does not matter: what both have is compared with itself."""
    assert likeness({"ids": one}, {"ids": other}, ignore_array_order=True) == expected
    assert likeness({"ids": one}, {"ids": other}) < expected


def test_ignored_fields() -> None:
    """Arguments that do not tell calls apart are not looked at."""
    made = [ToolCall("1", "a", {"q": q, "stamp": stamp}) for q, stamp in ("xa", "xb", "yb")]
    one, same, other = (call.ignoring({"stamp"}) for call in made)
    assert alike(one, same, SETTINGS) == 1.0
    assert alike(same, other, SETTINGS) == 0.0


def test_only_the_ends_of_long_texts() -> None:
    """So that the cost has a bound."""
    middle = "m" * LONGEST
    assert likeness(f"{'a' * END}{middle}{'b' * END}", f"{'a' * END}{middle.upper()}!{'b' * END}") == 1
    assert likeness(f"{'a' * END}{middle}{'b' * END}", f"{'a' * END}{middle}{'c' * END}") == 0.5


@more_examples(5)
@given(one=arguments, other=arguments)
def test_any_arguments(one: Any, other: Any) -> None:
    """Between 0 and 1, the same both ways (see `likeness`), 1 for equal ones, and nothing raises."""
    for how in ({}, {"algorithm": "jaccard"}, {"ignore_array_order": True}, {"ignore_word_order": False}):
        assert 0 <= likeness(one, other, **how) <= 1
        assert likeness(one, one, **how) == 1


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "huge",
    [
        '{"q":"' + "x" * 10**6 + '"}',
        {"q": "y" * 10**6},
        "[" * 2000 + "]" * 2000,
        "[" * 1000 + "]" * 1000,
        nested(900),
        {str(at): at for at in range(10**4)},
        {"q": "\ud800" * 600},
        {"q": math.nan},
        "\x00" * 5000,
    ],
    ids=repr,
)
def test_hostile_arguments(huge: Any) -> None:
    """Nothing raises, and no comparison looks at more than the ends."""
    for other in ({"q": "x"}, "[]", huge):
        assert 0 <= likeness(huge, other) <= 1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("came back at 10:00:05", "came back at 10:00:07", 1.0),
        ("the file a.txt is here", "the file b.txt is here", 0.95),
        ("x" * 299, "x" * 298 + "y", 1.0),
        ("x" * 300, "x" * 299 + "y", 0.0),
        ("Error: no such file", "Well: there is a file", 0.0),
        ("", "x", 0.0),
    ],
)
def test_outcomes(one: str, other: str, expected: float) -> None:
    """Equal ones are; short ones by the same measure; of longer ones only the beginning is known."""
    found = outcomes_alike(outcome_of(one), outcome_of(other), SETTINGS)  # type: ignore[arg-type]
    assert found == pytest.approx(expected, abs=0.01)
    assert outcomes_alike(outcome_of(one), outcome_of(other), LoopSettings()) == float(found == 1 and one[0] == "c")  # type: ignore[arg-type]

"""`similar`, rule by rule: nearly the same call, and the same comes of it, or nothing but errors."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.similar import MOST, Similar
from callfuse.detect.similarity import pages_on
from callfuse.model import PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, found, past, timeline

RULE = Rule(Similar(), similarity_threshold=0.5)


def test_off_until_a_threshold_is_set() -> None:
    """For all tools or for one."""
    assert RULE.count("a111=x", "a112=x", pending="a113") == 3
    assert RULE.count("a111=x", "a112=x", pending="a113", similarity_threshold=None) == 0
    assert RULE.count("a111=x", "a112=x", pending="a113", similarity_threshold=0.9) == 0
    own = {"a": {"similarity_threshold": 0.5}}
    assert RULE.count("a111=x", "a112=x", pending="a113", similarity_threshold=None, per_tool=own) == 3


@pytest.mark.parametrize(
    ("texts", "asked"),
    [(["a1", "b1"], False), (["a1"], False), (["a1", "a2"], True), (["b", "a1 b", "a2"], True), (["a1 b", "c"], False)],
)
def test_it_is_asked_only_where_a_tool_comes_again(texts: list[str], asked: bool) -> None:
    """In all rounds that a finding takes."""
    awake = Engine(timeline(*texts), LoopSettings(similarity_threshold=0.5)).awake
    assert (True in [isinstance(one, Similar) for one in awake]) is asked


@pytest.mark.parametrize(("limit", "soft"), [(3, 3), (2, 2), (5, 5), (0, 3)])
def test_soft_and_hard(limit: int, soft: int) -> None:
    """`max_repeats`, hard at twice that; where that is off, the limits of its default."""
    past = [f"a11{at % 9}=x" for at in range(2 * soft)]
    for before in range(2 * soft):
        finding = RULE.found(*past[:before], pending="a119", max_repeats=limit)
        assert (finding.count if finding else 0) == (before + 1 if before + 1 >= soft else 0)
        assert finding is None or (finding.threshold, finding.hard) == (soft, before + 1 >= 2 * soft)


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        (("a111=x", "a112=x"), True),
        (("a111=x", "a112=quite_another_thing_than_that"), False),
        (("a111=!first", "a112=!second"), True),
        (("a111=x", "a112=!second"), False),
        (("a111", "a112=x"), True),
        (("a111=x", "!a112"), True),
        (("a111=x", "b=y", "a112=x"), False),
        (("a111=x", "a112=x b=y"), True),
        (("a111=x", "a777777777777777=x"), False),
        (("-a111=x", "a112=x"), False),
    ],
)
def test_what_counts(rounds: tuple[str, ...], found: bool) -> None:
    """Calls of one tool in consecutive rounds, alike, with equal or equally failing outcomes; unknown ones may be any.

    Of a call that the client has dropped there is nothing to be compared.
    """
    assert (RULE.count(*rounds, pending="a113") == 3) is found


def test_outcomes_that_are_nearly_equal() -> None:
    """Short ones, by the same measure; confidence is the least likeness."""
    finding = RULE.found("a111=page_x", "a111=page_y", pending="a111")
    assert finding is not None
    assert (finding.count, round(finding.confidence, 2)) == (3, 0.94)
    long = [f"{letter * 400}" for letter in "xxy"]
    calls = [PastCall(ToolCall(text, "a", "{}"), Result(text)) for text in long]
    past = Timeline([Round((calls[2],), 2), Round((calls[0],), 1)])
    assert found(Similar(), past, LoopSettings(similarity_threshold=0.1), calls[0].call) is None


def test_each_is_compared_with_the_next() -> None:
    """Small steps may lead far."""
    near = [f"a{number}=x" for number in ("1111", "1112", "1122", "1222", "2222")]
    assert RULE.count(*near[:-1], pending="a2222", similarity_threshold=0.74) == 5
    assert RULE.count(near[0], near[-1], pending="a2222", similarity_threshold=0.74) == 0


def test_of_several_in_a_round_the_one_most_like_it() -> None:
    """In whatever order they stand; a large batch is no repetition."""
    for text in ("a111=x a999=x", "a999=x a111=x"):
        finding = RULE.found("a111=x", text, pending="a112", similarity_threshold=0.6)
        assert finding is not None
        assert finding.count == 3
    batch = " ".join(f"a{100 + at}=x" for at in range(MOST + 1))
    assert RULE.count(batch, batch, pending="a113") == 0
    assert RULE.count(*[batch.rpartition(" ")[0]] * 2, pending="a113") == 3


def test_only_as_far_as_a_limit_reaches() -> None:
    """A comparison costs something."""
    assert RULE.count(*[f"a11{at % 7}=x" for at in range(100)], pending="a113") == 1 + 30


def test_a_finding_names_what_it_rests_on() -> None:
    """A new call beside it is no excuse."""
    finding = RULE.found("a111=x", "a112=x", pending="a113")
    assert finding is not None
    assert (finding.kind, finding.calls, finding.ends_on_news) == ("similar", ("id0", "id1"), False)
    assert (round(finding.confidence, 2), finding.previous) == (0.67, "came back x")


def test_what_is_equal_goes_on_as_what_is_alike() -> None:
    """Equal calls at the end of a streak, alone in their rounds or not, under the full name of their tool."""
    assert RULE.count("a112=x", "a111=x", "a111=x", "a111=x", pending="a113") == 5
    assert RULE.count("a112=x", "a111=x b=y", "a111=x", "a111=x", pending="a113") == 5
    assert RULE.count("a112=x", "a111=!e", "a111=x", "a111=x", pending="a113") == 3
    assert RULE.count("a112=x", "a111=x", "a111=x", pending="a113", max_repeats=0) == 4
    outcome = past("a=x").outcome
    spaced = ToolCall("1", "a", '{"n":111}', namespace="s")
    bare = ToolCall("2", "a", "", signature=spaced.signature, has_arguments=False)
    before = Timeline([Round((PastCall(one, outcome=outcome),), 1) for one in (spaced, bare, bare)])
    finding = found(Similar(), before, LoopSettings(max_repeats=2, similarity_threshold=0.5), spaced)
    assert finding is not None
    assert finding.count == 2


def paged(argument: str, *results: str, limit: int = 3) -> int:
    """The count of what is found in the next page, after pages that brought these results."""
    calls = [ToolCall(f"id{at}", "a", f'{{"query":"zebra crossing","{argument}":{at}}}') for at in range(9)]
    made = [Round((PastCall(calls[at], Result(text)),), 1 + 2 * at) for at, text in enumerate(results)]
    chosen = LoopSettings(similarity_threshold=0.5, max_repeats=limit)
    finding = found(Similar(), Timeline(made[::-1]), chosen, calls[len(results)])
    return finding.count if finding else 0


@pytest.mark.parametrize("argument", ["page", "offset", "cursor", "page_token", "startIndex", "skip", "start-line"])
def test_paging_with_new_results_is_none(argument: str) -> None:
    """However alike the results are; with equal results it is, and with other arguments."""
    news = [f"Entries {at}0 to {at}9: zebra" for at in range(6)]
    assert paged(argument, *news) == 0
    assert paged(argument, news[0], news[0]) == 3
    assert paged(argument, *news[:3], *[news[3]] * 2) == 3
    assert paged(argument, "Error: no page 1", "Error: no such page") == 3
    assert paged("limit", *news) == 7


def test_the_second_page_may_be_new() -> None:
    """With a limit of 2 there is no result yet that could tell."""
    assert paged("page", "x", limit=2) == 0
    assert paged("page", "x", "x", limit=2) == 3
    assert paged("limit", "x", limit=2) == 2


def test_pages_in_an_inner_object() -> None:
    """Arguments may stand one level deeper."""
    one, other = (ToolCall("1", "a", f'{{"params":{{"page":{page}}},"q":"x"}}') for page in (1, 2))
    assert pages_on(one, other)
    assert not pages_on(one, one)
    assert not pages_on(one, ToolCall("1", "a", "not JSON"))

"""`no_news`, rule by rule: nothing new is called and nothing new comes back, in whatever order."""

import pytest

from callfuse.detect.no_news import NoNews
from tests.detect.timelines import Rule

RULE = Rule(NoNews())
KNOWN = ("a=x", "b=y", "c=z")


@pytest.mark.parametrize(
    "rounds",
    [
        ("a=x", "b=y", "c=z"),
        ("c=z", "a=x", "b=y"),
        ("b=y", "b=y", "c=z"),
        ("a=x b=y", "c=z", "c=z a=x"),
        ("a=x", "a=x", "a=x"),
    ],
)
def test_known_rounds_in_any_order(rounds: tuple[str, ...]) -> None:
    """Three rounds that only repeat what is known, and a fourth that is about to."""
    for pending in "abc":
        assert RULE.count(*KNOWN, *rounds, pending=pending) == 4
    assert RULE.count(*KNOWN, *rounds, pending="d") == 0


@pytest.mark.parametrize("limit", [2, 4, 5])
def test_soft_and_hard(limit: int) -> None:
    """Rounds count, the pending one included; hard at twice the limit."""
    order = [*KNOWN, *"acbacbacb"]
    past = [KNOWN["abc".index(word[0])] for word in order]
    for more in range(9):
        finding = RULE.found(*past[: 3 + more], detectors={"no_news": limit})
        assert (finding.count if finding else 0) == (more + 1 if more + 1 >= limit else 0)
        assert finding is None or (finding.threshold, finding.hard) == (limit, more + 1 >= 2 * limit)


def test_off() -> None:
    """`false` turns it off, and `max_repeats: 0` does not."""
    assert RULE.count(*KNOWN, *KNOWN, detectors={"no_news": False}) == 0
    assert RULE.count(*KNOWN, *KNOWN, max_repeats=0) == 4


@pytest.mark.parametrize("news", ["d=x", "a1=x", "a=x d=y", "a=other", "a=x b=other"])
def test_news_ends_it(news: str) -> None:
    """A new call, beside a known one or not, and a known call with a new outcome."""
    assert RULE.count(*KNOWN, *KNOWN, news, "a=x", "b=y") == 0
    assert RULE.count(*KNOWN, news, *KNOWN) == 4


def test_a_known_call_with_any_of_its_known_outcomes() -> None:
    """What a call has brought once within the window it may bring again."""
    assert RULE.count("a=x", "a=y", "a=x", "a=y", "a=x") == 4
    assert RULE.count("a=x", "a=y", "a=x", "a=z", "a=x") == 0


def test_unknown_outcomes_may_be_known_ones() -> None:
    """Of either call, whether the client still shows it or not."""
    assert RULE.count("a", "a", "a", "a") == 4
    assert RULE.count("a", "a=x", "a=x", "a=x") == 4
    assert RULE.count("a=x", "a", "a", "a=x") == 4
    assert RULE.count("-a=x", "-a=x", "a=x", "a=x") == 4
    assert RULE.count("-a", "-a", "a=x", "a=x") == 4
    assert RULE.count("a=x", "a=x", "-a", "a=x") == 4


def test_withheld_calls_count_and_bring_nothing() -> None:
    """They fill no window and are no known pair: what first comes of an executed call is news."""
    assert RULE.count("a=x", "b=y", "!a", "!!b", "!a") == 4
    assert RULE.count("a=x", *["!b"] * 12, "a=x") == 13
    assert RULE.count("!a", "a=x", "!a", "!a") == 0


@pytest.mark.parametrize(("apart", "count"), [(9, 4), (10, 0)])
def test_the_window_is_ten_rounds(apart: int, count: int) -> None:
    """What came before that is new again."""
    between = [f"b{at}=y" for at in range(apart)]
    assert RULE.count("a=x", *between, "a=x", "a=x", "a=x") == count
    assert RULE.count("a=x", *between, "a=x", "a=x", "a=x", "a=x") == 4 + bool(count)


def test_equal_calls_of_a_round_are_one() -> None:
    """In whatever order their outcomes come."""
    assert RULE.count("a=x a=y", "a=y a=x", "a=x a=y", "a=y a=x") == 4
    assert RULE.count("a=x a=y", "a=x a=z", "a=x a=z", "a=x a=z") == 0


def test_a_pause_ends_it() -> None:
    """As every streak."""
    times = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert RULE.count(*KNOWN, *KNOWN, times=times, now=6) == 4
    assert RULE.count(*KNOWN, *KNOWN, times=times, now=306) == 0
    assert RULE.count(*KNOWN, *KNOWN, times=[0, 1, 2, 3, 304, 305], now=306) == 0


def test_a_finding_names_the_rounds_and_what_the_call_brought() -> None:
    """The streak's calls, oldest first; what came back last is what this very call had brought, not its neighbour."""
    finding = RULE.found("a=x", "b=y", "b=y", "a=x", "b=y")
    assert finding is not None
    assert (finding.kind, finding.calls, finding.previous) == ("no_news", ("id2", "id3", "id4"), "came back x")
    assert finding.ends_on_news

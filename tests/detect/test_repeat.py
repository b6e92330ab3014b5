"""`repeat` and `repeat_changing`, rule by rule. The pending call is always `a`; rounds are oldest first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.model import Delivery, Finding, PastCall, Result, Round, Timeline
from callfuse.policy import explain
from callfuse.policy.settings import LoopSettings
from tests.detect import timelines
from tests.detect.timelines import call, timeline


def found(*texts: str, pending: str = "a", **more: Any) -> Finding | None:
    """What `repeat` finds in the pending call."""
    times, now = more.pop("times", ()), more.pop("now", 0.0)
    return timelines.found(Repeat(), timeline(*texts, times=times, now=now), LoopSettings(**more), call(pending))


def changing(*texts: str, **more: Any) -> Finding | None:
    """What `repeat_changing` finds in a pending `a`."""
    return timelines.found(RepeatChanging(), timeline(*texts), LoopSettings(**more), call("a"))


def count(finding: Finding | None) -> int:
    """The calls of a finding; 0 where nothing was found."""
    return finding.count if finding else 0


def test_the_pending_call_counts() -> None:
    """With a limit of 3 the third equal call is found, before it was run."""
    assert count(found("a=x")) == 0
    assert count(found("a=x", "a=x")) == 3


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_soft_and_hard(limit: int) -> None:
    """Soft from the limit on, hard from twice the limit on."""
    for times in range(2 * limit + 2):
        finding = found(*["a=x"] * times, max_repeats=limit)
        assert count(finding) == (times + 1 if times + 1 >= limit else 0)
        assert finding is None or finding.hard is (times + 1 >= 2 * limit)
        assert finding is None or finding.threshold == limit


def test_zero_is_off() -> None:
    """`max_repeats: 0` turns both off, `max_repeats_changing: 0` the second."""
    assert found(*["a=x"] * 20, max_repeats=0) is None
    assert changing(*["a=x"] * 20, max_repeats=0) is None
    assert changing(*["a=x"] * 20, max_repeats_changing=0) is None
    assert count(found("a=x", "a=x", max_repeats_changing=0)) == 3


def test_a_limit_of_two_never_stops_the_first_call() -> None:
    """It takes one before it."""
    assert found(max_repeats=2) is None
    assert found("b=x", max_repeats=2) is None
    assert count(found("a=x", max_repeats=2)) == 2


@pytest.mark.parametrize("rounds", [["a=x a=x"], ["a=x a=x a=x a=x"], ["a=x a=x", "b=y"]])
def test_equal_calls_of_one_round_are_one_piece_of_evidence(rounds: list[str]) -> None:
    """However many they are."""
    assert found(*rounds) is None


def test_rounds_are_counted_not_calls() -> None:
    """Two rounds of two equal calls make a third one the third."""
    assert count(found("a=x a=x", "a=x a=x")) == 3


def test_other_rounds_end_the_streak() -> None:
    """A round without the call stands between."""
    assert found("a=x", "a=x", "b=y") is None
    assert found("a=x", "b=y", "a=x") is None


def test_other_arguments_end_the_streak() -> None:
    """The same tool with other arguments is another call."""
    assert found("a=x", "a=x", "a1=x") is None
    assert found("a=x", "a=x", pending="a1") is None


def test_equal_outcomes_are_wanted() -> None:
    """Only the calls since the outcome changed last make the streak."""
    assert found("a=x", "a=y") is None
    assert count(found("a=x", "a=y", "a=y")) == 3
    assert count(found("a=y", "a=x", "a=x", "a=x")) == 4


def test_an_unknown_outcome_counts_as_equal() -> None:
    """But two known ones around it must still be equal."""
    assert count(found("a=x", "a")) == 3
    assert count(found("a", "a")) == 3
    assert count(found("a=x", "a", "a=x")) == 4
    assert count(found("a=x", "a", "a=y")) == 3


@pytest.mark.parametrize("new", ["b=y", "b1=y", "a1=y"])
def test_a_round_with_a_new_call_is_progress(new: str) -> None:
    """It ends the streak and does not count itself, though it repeats the call too."""
    assert found("a=x", "a=x", f"a=x {new}") is None
    assert found("a=x", "a=x", f"a=x {new}", "a=x") is None
    assert count(found("a=x", "a=x", f"a=x {new}", "a=x", "a=x")) == 3


def test_a_known_call_beside_it_is_no_progress() -> None:
    """In whatever order the round has them."""
    assert count(found("b=y", "a=x", "a=x b=y")) == 3
    assert count(found("b=y", "a=x", "b=y a=x")) == 3


def test_the_first_appearance_starts_the_streak() -> None:
    """Whatever new calls come with it."""
    assert count(found("a=x b=y", "a=x")) == 3
    assert count(found("a=x b=y c=z", "a=x", "a=x")) == 4


def test_what_left_the_window_is_new_again() -> None:
    """A sibling last seen more than a window ago is progress; within it, it is known."""
    ten = [f"c{at}=z" for at in range(10)]
    assert found("b=y", *ten, "a=x", "a=x", "a=x b=y") is None
    assert count(found("b=y", *ten[:4], "a=x", "a=x", "a=x b=y")) == 4


def test_a_withheld_call_counts_for_the_streak() -> None:
    """It has no outcome to be compared."""
    assert count(found("a=x", "!a")) == 3
    assert count(found("a=x", "!a", "!!a", "a=x")) == 5
    assert found("a=x", "!a", "a=y") is None
    assert count(found("a=x", "!a", "a=y", "a=y")) == 4
    assert count(found("a=x", "!a", "a=x")) == 4


def test_withheld_calls_fill_no_window() -> None:
    """A window of withheld calls does not push out what was executed."""
    assert count(found("b=y", *["!a"] * 12, "a=x b=y")) == 14


def test_the_ttl_bounds_a_pause_not_the_streak() -> None:
    """Rounds four minutes apart are one streak at 300 seconds, however long it is."""
    times = [240.0 * at for at in range(10)]
    assert count(found(*["a=x"] * 10, times=times, now=2400.0)) == 11
    assert count(found(*["a=x"] * 10, times=times, now=times[-1] + 300)) == 11
    assert found(*["a=x"] * 10, times=times, now=times[-1] + 301) is None


def test_a_pause_in_the_middle_ends_the_streak() -> None:
    """Only what came after it counts."""
    assert found("a=x", "a=x", times=[0, 400], now=401) is None
    assert count(found("a=x", "a=x", "a=x", times=[0, 400, 401], now=402)) == 3


def test_unknown_times_are_recent() -> None:
    """A round without a time neither begins nor ends a pause."""
    assert count(found("a=x", "a=x", times=[None, None], now=1e9)) == 3
    assert count(found("a=x", "a=x", "a=x", times=[0, None, 1e6], now=1e6)) == 4


def test_a_finding_names_what_it_rests_on() -> None:
    """Kind, tool, limit, window, the calls oldest first, and what came back last."""
    finding = found("b=y", "a=x", "a=x", "!a", ttl_seconds=60)
    assert finding is not None
    assert (finding.kind, finding.tool, finding.window_s, finding.confidence) == ("repeat", "a", 60, 1.0)
    assert (finding.calls, finding.previous) == (("id1", "id2", "id3"), "came back x")
    assert finding.signature == call("a").signature
    assert finding.ends_on_news


def test_changing_outcomes() -> None:
    """The sixth equal call whatever came back, hard from the tenth."""
    rounds = [f"a={letter}" for letter in "uvwxyzuvwxyz"]
    for times in range(12):
        finding = changing(*rounds[:times])
        assert count(finding) == (times + 1 if times + 1 >= 6 else 0)
        assert finding is None or (finding.kind, finding.hard) == ("repeat_changing", times + 1 >= 10)


@pytest.mark.parametrize(("limit", "own", "soft"), [(3, 6, 6), (8, 6, 8), (3, 2, 3)])
def test_changing_is_never_stricter_than_repeat(limit: int, own: int, soft: int) -> None:
    """Its limit is at least `max_repeats`."""
    rounds = [f"a={letter}" for letter in "uvwxyzuvwxyz"]
    assert changing(*rounds[: soft - 2], max_repeats=limit, max_repeats_changing=own) is None
    assert count(changing(*rounds[: soft - 1], max_repeats=limit, max_repeats_changing=own)) == soft


@pytest.mark.parametrize(
    ("results", "count"),
    [
        (("You_are_at_4.2", "You_are_at_4.3"), 0),
        (("Row_3_selected", "Row_4_selected"), 0),
        (("progress_40", "progress_55"), 0),
        (("took_3_ms", "took_4_ms"), 3),
        (("at_10:00:05", "at_10:00:07"), 3),
        (("pid:_17", "pid:_18"), 3),
        (("!row_3_is_locked", "!row_4_is_locked"), 3),
    ],
)
def test_a_number_that_moves_is_another_outcome(results: tuple[str, ...], count: int) -> None:
    """In results that are no errors; times and ids of processes are none."""
    assert timelines.Rule(Repeat()).count(*[f"a={text}" for text in results]) == count


def test_a_result_that_has_changed_begins_anew() -> None:
    """One result after another one is news: two equal ones are needed, whatever the limit and what was withheld."""
    assert count(found("a=x", max_repeats=2)) == 2
    assert found("a=x", "a=y", max_repeats=2) is None
    assert found("a=x", "a=y", "a=x", "a=y", max_repeats=2) is None
    assert count(found("a=x", "a=y", "a=y", max_repeats=2)) == 3
    executed = [f"a={letter}" for letter in "qrstuvwxy"]
    assert found(*executed, "!a") is None
    assert count(changing(*executed, "!a")) == 11


@given(st.lists(st.sampled_from(["a=x", "a=y", "a", "!a"]), max_size=8), st.integers(2, 4))
def test_a_sentence_tells_what_was_counted(rounds: list[str], limit: int) -> None:
    """The calls as far back as results are equal, with the pending one; they are called equal where two are known."""
    finding = found(*rounds, max_repeats=limit)
    equal, results = list[str](), set[str]()
    for one in reversed(rounds):
        results |= {one} if "=" in one else set()
        if len(results) > 1:
            break
        equal.append(one)
    ran = [one for one in equal if not one.startswith("!")]
    if len(equal) < limit - 1 or (len(equal) < len(rounds) and len(ran) < 2):
        assert finding is None
        return
    assert finding is not None
    assert f"call {len(equal) + 1} of a in a row" in explain.seen(finding)
    assert ("nothing new" in explain.seen(finding)) is (len([one for one in ran if "=" in one]) > 1)


@pytest.mark.parametrize(
    "results",
    [
        [f"Build #12: {at}% done" for at in (3, 7, 7, 12, 13, 20, 21, 22, 30, 31, 36)],
        [f"row {at} written at 10:00:{at:02}" for at in range(11)],
        [f"{left} left of 40" for left in range(39, 28, -1)],
        ["\n".join(f"line {chr(97 + one)}" for one in range(at)) for at in range(1, 12)],
        ["\n".join(f"line {chr(97 + one)}" for one in range(at, at + 3)) for at in range(11)],
    ],
    ids=["a percentage", "rows", "a countdown", "a log", "the tail of a log"],
)
def test_what_gets_on_is_no_changing_repeat(results: list[str]) -> None:
    """A number that moves in one direction, a result that goes on where the last one ended; it counts from there."""
    assert count(of_results(results)) == 0
    stuck = [*results, "a fox", "a hen", "an owl", "a gnu"]
    assert count(of_results(stuck)) == 0
    assert count(of_results([*stuck, "an elk"])) == 6


@pytest.mark.parametrize(
    "results",
    [
        [f"price {price}" for price in (17.1, 17.4, 16.9, 17.0, 17.3, 16.8, 17.2)],
        [f"rolled {face}" for face in (4, 2, 5, 1, 6, 3, 3)],
        [
            "It is 10:00:01, a fox",
            "It is 10:00:02, a hen",
            "It is 10:00:03, an owl",
            "a gnu",
            "a kea",
            "an elk",
            "a yak",
        ],
        ["page a", "page ab", "page abc", "page abcd", "page abcde", "page abcdef", "page abcdefg"],
        [f"{animal} {at}" for at, animal in enumerate(("fox", "hen", "owl", "gnu", "kea", "elk", "yak"))],
    ],
    ids=["a price", "a die", "a clock", "a page", "another text each time"],
)
def test_what_only_changes_is_a_changing_repeat(results: list[str]) -> None:
    """Up and down, by the clock, or without any order."""
    assert count(of_results(results)) == 1 + len(results)


def test_withheld_calls_do_not_hide_progress() -> None:
    """They brought nothing, and count from there on."""
    rows = [f"row {at} written" for at in range(6)]
    assert count(of_results(rows, withheld=6, max_repeats_changing=3)) == 7


def of_results(results: list[str], withheld: int = 0, **more: Any) -> Finding | None:
    """What `repeat_changing` finds in a pending `a` after calls with these results, and some that were withheld."""
    pending = call("a")
    past = [PastCall(pending, Result(text)) for text in results]
    past += [PastCall(pending, delivery=Delivery.WITHHELD, step=1) for _ in range(withheld)]
    rounds = [Round((one,), at) for at, one in enumerate(past)]
    return timelines.found(RepeatChanging(), Timeline(rounds[::-1]), LoopSettings(**more), pending)

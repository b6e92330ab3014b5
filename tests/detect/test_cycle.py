"""`cycle`, rule by rule: laps of one sequence of two to five rounds."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.cycle import Cycle
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, calls, timeline

RULE = Rule(Cycle())


def laps(length: int, rounds: int) -> list[str]:
    """So many rounds of a cycle."""
    return [f"{'abcdefg'[at % length]}=x" for at in range(rounds)]


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_two_laps_and_four(length: int) -> None:
    """Found with the call that completes the second lap, and at no other point of a lap before; hard at the fourth."""
    for rounds in range(1, 4 * length + 1):
        pending = "abcdefg"[rounds % length]
        finding = RULE.found(*laps(length, rounds), pending=pending)
        count = (rounds + 1) // length
        assert (finding.count if finding else 0) == (count if count >= 2 else 0)
        assert finding is None or (finding.threshold, finding.hard) == (2, count >= 4)
        assert finding is None or finding.pattern == tuple(("abcde"[:length] * 2)[(rounds + 1) % length :][:length])


@pytest.mark.parametrize("length", [2, 3, 5])
def test_tools_that_change_state_cost_no_lap(length: int) -> None:
    """Where some are declared, laps of others count as ever."""
    for rounds in range(1, 4 * length + 1):
        pending = "abcdefg"[rounds % length]
        count = RULE.count(*laps(length, rounds), pending=pending)
        assert RULE.count(*laps(length, rounds), pending=pending, state_changing=["w"]) == count


def test_lengths_beyond_five() -> None:
    """Are no cycle."""
    assert RULE.count(*laps(6, 11), pending="f") == 0


def test_the_limit_is_in_laps() -> None:
    """`cycle: {laps: 3}` waits for a third."""
    three = {"detectors": {"cycle": {"laps": 3}}}
    assert RULE.count(*laps(2, 3), pending="b", **three) == 0
    assert RULE.count(*laps(2, 5), pending="b", **three) == 3
    assert RULE.count(*laps(2, 9), pending="b", detectors={"cycle": False}) == 0


def test_the_shortest_sequence_counts() -> None:
    """Four rounds of a and b are two laps of two, not one of four."""
    finding = RULE.found(*laps(2, 7), pending="b")
    assert finding is not None
    assert (finding.repetitions, finding.pattern) == (finding.count, finding.pattern) == (4, ("a", "b"))


def test_one_call_over_and_over_is_no_cycle() -> None:
    """At least two rounds of a lap differ."""
    assert RULE.count("a=x", "a=x", "a=x") == 0
    assert RULE.count("a=x b=y", "b=y a=x", "a=x b=y") == 0


def test_rounds_are_compared_by_their_sets() -> None:
    """Neither order nor doubles matter."""
    assert RULE.count("a=x b=y", "c=z", "b=y a=x a=x", pending="c") == 2


@pytest.mark.parametrize(("pending", "found"), [("c d", 2), ("d c", 2), ("c", 0), ("c d e", 0), ("c d c", 3)])
def test_the_pending_round_must_be_the_one_that_is_due(pending: str, found: int) -> None:
    """All of it and nothing else."""
    engine = Engine(timeline("a=x b=y", "c=z d=z", "a=x b=y"), LoopSettings())
    assert [finding.kind for _, finding in engine.judge_round(calls(pending))] == ["cycle"] * found


def test_a_pending_round_supplies_no_evidence_about_itself() -> None:
    """One round of two calls and the same again is no cycle, though its calls alternate."""
    engine = Engine(timeline("a=x b=y"), LoopSettings())
    assert engine.judge_round(calls("a b")) == []


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        (("a=x", "b=y", "a=x"), True),
        (("a=x", "b=y", "a=z"), False),
        (("a=x", "b=y", "a"), True),
        (("a", "b", "a"), True),
        (("a=x", "b=y", "!a"), True),
        (("a=x", "b=y", "!a", "b=y", "a=x"), True),
        (("-a=x", "-b=y", "a=x"), True),
        (("-a", "-b", "a=x"), True),
        (("a=x a=y", "b=y", "a=y a=x"), True),
        (("a=x a=y", "b=y", "a=y a=z"), False),
    ],
)
def test_known_outcomes_are_equal_lap_by_lap(rounds: tuple[str, ...], found: bool) -> None:
    """Unknown ones count as equal unless nobody read them in time; withheld calls have none."""
    assert (RULE.count(*rounds, pending="b") >= 2) is found


def test_what_has_just_changed_may_change_again() -> None:
    """A call that brought something else in each of the last laps makes none of them a repetition."""
    assert RULE.count("b=y", "a=x", "b=z", "a=x", pending="b") == 0
    assert RULE.count("b=y", "a=x", "b=z", "a=x", "b=z", "a=x", pending="b") == 3
    assert RULE.count("b=y", "a=x", "b=z", "a=x", pending="b", times=[0, 400, 401, 402], now=403) == 2


def test_known_outcomes_around_an_unknown_one() -> None:
    """Must still be equal."""
    assert RULE.count("a=x", "b=y", "a", "b=y", "a=x", pending="b") == 3
    assert RULE.count("a=z", "b=y", "a", "b=y", "a=x", pending="b") == 2


def test_another_round_ends_it() -> None:
    """In the middle of a lap or between two."""
    assert RULE.count("a=x", "b=y", "c=z", "a=x", pending="b") == 0
    assert RULE.count("a=x", "c=z", "b=y", "a=x", pending="b") == 0


def test_rounds_that_are_new_to_a_short_window_are_no_laps() -> None:
    """A window of two rounds of five calls each does not know the third."""
    wide = [" ".join(f"{tool}{at}=x" for at in range(5)) for tool in "abc"]
    pending = calls(" ".join(f"c{at}" for at in range(5)))
    for window, found in ((2, 0), (3, 5)):
        engine = Engine(timeline(*wide, *wide[:2]), LoopSettings(window=window))
        assert len(engine.judge_round(pending)) == found


def test_the_first_lap_begins_with_the_last_new_call() -> None:
    """What was known before it belongs to no lap: an edit between two equal tests is progress, and nothing is held."""
    edited = ("test=x", "edit1=done", "test=x", "edit2=done", "test=x")
    assert [*Engine(timeline(*edited), LoopSettings()).suspects()] == []
    assert RULE.count(*edited, "edit2=done", pending="test") == 2
    assert RULE.count("a=x", "c=z", "a=x", "b=y d=w", "a=x", pending="b") == 0
    assert RULE.count("a=x", "b=y", "c=z", "a=x", "b=y", "a=x", pending="b") == 2


def test_a_pause_and_a_change_of_state_end_it() -> None:
    """As every streak."""
    times = [0.0, 1.0, 2.0]
    assert RULE.count(*laps(2, 3), pending="b", times=times, now=3) == 2
    assert RULE.count(*laps(2, 3), pending="b", times=times, now=303) == 0
    assert RULE.count(*laps(2, 3), pending="b", state_changing=["a"]) == 0


def test_a_lap_of_many_tools_is_named_by_some() -> None:
    """However many there are."""
    many = " ".join(f"{letter}=x" for letter in "ghijklm")
    finding = RULE.found(many, "a=x", many, pending="a")
    assert finding is not None
    assert finding.pattern == ("g + h + i + j + 3 more", "a")


def test_a_finding_names_what_it_rests_on() -> None:
    """The calls of all laps, the pattern, and what the pending call brought in the lap before."""
    finding = RULE.found("a=x", "b=y c=z", "a=x", pending="b")
    assert finding is not None
    assert (finding.kind, finding.calls, finding.pattern) == ("cycle", ("id0", "id1", "id2", "id3"), ("a", "b + c"))
    assert (finding.previous, finding.whole_round) == ("came back y", frozenset(one.signature for one in calls("b c")))

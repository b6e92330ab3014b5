"""Too much inside one answer, rule by rule: equal calls, calls of any sort, budgets that count the pending round."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.siblings import UNNAMED, Siblings
from callfuse.model import Timeline
from callfuse.policy import explain
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, calls, timeline

FIRST = Timeline([])
KNOWN = timeline("a=x", "b=y")
"""Calls of both have come before, and the round between ends any streak of `a`."""


def found(pending: str, past: Timeline = FIRST, **settings: object) -> dict[int, tuple[str, int, bool]]:
    """By the places of calls, from 1: kind, count and hardness of what is found in them."""
    listed = calls(pending)
    judged = dict(Engine(past, LoopSettings.model_validate(settings)).judge_round(listed))
    kinds = {at: judged[one] for at, one in enumerate(listed, 1) if one in judged}
    return {at: (finding.kind, finding.count, finding.hard) for at, finding in kinds.items()}


def test_equal_calls() -> None:
    """Of a call that has come before the first ones go; the one that reaches the limit does not, hard from twice the
    limit on."""
    assert found("a a", KNOWN) == {}
    assert found("a a a a", KNOWN) == {3: ("repeat", 3, False), 4: ("repeat", 4, False)}
    assert [at for at, one in found("a " * 7, KNOWN).items() if one[2]] == [6, 7]
    assert list(found("a a a", KNOWN, max_repeats=2)) == [2, 3]
    assert found("a " * 9, KNOWN, max_repeats=0) == {}


def test_equal_calls_that_are_new() -> None:
    """Dice, sub-agents: as many as the hard limit leaves, whatever else has come before; the next is a flood."""
    for past in (FIRST, timeline("a1=x", "b=y")):
        assert found("a " * 5, past) == {}
        assert found("a " * 7, past) == {6: ("repeat", 6, True), 7: ("repeat", 7, True)}
        assert list(found("a a a a", past, max_repeats=2)) == [4]
    assert list(found("a a a", timeline("a=x"), window=2)) == [3]
    assert found("a a a", timeline("a=x", *[f"b{at}=y" for at in range(1, 11)]), window=2) == {}


def test_others_beside_them_change_nothing() -> None:
    """New calls are no progress of equal ones, and innocent themselves."""
    assert list(found("a b a c a d a", KNOWN)) == [5, 7]
    assert list(found("a a1 a2 a a1 a", KNOWN)) == [6]


def test_limits_of_a_tool() -> None:
    """As everywhere: its own, and those of what waits, which are higher by a factor."""
    assert list(found("a b " * 3, KNOWN, per_tool={"a": {"max_repeats": 2}})) == [3, 5, 6]
    assert found("wait " * 14) == {}
    assert found("a@ " * 14) == {}
    assert list(found("a@ " * 15)) == [15]
    assert list(found("a@ " * 3, timeline("a@=x"), poll_factor=1)) == [3]


def test_what_came_before_does_not_count() -> None:
    """Equal calls of one round are one piece of evidence for those after it, and add up with none before it."""
    assert found("a a", timeline("a=x a=x a=x a=x a=x")) == {}
    assert found("a a", timeline("a=x")) == {}
    assert list(found("a a b", timeline("a=x", "b=x", "a=x"))) == []


def test_its_words() -> None:
    """They say that the calls stand in one answer."""
    ((_, finding),) = Engine(KNOWN, LoopSettings()).judge_round(calls("a a a"))
    assert explain.seen(finding) == "call 3 of a in one answer with the same arguments"
    assert (finding.in_answer, finding.ends_on_news, finding.calls) == (True, False, ())
    (*_, (_, flood)) = Engine(FIRST, LoopSettings(max_calls_per_answer=2)).judge_round(calls("a b c"))
    assert explain.seen(flood) == "call 3 of one answer"


def test_a_flood() -> None:
    """The first call beyond so many, hard at once; those behind it are not judged."""
    many = " ".join(f"a{at}" for at in range(130))
    assert found(many) == {129: ("flood", 129, True)}
    assert found(many, max_calls_per_answer=0) == {}
    assert list(found("a b c d", max_calls_per_answer=3)) == [4]


@pytest.mark.parametrize(
    ("settings", "pending", "beyond"),
    [
        ({"max_calls": 3}, "a b c", [2, 3]),
        ({"max_calls": 3}, "a a b", [3]),
        ({"max_calls": 10}, " ".join(f"a{at}" for at in range(60)), list(range(9, 61))),
        ({"max_calls_of_tool": 2}, "a b a1 b1 b2 a", [3, 5, 6]),
        ({"per_tool": {"b": {"max_calls": 1}}}, "a b a1 b1 a2", [4]),
        ({"max_weighted_calls": 5}, "a b c", []),
        ({"max_weighted_calls": 5}, "a b c d", [4]),
    ],
)
def test_budgets_count_the_pending_round(settings: dict[str, object], pending: str, beyond: list[int]) -> None:
    """Different calls before one count with it; the first go until nothing is left."""
    judged = found(pending, timeline("a7=x", "c7=y"), **settings)
    assert list(judged) == beyond
    assert {kind for kind, _, _ in judged.values()} <= {"budget"}


def test_a_call_that_grows_may_be_equal() -> None:
    """What may come next is bounded by what is complete and by what still grows, of the tool or of an unknown one."""
    engine, siblings = Engine(KNOWN, LoopSettings()), Siblings()
    siblings.add(call("a"))
    assert not [*engine.possible_beside("a", siblings)]
    siblings.grow("a")
    assert [one.count for one in engine.possible_beside("a", siblings)] == [3]
    assert not [*engine.possible_beside("b", siblings)]
    assert [*engine.possible_beside(ANY_TOOL, siblings)]
    siblings.stop("a")
    siblings.grow(UNNAMED)
    assert [*engine.possible_beside("a", siblings)]
    siblings.stop(UNNAMED)
    siblings.add(call("a1"))
    assert not [*engine.possible_beside("a", siblings)]
    siblings.add(call("a"))
    assert [*engine.possible_beside("a", siblings)]

"""`budget`, rule by rule: more calls in a timeline, or of one tool, than allowed."""

from callfuse.detect.budget import Budget, ToolBudget
from tests.detect.timelines import Rule

ALL = Rule(Budget(), max_calls=3)
TOOL = Rule(ToolBudget(), max_calls_of_tool=2)


def test_the_first_call_beyond() -> None:
    """So many are allowed; no finding is hard."""
    assert ALL.count("a=x", "b=x") == 0
    finding = ALL.found("a=x", "b=x", "c=x")
    assert finding is not None
    assert (finding.kind, finding.count, finding.threshold, finding.hard) == ("budget", 4, 4, False)
    assert finding.calls == ("id0", "id1", "id2")
    assert not ALL.found(*["a=x"] * 50).hard  # type: ignore[union-attr]


def test_of_one_tool() -> None:
    """Each has its own count, and may have its own limit."""
    assert TOOL.count("a=x", "b=x", "a1=x") == 3
    assert TOOL.count("a=x", "b=x", "b1=x") == 0
    assert TOOL.count("a=x", "a1=x", "a2=x", per_tool={"a": {"max_calls": 3}}) == 4
    assert TOOL.count("a=x", "a1=x", per_tool={"a": {"max_calls": 0}}) == 0
    assert TOOL.count("a=x", per_tool={"a": {"max_calls": 1}}, max_calls_of_tool=0) == 2


def test_what_counts() -> None:
    """Equal calls of one round are one, withheld ones none; neither pauses, nor changes, nor waiting matter."""
    assert ALL.count("a=x a=x a=x", "b=x") == 0
    assert ALL.count("a=x b=x", "c=x") == 4
    assert ALL.count("a=x", "!a", "!!b", "a=x") == 0
    assert ALL.count("a=x", "wait=~x", "a=x", times=[0, 1000, 2000], now=9000, state_changing=["a"]) == 4


def test_off_by_default() -> None:
    """0 is off."""
    assert ALL.count(*["a=x"] * 20, max_calls=0) == 0
    assert TOOL.count(*["a=x"] * 20, max_calls_of_tool=0) == 0

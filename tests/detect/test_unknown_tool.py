"""`unknown_tool`, rule by rule: calls of tools that the request does not declare. It declares `a` and `b`."""

import pytest

from callfuse.detect.unknown_tool import UnknownTool
from tests.detect.timelines import Rule

RULE = Rule(UnknownTool())
TOOLS = {"a", "b"}


def test_soft_and_hard() -> None:
    """The third in a row whatever tool and arguments, hard from the sixth."""
    past = ["x=!q", "y=!q", "x1=!q", "z=!q", "x2=!q", "y2=!q"]
    for before in range(7):
        finding = RULE.found(*past[:before], pending="z9", tools=TOOLS)
        assert (finding.count if finding else 0) == (before + 1 if before >= 2 else 0)
        assert finding is None or (finding.hard, finding.ends_on_news) == (before >= 5, False)


def test_only_where_the_list_is_complete() -> None:
    """Where it is not, no tool is unknown; nor is a declared one."""
    assert RULE.count("x=!q", "y=!q", pending="x") == 0
    assert RULE.count("x=!q", "y=!q", pending="a", tools=TOOLS) == 0
    assert RULE.count("x=!q", "y=!q", pending="", tools=TOOLS) == 0


@pytest.mark.parametrize(
    ("rounds", "count"),
    [
        (("x=!q", "a=x", "y=!q"), 0),
        (("x=!q", "a=x y=!q"), 3),
        (("x=!q x=!q x=!q",), 0),
        (("x=!q y=!q",), 3),
        (("!x", "!!x"), 3),
        (("x", "x"), 3),
        (("x=!q", "=!q", "y=!q"), 3),
    ],
)
def test_what_counts(rounds: tuple[str, ...], count: int) -> None:
    """Distinct calls of rounds in a row, withheld ones, too; a round of declared tools alone ends it."""
    assert RULE.count(*rounds, pending="x", tools=TOOLS) == count


def test_the_limit_and_off() -> None:
    """As of every detector; pollers are not spared."""
    past = ("x=!q", "y=!q")
    assert RULE.count(*past, pending="x", tools=TOOLS, detectors={"unknown_tool": {"calls": 4}}) == 0
    assert RULE.count(*past, pending="x", tools=TOOLS, detectors={"unknown_tool": False}) == 0
    assert RULE.count(*past, pending="x", tools=TOOLS, max_repeats=0) == 3
    assert RULE.count(*past, pending="wait", tools=TOOLS) == 3


def test_a_pause_ends_it() -> None:
    """As every streak."""
    assert RULE.count("x=!q", "y=!q", pending="x", tools=TOOLS, times=[0, 1], now=2) == 3
    assert RULE.count("x=!q", "y=!q", pending="x", tools=TOOLS, times=[0, 1], now=302) == 0


def test_a_finding_names_what_it_rests_on() -> None:
    """The unknown calls, oldest first."""
    finding = RULE.found("x=!q", "a=x y=!q", pending="z", tools=TOOLS)
    assert finding is not None
    assert (finding.kind, finding.tool, finding.calls) == ("unknown_tool", "z", ("id0", "id2"))
    assert finding.previous == "Error: q"

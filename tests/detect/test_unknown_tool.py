"""`unknown_tool`, rule by rule: calls of tools that the request does not declare, where it declares `a` and `b`; and of
those of which results say that they do not exist, where it does not list its tools."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from callfuse.detect import Engine, hindsight_can_fire
from callfuse.detect.detector import ANY_TOOL
from callfuse.detect.unknown_tool import UnknownTool, UnknownToolResults
from callfuse.model import PastCall, Timeline
from callfuse.model.outcomes import Outcome
from callfuse.policy.settings import LoopSettings
from tests.detect.drawn import clocks, made, settings, written
from tests.detect.timelines import Rule, call, found, timeline
from tests.support.examples import more_examples

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


OTHERS_OFF = {"same_error": False, "known_pairs": False, "no_news": False}
ALONE = LoopSettings.model_validate({"detectors": OTHERS_OFF, "max_repeats": 0})
"""Settings under which nothing else is found."""


def told(*texts: str, settings: LoopSettings = ALONE, **more: object) -> list[int]:
    """The count of what the results of each round show, oldest first; 0 where nothing is found."""
    past = timeline(*texts, **more)  # type: ignore[arg-type]
    judged = list(Engine(past, settings).hindsights())
    assert hindsight_can_fire(past, settings) or not any(judged)
    assert all(one is None or (one.kind, one.hard) == ("unknown_tool", False) for one in judged)
    return [one.count if one else 0 for one in reversed(judged)]


def test_results_tell_of_it() -> None:
    """The third in a row that says so, whatever tool; hindsight is never hard."""
    assert told("x=?", "y=?") == [0, 0]
    assert told("x=?", "y=?", "z=?") == [0, 0, 3]
    assert told("x=?", *["x1=?"] * 6) == [0, 0, 3, 4, 5, 6, 7]
    assert told("x=?", "y=? z=?") == [0, 3]
    assert told("x=?", "y=? b=x", "z=? b=x") == [0, 0, 3]


def test_a_call_of_such_a_tool_counts_while_it_is_pending() -> None:
    """A name that results have told of goes on with the streak: soft 3, hard 6. Any other may exist."""
    assert RULE.count("x=?", pending="x") == 0
    assert RULE.count("x=?", "x1=?", pending="x2") == 3
    assert RULE.count("x=?", "y=?", pending="x") == 3
    assert RULE.count("x=?", "y=?", "z=?", pending="y9") == 4
    assert RULE.count("x=?", "y=?", pending="z") == 0
    finding = RULE.found(*["x=?"] * 5, pending="x")
    assert finding is not None
    assert finding.hard
    assert RULE.count("x=?", "!x", pending="x") == 3


@pytest.mark.parametrize(
    "rounds",
    [
        ("x=x", "x=?", "z=?"),
        ("x=?", "z=?", "b=x", "y=?"),
        ("x=?", "y=?", "z=!other"),
        ("x=?", "y=!other", "z=?"),
        ("x=?", "y=?", "z"),
        ("x=?", "y=?", "x=? z=x z1=?", "x=x"),
    ],
)
def test_what_ends_it(rounds: tuple[str, ...]) -> None:
    """A round that tells of none, and a tool that has also succeeded, before or after."""
    assert told(*rounds)[-1] == 0
    assert RULE.count(*rounds, pending="z") == RULE.count(*rounds, pending="x") == 0


def test_what_has_succeeded_was_there() -> None:
    """From then on: what was told before stays told, for a history reads the same for good."""
    assert told("x=?", "x=?", "x=?", "x=x", "x=?", "y=?", "y=?") == [0, 0, 3, 0, 0, 0, 0]
    assert told("x=?", "y=?", "z=? y=x", "z=?", "z=?") == [0, 0, 0, 0, 3]


def test_it_is_told_rather_than_the_same_error() -> None:
    """Where both are found: it says what is wrong."""
    past = timeline(*["x=?"] * 5)
    assert [one and one.kind for one in Engine(past, LoopSettings()).hindsights()] == ["unknown_tool"] * 3 + [None] * 2


def test_a_list_of_tools_is_the_last_word() -> None:
    """What it declares exists, whatever results say; what it does not is found when it is pending."""
    assert told("a=?", "a=?", "a=?", tools=TOOLS) == [0, 0, 0]
    assert RULE.count("a=?", "a=?", pending="a", tools=TOOLS) == 0
    assert told("x=?", "x=?", "x=?", tools=TOOLS) == [0, 0, 0]


def test_results_as_other_streaks() -> None:
    """Limits, pauses and changes of state are as of every detector."""
    four = LoopSettings.model_validate({"detectors": {**OTHERS_OFF, "unknown_tool": 4}, "max_repeats": 0})
    assert told(*["x=?"] * 4, settings=four) == [0, 0, 0, 4]
    off = LoopSettings.model_validate({"detectors": {**OTHERS_OFF, "unknown_tool": False}, "max_repeats": 0})
    assert told(*["x=?"] * 4, settings=off) == [0, 0, 0, 0]
    assert told("x=?", "x=?", "x=?", "x=?", times=[0, 1, 302, 303]) == [0, 0, 0, 0]
    changing = ALONE.model_copy(update={"state_changing": ("b",)})
    assert told("x=?", "x=?", "x=? b=x", "x=?", settings=changing) == [0, 0, 0, 0]


def test_a_tool_that_calls_others_exists() -> None:
    """What it says of another name is not about itself."""
    assert told("x=?y", "x=?y", "x=?y") == [0, 0, 3]
    assert told(*["run=!Unknown_tool:_search"] * 3) == [0, 0, 0]
    assert told(*["search=!Unknown_tool:_search"] * 3) == [0, 0, 3]


@more_examples(5)
@given(texts=written(), clock=clocks, chosen=settings())
def test_each_round_is_judged_as_it_was(texts: list[str], clock: list[float | None], chosen: LoopSettings) -> None:
    """What one walk finds of all rounds is what is found of each of them as the newest."""
    past = made(texts, clock, is_complete=False).evidence()
    rule = UnknownToolResults()
    found = [one and one.count for one in rule.evidence(past, chosen)]
    for at, count in enumerate(found):
        then = Timeline(past.rounds[at:], past.now)
        newest = next(rule.evidence(then, chosen))
        assert count == (newest and newest.count)


@more_examples(5)
@given(texts=written(), clock=clocks)
def test_a_pending_call_goes_on_with_what_results_told(texts: list[str], clock: list[float | None]) -> None:
    """Of every tool that is lacking, and as a suspect before its arguments are known."""
    past = made(texts, clock, is_complete=False)
    chosen = LoopSettings.model_validate({"detectors": {"unknown_tool": 2}})
    engine = Engine(past, chosen)
    for name in ("a", "b", "x", "wait"):
        finding = found(UnknownTool(), past, chosen, call(name))
        if finding is not None:
            assert past.evidence().lacks(name)
            assert engine.could_fire(name)
            assert engine.could_fire(ANY_TOOL)


def test_results_are_read_in_proportion_to_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many rounds that all tell of it are not looked at more than twice as often."""
    looked: Counter[int] = Counter()
    outcome: Any = PastCall.outcome
    size = 0

    def counted(self: PastCall) -> Outcome | None:
        looked[size] += 1
        known: Outcome | None = outcome.__get__(self)
        return known

    monkeypatch.setattr(PastCall, "outcome", property(counted))
    for size in (300, 600):
        past = timeline(*[f"x{at}=?" for at in range(1, size + 1)])
        assert sum(1 for one in UnknownToolResults().evidence(past, ALONE) if one) == size - 2
    assert looked[600] <= 2 * looked[300] + 10

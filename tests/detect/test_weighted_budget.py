"""Calls by weight: what brings nothing new counts ten times; beyond a limit no call, or no repeat, is let through."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.budget import weight as weigh
from callfuse.model import PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import call, calls, timeline


@pytest.mark.parametrize(
    ("texts", "weight"),
    [
        ((), 1),
        (("a=x", "b=y"), 3),
        (("a=x", "b=x"), 12),
        (("a=x", "a=y", "a=x"), 13),
        (("a=x a1=x", "b=x"), 22),
        (("a=x a=x",), 2),
        (("a=x", "!b", "!!c"), 2),
        (("a", "b"), 3),
    ],
)
def test_the_weight_of_a_timeline(texts: tuple[str, ...], weight: int) -> None:
    """A result that was there before weighs ten; withheld calls nothing; equal calls of one round, unknown results and
    the pending call one each."""
    assert weigh(timeline(*texts), LoopSettings()) == weight


@pytest.mark.parametrize("waiting", ["The job is still running.", "HTTP 429 Too Many Requests: try again later"])
def test_waiting_is_not_stale(waiting: str) -> None:
    """A result whose cause lies outside may come as often as it likes."""
    rounds = [Round((PastCall(ToolCall(str(at), "a", f'{{"n":{at}}}'), Result(waiting)),), at) for at in range(5)]
    assert weigh(Timeline(rounds[::-1]), LoopSettings()) == 6


def test_nothing_goes_beyond_the_limit() -> None:
    """Any call is found, new ones beside others included, and was foreseen; up to the limit none is. Those before it
    in its own round weigh one each."""
    past = timeline("a=x", "b=x")
    for limit, found in ((11, 2), (12, 1), (13, 0)):
        engine = Engine(past, LoopSettings(max_weighted_calls=limit))
        judged = engine.judge_round(calls("c d"))
        assert [finding.kind for _, finding in judged] == ["budget"] * found
        assert engine.could_fire("c") == any(engine.suspects()) == (found == 2)


def test_a_finding_counts_the_weight() -> None:
    """Count and threshold are in the limit's unit; it is never hard."""
    finding = Engine(timeline("a=x", "b=x"), LoopSettings(max_weighted_calls=5)).judge(call("c"))
    assert finding is not None
    assert (finding.count, finding.threshold, finding.hard) == (12, 6, False)


def test_no_repeats_after() -> None:
    """Beyond so much weight a call that comes twice in a row is found; any other is free."""
    past = timeline("b=x", "a=x")
    for limit, found in ((11, True), (12, False)):
        engine = Engine(past, LoopSettings(no_repeats_after=limit))
        assert bool(engine.judge(call("a"))) == any(engine.suspects()) == found
        assert engine.judge(call("c")) is None
    assert Engine(past, LoopSettings(no_repeats_after=5, max_repeats=0)).judge(call("a")) is None
    own = {"a": {"max_repeats": 4}}
    assert Engine(past, LoopSettings.model_validate({"no_repeats_after": 5, "per_tool": own})).judge(call("a")) is None

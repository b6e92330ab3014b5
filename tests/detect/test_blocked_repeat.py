"""A blocked call that comes back, rule by rule. The pending call is always `a`; rounds are oldest first."""

import pytest

from callfuse.detect import Engine
from callfuse.detect.blocked_repeat import BlockedRepeat
from callfuse.model import EarlierBlocks, Finding, Timeline
from callfuse.policy.settings import LoopSettings
from tests.detect import timelines
from tests.detect.timelines import call, past, timeline

BLOCKED = ("a=x", "a=x", "!!a")


def found(*texts: str, max_repeats: int = 3) -> Finding | None:
    """What is found in a pending `a`."""
    return timelines.found(BlockedRepeat(), timeline(*texts), LoopSettings(max_repeats=max_repeats), call("a"))


@pytest.mark.parametrize(
    ("rounds", "refused"),
    [
        ((*BLOCKED,), True),
        ((*BLOCKED, "!!a"), True),
        (("b=y", *BLOCKED, "b=y"), True),
        (("b=y c=z", *BLOCKED, "b=y", "c=z"), True),
        ((*BLOCKED, "!b"), True),
        ((*BLOCKED, "b=y"), False),
        (("b=y", *BLOCKED, "b1=y"), False),
        ((*BLOCKED, "b=y", "b=y"), False),
        ((*BLOCKED, "b=y", "a=z"), False),
        ((*BLOCKED, "b=y", "a=x"), True),
        ((*BLOCKED, "b=y", "a"), True),
        ((*BLOCKED, "b=y", "a=x", "c=z"), True),
        ((*BLOCKED, "b=y", "a=z", "a=x"), True),
        ((*BLOCKED, "b=y", "a=x", "!!a"), True),
        ((*BLOCKED, "b=y", "a=x", "!!a", "c=z"), False),
        ((*BLOCKED, "b=y", "a=x", "!!a", "b=y"), True),
        (("a=x", "a=x", "!a"), False),
        (("a=x", "a=x"), False),
        ((), False),
    ],
)
def test_a_blocked_call_comes_back(rounds: tuple[str, ...], refused: bool) -> None:
    """Refused until a new call was executed; then it may run once; refused again if that brought the same outcome."""
    assert (found(*rounds) is not None) is refused


def test_other_calls_are_free() -> None:
    """Blocking one call says nothing of others, of the same tool or not."""
    for pending in ("a1", "b"):
        assert timelines.found(BlockedRepeat(), timeline(*BLOCKED), LoopSettings(), call(pending)) is None


def test_it_is_hard_and_does_not_end_on_news() -> None:
    """The last rung at once; a new call beside it is no excuse, for it was not executed yet."""
    finding = found("b=y", *BLOCKED, "b=y")
    assert finding is not None
    assert (finding.kind, finding.hard, finding.ends_on_news) == ("repeat", True, False)
    assert (finding.count, finding.threshold, finding.previous) == (4, 3, "came back x")
    assert finding.calls == ("id1", "id2", "id3")


def test_zero_is_off() -> None:
    """`max_repeats: 0` turns this off too."""
    assert found(*BLOCKED, max_repeats=0) is None


def after_message(*texts: str, came: str = "a=x", must_wait: bool = False) -> Finding | None:
    """What is found in a pending `a` that was blocked before the last user message, having brought `came`."""
    before = past(came)
    earlier = EarlierBlocks({before.signature: before}, must_wait)
    rounds_ = timeline(*texts)
    made = Timeline(rounds_.rounds, has_blocks=rounds_.has_blocks, earlier_blocks=earlier)
    engine = Engine(made, LoopSettings())
    found_ = timelines.found(BlockedRepeat(), made, LoopSettings(), call("a"))
    assert found_ is None or ("a" in [*engine.suspects()] and engine.judge_round([call("a")]))
    return found_


@pytest.mark.parametrize(
    ("rounds", "refused", "waits"),
    [
        ((), False, True),
        (("b=y",), False, True),
        (("a=x",), True, True),
        (("a",), True, True),
        (("a=z",), False, False),
        (("a=x", "c=y"), True, True),
        (("a=z", "a=x"), True, True),
        (("!a",), False, True),
        (("!!a",), True, True),
        (("!!a", "c=y"), False, False),
        (("!!a", "c=y", "a=x"), True, True),
        (("!!a", "c=y", "a=z"), False, False),
    ],
)
def test_one_from_before_the_user_message(rounds: tuple[str, ...], refused: bool, waits: bool) -> None:
    """It may run once; what it brings then decides. Where it must wait it does not run at all before."""
    assert (after_message(*rounds) is not None) is refused
    assert (after_message(*rounds, must_wait=True) is not None) is waits


def test_one_from_before_is_told_as_such() -> None:
    """Hard, with what it had returned, and a count that is no lower than the limit."""
    finding = after_message(must_wait=True)
    assert finding is not None
    assert (finding.hard, finding.count, finding.threshold, finding.previous) == (True, 3, 3, "came back x")
    assert timelines.found(BlockedRepeat(), timeline("a=x"), LoopSettings(), call("a")) is None

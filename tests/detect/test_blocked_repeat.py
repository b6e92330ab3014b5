"""A blocked call that comes back, rule by rule. The pending call is always `a`; rounds are oldest first."""

import pytest

from callfuse.detect.blocked_repeat import BlockedRepeat
from callfuse.model import Finding
from callfuse.policy.settings import LoopSettings
from tests.detect import timelines
from tests.detect.timelines import call, timeline

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

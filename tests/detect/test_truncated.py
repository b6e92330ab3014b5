"""`truncated`, rule by rule: the same call is cut off again and again."""

import json
from collections.abc import Sequence

import pytest

from callfuse.detect import Engine
from callfuse.detect.registry import KINDS
from callfuse.model import Delivery, PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

WHOLE = json.dumps({"path": "/srv/pages/index.html", "text": 'a "long" page {of many [words'})


def past(
    arguments: object, tool: str = "write", *, result: str | None = "Error: no JSON", withheld: bool = False
) -> Round:
    """A round of one call."""
    delivery = Delivery.WITHHELD if withheld else Delivery.DELIVERED
    known = None if result is None else Result(result)
    return Round((PastCall(ToolCall("", tool, arguments), known, delivery=delivery),), 0)


def count(*rounds: Round, limit: object = True) -> int:
    """The rounds of it; 0 where nothing is found."""
    off = dict.fromkeys([kind for kind, own in KINDS.items() if own.most], False)
    chosen = LoopSettings.model_validate({"detectors": off | {"truncated": limit}})
    finding = next(Engine(Timeline(rounds[::-1]), chosen).hindsights(), None)
    assert finding is None or (finding.kind, finding.hard, finding.tool) == ("truncated", False, "write")
    return finding.count if finding else 0


def cuts(*ends: int) -> Sequence[Round]:
    """Rounds with the call cut off at these places."""
    return [past(WHOLE[:end]) for end in ends]


def test_three_rounds_in_a_row() -> None:
    """Wherever it is cut off; off by default, and with a limit of its own."""
    assert count(*cuts(50, 60)) == 0
    assert count(*cuts(50, 60, 45)) == 3
    assert count(*cuts(50, 60, 45, 70)) == 4
    assert count(*cuts(50, 60), limit=2) == 2
    assert count(*cuts(50, 60, 45), limit=False) == 0
    assert LoopSettings().limit_of("truncated") == 0


@pytest.mark.parametrize("end", range(40, len(WHOLE)))
def test_every_place_is_told_from_the_end(end: int) -> None:
    """Whatever stands before it."""
    assert count(*cuts(end, end, end)) == 3


@pytest.mark.parametrize(
    "between",
    [
        past(WHOLE),
        past(WHOLE[:50], "other"),
        past(WHOLE.replace("srv", "opt")[:50]),
        past("not {JSON"),
        past({"path": "a"}),
        past('{"path": "a"}}'),
    ],
)
def test_what_ends_it(between: Round) -> None:
    """A complete call, another tool, another beginning; what is no JSON in another way, and a value."""
    assert count(*cuts(50, 60), between, *cuts(50)) == 0


def test_what_was_withheld_is_left_out() -> None:
    """And a result that is not known tells nothing yet."""
    assert count(*cuts(50, 60), past(WHOLE[:50], withheld=True), *cuts(50)) == 3
    assert count(*cuts(50, 60, 45), past(WHOLE[:50], withheld=True)) == 0
    assert count(*cuts(50, 60), past(WHOLE[:50], result=None)) == 0

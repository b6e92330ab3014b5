"""`truncated`, rule by rule: the same call is cut off again and again."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.detect import Engine, can_fire
from callfuse.detect.registry import KINDS
from callfuse.detect.truncated import Truncated, cut_off_key
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


def count(*rounds: Round, limit: object = True, **settings: Any) -> int:
    """The rounds of it, up to the call of the last one, which is pending; 0 where nothing is found."""
    off = dict.fromkeys([*[kind for kind, own in KINDS.items() if own.most], "no_news", "cycle"], False)
    chosen = LoopSettings.model_validate({"max_repeats": 0, "detectors": off | {"truncated": limit}, **settings})
    *before, newest = rounds
    [pending] = newest.calls
    finding = Engine(Timeline(before[::-1]), chosen).judge(pending.call)
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
    """It neither counts nor ends it; results are not asked for."""
    assert count(*cuts(50, 60), past(WHOLE[:50], withheld=True), *cuts(50)) == 3
    assert count(*cuts(50), past(WHOLE[:50], withheld=True), *cuts(50)) == 0
    assert count(*cuts(50, 60), past(WHOLE[:50], result=None), *cuts(50)) == 4


@pytest.mark.parametrize("pending", [WHOLE, "not {JSON", {"path": "a"}, WHOLE.replace("srv", "opt")[:50]])
def test_what_is_whole_or_another_is_none(pending: object) -> None:
    """However often the call was cut off before."""
    assert count(*cuts(50, 60, 45, 70), past(pending)) == 0


def test_two_streaks_in_the_same_rounds() -> None:
    """Each goes on by itself: one has begun a round before the other."""
    other = past(WHOLE.replace("srv", "opt")[:50]).calls[0]
    both = [Round((other, *one.calls), 0) for one in cuts(50, 60)]
    assert count(*cuts(40), *both, *cuts(50)) == 4
    assert count(*cuts(40), *both, past(WHOLE.replace("srv", "opt")[:45])) == 3


def test_a_limit_of_its_own_for_a_tool() -> None:
    """What holds for others does not."""
    own = {"per_tool": {"write": {"detectors": {"truncated": 5}}}}
    assert count(*cuts(50, 60, 45, 70), **own) == 0
    assert count(*cuts(50, 60, 45, 70, 50), **own) == 5


@given(text=st.text(max_size=30), ends=st.lists(st.integers(0, 70), min_size=3, max_size=5), data=st.data())
def test_what_is_found_was_foreseen(text: str, ends: list[int], data: st.DataObject) -> None:
    """Of any call: its tool was a suspect, with a count as high."""
    whole = json.dumps({"path": text, "text": "x" * 60})
    *before, newest = [past(whole[:end]) for end in ends]
    pending = data.draw(st.sampled_from([newest, past(whole)])).calls[0].call
    chosen = LoopSettings.model_validate({"detectors": {"truncated": 2, "truncated_most": "block"}})
    engine = Engine(Timeline(before[::-1]), chosen)
    found = Truncated().evidence(engine.past, pending, engine.settings)
    foreseen = [hit.count for hit in engine.possible("write") if hit.kind == "truncated"]
    assert found is None or max(foreseen) >= found.count
    assert can_fire(engine.past, chosen) or engine.judge(pending) is None


@pytest.mark.parametrize("arguments", [WHOLE[:50], {}, {"path": "a"}])
def test_what_the_ledger_knows(arguments: object) -> None:
    """Counts as the history does; a call that was cut off is judged by how it begins, even if its arguments are a
    value. One that is whole, or begins otherwise, is not found."""
    call = ToolCall("", "write", arguments)
    chosen = LoopSettings.model_validate({"detectors": {"truncated": 3}})
    for before in (1, 2, 7):
        past_ = Timeline([], cut_off={cut_off_key(call): before})
        found = Engine(past_, chosen).judge_cut_off(call)
        assert (found and found.count) == (before + 1 if before > 1 else None)
        assert Engine(past_, chosen).could_fire("write") is (before > 1)
        assert Engine(past_, chosen).judge(ToolCall("", "write", WHOLE)) is None
        assert Engine(past_, chosen).judge_cut_off(ToolCall("", "write", '{"text": "a')) is None
        assert Engine(past_, chosen).judge_cut_off(ToolCall("", "other", arguments)) is None

"""The kind `runaway`: found in one call alone, from the arguments that it has."""

import json

import pytest

from callfuse.detect import Engine, can_fire
from callfuse.model import Timeline, ToolCall
from callfuse.policy import explain
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import calls, timeline

FIRST = Timeline([])
LAP = "The sauce must be stirred until it is thick. "
RUNS_AWAY = json.dumps({"text": LAP * 200})


def found(arguments: object, past: Timeline = FIRST, **settings: object) -> list[tuple[str, bool]]:
    """Kind and hardness of what is found in a call with these arguments, among others."""
    one = ToolCall("call_1", "write", arguments)
    judged = Engine(past, LoopSettings.model_validate(settings)).judge_round([*calls("a b"), one])
    assert [call for call, _ in judged] in ([], [one])
    return [(finding.kind, finding.hard) for _, finding in judged]


@pytest.mark.parametrize("past", [FIRST, timeline("a=x", "a=x")], ids=["first", "later"])
def test_it_is_found_hard_at_once(past: Timeline) -> None:
    """In a first round, too, where nothing else can be; as text or as a value, complete or cut off."""
    for arguments in (RUNS_AWAY, RUNS_AWAY[:-30], json.loads(RUNS_AWAY)):
        assert ("runaway", True) in found(arguments, past)
    assert found(json.dumps({"text": LAP * 80})) == []
    assert found(json.dumps({"text": "".join(f"{at * at} stirs. " for at in range(2000))})) == []


def test_it_says_how_often() -> None:
    """For people, and for the model."""
    [(_, finding)] = Engine(FIRST, LoopSettings()).judge_round([ToolCall("", "write", RUNS_AWAY)])
    assert finding.count >= 90
    said = f"a call of write whose arguments repeat themselves ({finding.count} times)"
    assert explain.seen(finding) == said


def test_it_can_be_turned_off() -> None:
    """For all tools, or for one."""
    assert found(RUNS_AWAY, detectors={"runaway": False}) == []
    assert found(RUNS_AWAY, per_tool={"wr*": {"detectors": {"runaway": False}}}) == []
    assert found(RUNS_AWAY, per_tool={"read": {"detectors": {"runaway": False}}}) == [("runaway", True)]
    parts = r"\(arguments, text, reasoning, finish, most, most_hard\)"
    with pytest.raises(ValueError, match=rf"use false, true, or a mapping {parts} \["):
        LoopSettings.model_validate({"detectors": {"runaway": 5}})


def test_a_round_of_the_history_may_have_it() -> None:
    """The pre-check of a round looks at its calls."""
    long = ToolCall("", "write", RUNS_AWAY)
    past = timeline("a=x")
    [round_] = past.rounds
    assert not can_fire(past, LoopSettings(), 1, round_)
    for one in round_.calls:
        one.call = long
    assert can_fire(past, LoopSettings(), 1, round_)

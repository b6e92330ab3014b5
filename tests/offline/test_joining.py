"""Records of one conversation count once, however often its history was sent."""

import json
from pathlib import Path
from typing import Any

import pytest

from callfuse.offline.files import Reading
from callfuse.offline.runs import RecordedRun
from tests.offline.reading import runs_in, written


def body(count: int, *, name: str = "c", opening: str = "go", done: bool = False, **more: Any) -> dict[str, Any]:
    """A request of a conversation with this many calls so far; call ids begin with the name."""
    history: list[dict[str, Any]] = [{"role": "user", "content": opening}]
    for at in range(count):
        function = {"name": "step", "arguments": f'{{"n": {at}}}'}
        history += [
            {"role": "assistant", "tool_calls": [{"id": f"{name}{at}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"{name}{at}", "content": f"result {at}"},
        ]
    last = {"name": "step", "arguments": f'{{"n": {count}}}'}
    asked = [] if done else [{"id": f"{name}{count}", "type": "function", "function": last}]
    answer = {"choices": [{"message": {"role": "assistant", "tool_calls": asked}}]}
    return {"messages": history, "response": answer} | more


def counts(path: Path, *records: Any, **options: Any) -> list[int]:
    """The numbers of calls of the runs in a log of these records."""
    return sorted(len(list(run.calls())) for run in runs_in(written(path / "log.jsonl", *records), **options))


def test_a_conversation_is_one_run(tmp_path: Path) -> None:
    """Each request repeats the history; the last one has it all, results included."""
    records = [body(at) for at in range(5)] + [body(5, done=True)]
    (run,) = runs_in(written(tmp_path / "log.jsonl", *records))
    listed = list(run.calls())
    assert [call.call.text for call in listed] == [f'{{"n": {at}}}' for at in range(5)]
    outcomes = [call.outcome for call in listed]
    assert [outcome.text for outcome in outcomes if outcome] == [f"result {at}" for at in range(5)]


def test_conversations_that_run_side_by_side(tmp_path: Path) -> None:
    """Their call ids tell them apart, though they open alike and do the same."""
    records = [body(at, name=name) for at in range(4) for name in ("x", "y", "z")]
    assert counts(tmp_path, *records) == [4, 4, 4]


def test_without_ids_the_opening_tells_them_apart(tmp_path: Path) -> None:
    """Gemini's calls have none."""
    records = [body(at, name="", opening=opening) for at in range(4) for opening in ("one", "other")]
    for record in records:
        for message in (*record["messages"], record["response"]["choices"][0]["message"]):
            message.pop("tool_call_id", None)
            for call in message.get("tool_calls", []):
                call["id"] = ""
    assert counts(tmp_path, *records) == [4, 4]


def test_retries_and_late_records_are_left_out(tmp_path: Path) -> None:
    """A request that was sent twice, and a log whose order is not that of the requests."""
    assert counts(tmp_path, body(0), body(1), body(1), body(2), body(2)) == [3]
    assert counts(tmp_path, body(0), body(3), body(1), body(2)) == [4]


def test_a_compacted_history_is_a_run_of_its_own(tmp_path: Path) -> None:
    """What was before stays, and what comes after counts beside it."""
    after = [body(at, name="n", opening="summary so far") for at in range(2)]
    assert counts(tmp_path, body(0), body(1), body(2), *after) == [2, 3]


def test_a_branch_keeps_both(tmp_path: Path) -> None:
    """Someone went back and asked again: what the two have in common counts in both."""
    branch = body(2)
    branch["response"]["choices"][0]["message"]["tool_calls"][0]["id"] = "other"
    again = body(3)
    assert counts(tmp_path, body(0), body(1), body(2), branch, again) == [3, 4]


def test_a_verdict_makes_a_run(tmp_path: Path) -> None:
    """Runs that are labelled are runs, though they do the very same; under one id they are one."""
    assert counts(tmp_path, body(2, success=True), body(2, success=True)) == [3, 3]
    path = tmp_path / "array.json"
    path.write_text(json.dumps([body(2, success=True)] * 3))
    assert len(runs_in(str(path))) == 3
    named = [body(at, id="a", success=True) for at in range(3)] + [body(2, id="b", success=True)]
    assert counts(tmp_path, *named) == [3, 3]


def test_a_session_keeps_to_itself(tmp_path: Path) -> None:
    """The same calls in another session are another run; an id alone may be a request's."""
    assert counts(tmp_path, body(1, session_id="s"), body(2, session_id="t"), body(2, session_id="s")) == [3, 3]
    assert counts(tmp_path, body(1, id="request-1"), body(2, id="request-2")) == [3]


@pytest.mark.parametrize("limit", [1, 3000, 10**9])
def test_what_is_open_is_bounded(limit: int, tmp_path: Path) -> None:
    """Beyond the limit the one that has waited longest counts as it is; with room enough nothing counts twice."""
    records = [body(at, name=f"{name}-") for name in range(30) for at in range(4)]
    found = counts(tmp_path, *records, limit_bytes=limit)
    assert found == [4] * 30


def test_what_goes_on_too_late_counts_again(tmp_path: Path) -> None:
    """Where there is no room for all that are open at once, the beginnings count too."""
    records = [body(at, name=f"{name}-") for at in range(3) for name in range(10)]
    assert counts(tmp_path, *records, limit_bytes=10**9) == [3] * 10
    found = counts(tmp_path, *records, limit_bytes=2000)
    assert found[-10:] == [3] * 10
    assert len(found) > 10


def test_files_are_apart(tmp_path: Path) -> None:
    """A conversation does not go on in another file."""
    names = [written(tmp_path / f"{at}.jsonl", body(at)) for at in range(2)]
    assert len([one for one in Reading(names) if isinstance(one, RecordedRun)]) == 2


def test_a_tool_that_was_there_when_it_was_called(tmp_path: Path) -> None:
    """The tools of a request are those of its own time."""
    tools = [[{"type": "function", "function": {"name": name}}] for name in ("step", "other")]
    (run,) = runs_in(written(tmp_path / "log.jsonl", body(2, tools=tools[0]), body(4, tools=tools[1])))
    assert run.known == frozenset({"step"})
    (run,) = runs_in(written(tmp_path / "log.jsonl", body(2, tools=tools[1]), body(4, tools=tools[1])))
    assert run.known == frozenset()

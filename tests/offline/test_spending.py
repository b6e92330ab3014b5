"""Budgets in recorded runs: counted by turn or run, from recorded usage, or estimated from the calls."""

from pathlib import Path
from typing import Any

import pytest

from callfuse.offline.runs import RecordedRun
from callfuse.offline.spending import spent_before
from callfuse.offline.tuning import ALWAYS, Scale
from callfuse.policy.settings import LoopSettings
from callfuse.policy.spending import BudgetSettings
from tests.offline.reading import runs_in, written
from tests.offline.test_replay import RULES, replayed

ASK = {"role": "user", "content": "Look around."}
RESULTS = ("four", "fivesixseven", "eight")


def call(at: int) -> dict[str, Any]:
    """A call of OpenAI's format, a new one for each number."""
    return {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": f'{{"at":{at}}}'}}


def turn(at: int) -> dict[str, Any]:
    """The model's turn with a call."""
    return {"role": "assistant", "content": None, "tool_calls": [call(at)]}


def rounds(many: int) -> list[dict[str, Any]]:
    """Calls with their results."""
    return [
        one
        for at in range(many)
        for one in (turn(at), {"role": "tool", "tool_call_id": f"c{at}", "content": RESULTS[at % 3]})
    ]


def record(*history: dict[str, Any], answer: dict[str, Any] | None = None, **usage: int) -> dict[str, Any]:
    """A request with its answer and the answer's usage."""
    message = answer or {"role": "assistant", "content": "Done."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {
        "model": "m-1",
        "messages": [ASK, *history],
        "response": {"choices": [choice]} | ({"usage": usage} if usage else {}),
    }


def limited(**budget: Any) -> LoopSettings:
    """Settings with a budget."""
    return LoopSettings.model_validate({"budget": budget})


def found(run: RecordedRun, settings: LoopSettings) -> list[tuple[int, int, int, str | None]]:
    """Call, count, limit and rung of each finding of a run by its budget."""
    replay = replayed([run], settings, RULES, keep_runs=True)
    return [
        (one.call, one.count, one.threshold, one.rung)
        for judged in replay.runs
        for one in judged.findings
        if one.kinds == ("budget",)
    ]


def logged(path: Path, many: int) -> RecordedRun:
    """A run of a log with a request for each round, and one whose answer is words: 100 tokens each."""
    log = [record(*rounds(at), answer=turn(at), prompt_tokens=90, completion_tokens=10) for at in range(many)]
    log.append(record(*rounds(many), prompt_tokens=90, completion_tokens=10))
    [run] = runs_in(written(path / "log.jsonl", *log))
    return run


def test_calls(tmp_path: Path) -> None:
    """The first call beyond the limit is found, and blocked, as on the wire."""
    [run] = runs_in(written(tmp_path / "one.jsonl", record(*rounds(6))))
    assert found(run, limited(calls=4)) == [(5, 5, 5, "block"), (6, 6, 5, "block")]
    assert found(run, limited(calls=6)) == []


def test_recorded_tokens(tmp_path: Path) -> None:
    """An answer's tokens count from the next one on, since nobody knows its cost before."""
    run = logged(tmp_path, 5)
    [spent] = spent_before(run, BudgetSettings(tokens=1))
    assert [(one.tokens, one.estimated) for one in spent] == [(at * 100, 0) for at in range(6)]
    assert found(run, limited(tokens=300)) == [(4, 300, 300, "block"), (5, 400, 300, "block")]


def test_a_session_has_answers_in_words(tmp_path: Path) -> None:
    """They end a turn and so are in no later one; a request that was sent twice is paid for twice."""
    first = record(prompt_tokens=40, completion_tokens=2)
    again = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Really?"}]
    second = record(*again, answer=turn(0), prompt_tokens=50, completion_tokens=3)
    [run] = runs_in(written(tmp_path / "log.jsonl", first, first, second))
    assert [one.tokens for [one, _] in [spent_before(run, BudgetSettings(tokens=1))[-1]]] == [0]
    session = BudgetSettings(tokens=1, by="session")
    assert [one.tokens for one in spent_before(run, session)[-1]] == [84, 137]


def test_money(tmp_path: Path) -> None:
    """By the price of the run's model; without one, nothing is spent."""
    run = logged(tmp_path, 4)
    prices = {"m-*": {"input": 10, "output": 100}}  # 0.0019 an answer
    assert found(run, limited(money=0.0038, prices=prices)) == [(3, 3800, 3800, "block"), (4, 5700, 3800, "block")]
    assert found(run, limited(money=0.0038, prices={"other": {"input": 10, "output": 100}})) == []


def test_it_is_estimated_from_the_calls(tmp_path: Path) -> None:
    """Where no record names tokens: a round writes its calls, and reads all that came before it."""
    [run] = runs_in(written(tmp_path / "one.jsonl", [ASK, *rounds(3)]))
    written_each = 3  # look{"at":0}: 12 characters
    context = [0, 4, 10]  # with the results: 16, 24 and 17 characters
    [spent] = spent_before(run, BudgetSettings(tokens=1))
    sums = [sum(context[:at]) + at * written_each for at in range(4)]
    assert [(one.tokens, one.estimated) for one in spent] == [(total, total) for total in sums]


@pytest.mark.parametrize(("by", "expected"), [("turn", [0, 0]), ("session", [0, 2]), ("credential", [0, 2])])
def test_what_it_is_by(tmp_path: Path, by: str, expected: list[int]) -> None:
    """A turn begins anew; a session is the run, and so is a credential, because nothing tells which runs share it."""
    more = [{"role": "user", "content": "Go on."}, turn(7), {"role": "tool", "tool_call_id": "c7", "content": "x"}]
    [run] = runs_in(written(tmp_path / "one.jsonl", [ASK, *rounds(2), *more]))
    budget = BudgetSettings.model_validate({"by": by, "calls": 9})
    assert [before[0].calls for before in spent_before(run, budget)] == expected


def test_other_formats(tmp_path: Path) -> None:
    """LiteLLM's rows and OpenTelemetry's spans name the tokens beside the answer."""
    row = {"call_type": "acompletion", "id": "1", "messages": [ASK], "prompt_tokens": 70, "completion_tokens": 7}
    message = {"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "look", "arguments": {}}]}
    attributes = {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Look."}]}],
        "gen_ai.output.messages": [message],
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 7,
    }
    answer = {"choices": [{"index": 0, "message": turn(0)}]}
    for one in (row | {"response": answer}, {"attributes": attributes}):
        [run] = runs_in(written(tmp_path / "log.jsonl", one))
        [(before, after)] = spent_before(run, BudgetSettings(tokens=1))
        assert (before.tokens, after.tokens, after.estimated) == (0, 77, 0)


def test_no_line_lets_it_pass(tmp_path: Path) -> None:
    """For `tune`, a budget that is spent acts on the run wherever the line is."""
    run = logged(tmp_path, 3)
    assert Scale(limited(tokens=100)).steps(run, warned=False)[-1].score == ALWAYS
    run = logged(tmp_path, 3)
    assert Scale(limited(tokens=1000)).steps(run, warned=False)[-1].score < ALWAYS

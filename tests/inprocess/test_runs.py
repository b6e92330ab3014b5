"""The runs that adapters to frameworks share: one detector for each conversation, one judgement for each answer."""

from typing import Any

import pytest

from callfuse import ConfigError, ToolCall, ToolLoopError
from callfuse.inprocess.runs import AgentRun, AgentRuns, name_of, substitute
from tests.inprocess.agents import settings


def answer(run: AgentRun, *queries: str, name: Any = None) -> list[bool]:
    """An answer that searches for these, and their results; for each whether it has run."""
    run.begin([ToolCall(f"c{at}", "search", {"query": query}) for at, query in enumerate(queries)], name)
    ran = [run.withheld(f"c{at}") is None for at in range(len(queries))]
    for at in range(len(queries)):
        run.finish(f"c{at}", "nothing")
    return ran


def test_conversations_know_nothing_of_each_other() -> None:
    """Each name has its own streaks."""
    runs = AgentRuns(settings())
    assert all(answer(runs.get(name), "a") == [True] for name in "xyxy")
    assert answer(runs.get("x"), "a") == [False]
    assert answer(runs.get("z"), "a") == [True]


def test_few_are_kept() -> None:
    """Those that were used last."""
    runs = AgentRuns(settings(), max_runs=2)
    first, second = runs.get("x"), runs.get("y")
    assert runs.get("x") is first
    runs.get("z")
    assert runs.get("x") is first
    assert runs.get("y") is not second


def test_an_answer_is_judged_once() -> None:
    """However often it is shown, as by several threads that run its calls."""
    run = AgentRuns(settings()).get("x")
    for name in (1, 1, 1, 2):
        assert answer(run, "a", name=name) == [True]
    assert answer(run, "a", name=3) == [False]
    assert run.detector.stats.calls == 3


def test_a_new_turn() -> None:
    """With a message that was not there before; None is none."""
    runs = AgentRuns(settings())
    turns = (1, 1, None, 2, 2)
    assert [answer(runs.get("x", turn), "a") for turn in turns] == [[True], [True], [False], [True], [True]]


def test_results_of_calls_that_have_not_run() -> None:
    """Are no evidence, nor are those of calls that nobody has judged."""
    run = AgentRuns(settings()).get("x")
    for _ in range(3):
        answer(run, "a")
    assert run.finish("c0", "something new") == ""
    assert run.finish("c7", "nothing") == ""
    found = run.withheld("c0")
    assert found is not None
    assert str(substitute(found)).startswith("nothing\n\n[callfuse] This call was not run.")


@pytest.mark.parametrize("on_block", ["end", "continue", "raise"])
def test_a_block(on_block: Any) -> None:
    """Ends the run where nothing of the answer is left, or does not."""
    run = AgentRuns(settings(mode="block"), on_block=on_block).get("x")
    answer(run, "a")
    answer(run, "a")
    if on_block == "raise":
        with pytest.raises(ToolLoopError):
            answer(run, "a")
    else:
        assert answer(run, "a") == [False]
    assert (run.ended is None) is (on_block == "continue")
    assert answer(run, "a", "b") == [False, True]
    assert run.ended is None


def test_what_is_wrong_is_raised_at_once() -> None:
    """When the guard is made, not in a run."""
    with pytest.raises(ValueError, match="on_block = 'stop': use end, continue, raise"):
        AgentRuns(on_block="stop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        AgentRuns({"tool_call_loop": {"mode": "sometimes"}})

    async def slow(_: object) -> None:
        """No callback."""

    with pytest.raises(TypeError, match="use a plain function"):
        AgentRuns(settings(), on_loop=slow)  # type: ignore[arg-type]


def test_names_of_several_parts_are_told_apart() -> None:
    """Whoever chooses one part, such as the id of a session, comes to nobody else's name."""
    parts = [("app", "alice", "x/y"), ("app", "alice/x", "y"), ("app", "alice%2Fx", "y"), ("app/alice", "x", "y"),
             ("app", "alice", "x", "y"), ("app", "", "alice", "x/y")]  # fmt: skip
    assert len({name_of(*one) for one in parts}) == len(parts)
    assert name_of("app", "me@example.com", "tools:1|x") == "app/me@example.com/tools:1|x"

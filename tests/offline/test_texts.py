"""Text and reasoning of recorded answers that run away, and answers that repeat: found, kept, counted and reported."""

from pathlib import Path
from typing import Any

import pytest

from callfuse.offline.replay import ANY, Replay
from callfuse.offline.tuning import ALWAYS, Scale
from callfuse.policy.settings import MODES, LoopSettings
from tests.offline.reading import runs_in, written
from tests.offline.test_replay import RULES, replayed

AWAY = "The sauce must be stirred until it is thick. " * 120
USER = {"role": "user", "content": "Cook."}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
DONE: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "x"},
]


def chat(text: str = "", *, finish: str = "stop", reasoning: str = "", calls: bool = False) -> dict[str, Any]:
    """A whole answer of OpenAI's format."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    message |= {"reasoning_content": reasoning} if reasoning else {}
    message |= {"tool_calls": [CALL]} if calls else {}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def record(answer: Any, *more: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A recorded request with its answer."""
    return {"model": "m", "messages": [USER, *more], "response": answer, **keys}


def replay_of(path: Path, *records: Any, settings: LoopSettings | None = None) -> Replay:
    """The replay of a file with these records."""
    return replayed(runs_in(written(path / "records.jsonl", *records)), settings, RULES, keep_runs=True)


def found(replay: Replay) -> list[tuple[str, str | None, bool]]:
    """Tool, rung and whether a call would have been withheld, of each finding."""
    return [(one.tool, one.rung, one.acts) for run in replay.runs for one in run.findings]


@pytest.mark.parametrize(
    ("answer", "tool"),
    [
        (chat(AWAY), "(text)"),
        (chat(reasoning=AWAY), "(reasoning)"),
        (chat("Well.", finish="repetition"), "(finish)"),
        (chat(AWAY, calls=True), "(text)"),
        ({"message": {"role": "assistant", "content": AWAY}, "done": True}, "(text)"),
        ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": AWAY}]}, "(text)"),
        ({"candidates": [{"content": {"role": "model", "parts": [{"text": AWAY}]}}]}, "(text)"),
    ],
)
def test_it_is_found_in_an_answer(tmp_path: Path, answer: Any, tool: str) -> None:
    """Whatever the format; it warns, and withholds nothing. A run needs no call for it."""
    replay = replay_of(tmp_path, record(answer, success=False))
    assert found(replay) == [(tool, "warn", False)]
    [figures] = replay.figures.values()
    assert (figures.fired["runaway"].runs, figures.fired[ANY].acting_runs) == ({False: 1}, {})
    assert replay.empty == 0


def test_healthy_answers_and_settings(tmp_path: Path) -> None:
    """What is off is not found; what only observes is, and leads to nothing."""
    assert replay_of(tmp_path, record(chat("Let me see. " * 20))).empty == 1
    assert replay_of(tmp_path, record({"choices": "none"}, *DONE)).runs == []
    for off in ({"detectors": {"runaway": False}}, {"detectors": {"runaway": {"text": "off"}}}):
        assert replay_of(tmp_path, record(chat(AWAY)), settings=LoopSettings.model_validate(off)).runs == []
    watched = replay_of(tmp_path, record(chat(AWAY)), settings=LoopSettings(mode=MODES["observe"]))
    assert found(watched) == [("(text)", "observe", False)]


def test_it_stays_with_its_run(tmp_path: Path) -> None:
    """Later requests of the conversation do not show the text any more, or show it without the answer."""
    first, second = record(chat(AWAY, calls=True)), record(chat("Done."), *DONE)
    replay = replay_of(tmp_path, first, second)
    assert found(replay) == [("(text)", "warn", False)]
    [run] = runs_in(written(tmp_path / "one.jsonl", first, second))
    assert (len(list(run.calls())), len(run.texts)) == (1, 1)


def test_litellm(tmp_path: Path) -> None:
    """Its payloads have the answer, too."""
    log = {"call_type": "acompletion", "id": "1", "model": "m", "messages": [USER], "response": chat(AWAY)}
    assert found(replay_of(tmp_path, log)) == [("(text)", "warn", False)]


def test_no_limit_lets_it_pass(tmp_path: Path) -> None:
    """For `tune`, settings act on such a run wherever the line is, unless it is off."""
    [run] = runs_in(written(tmp_path / "one.jsonl", record(chat(AWAY), *DONE)))
    assert Scale(LoopSettings()).steps(run, warned=True)[-1].score == ALWAYS
    assert Scale(LoopSettings()).steps(run, warned=False)[-1].score < ALWAYS
    off = LoopSettings.model_validate({"detectors": {"runaway": False}})
    assert Scale(off).steps(run, warned=True)[-1].score < ALWAYS


SAME = "I cannot find the file that you are asking for."
REPEATS = LoopSettings.model_validate({"detectors": {"monologue": 3}})


def told(times: int, text: str = SAME) -> list[dict[str, Any]]:
    """The same answer again and again, whatever the user says."""
    return [
        one
        for at in range(times)
        for one in ({"role": "assistant", "content": text}, {"role": "user", "content": f"Try again, {at}."})
    ]


def test_equal_answers(tmp_path: Path) -> None:
    """The same words for the third time and the fourth: before each next answer the model would have been warned."""
    name = written(tmp_path / "log.jsonl", record(chat(SAME), *told(4), success=False))
    replay = replayed(runs_in(name, words=True), REPEATS, RULES, keep_runs=True)
    assert found(replay) == [("-", "warn", False)] * 2
    assert [one.kinds for run in replay.runs for one in run.findings] == [("monologue",)] * 2
    assert replayed(runs_in(name, words=True), LoopSettings(), RULES, keep_runs=True).runs == []


def test_equal_answers_of_a_log(tmp_path: Path) -> None:
    """Each request repeats the history, in which every answer counts once, in whatever order they were logged."""
    log = [record(chat(SAME), *told(at)) for at in range(5)]
    for records in (log, log[::-1]):
        replay = replayed(
            runs_in(written(tmp_path / "log.jsonl", *records), words=True), REPEATS, RULES, keep_runs=True
        )
        assert found(replay) == [("-", "warn", False)] * 2


def test_tune_heeds_equal_answers(tmp_path: Path) -> None:
    """A run in which the model would have been warned is acted on wherever the line is."""
    [run] = runs_in(written(tmp_path / "one.jsonl", record(chat(), *DONE, *told(3))), words=True)
    assert Scale(REPEATS).steps(run, warned=True)[-1].score == ALWAYS
    assert Scale(REPEATS).steps(run, warned=False)[-1].score < ALWAYS
    assert Scale(LoopSettings()).steps(run, warned=True)[-1].score < ALWAYS

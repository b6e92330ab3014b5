"""What happens then: an agent that goes on looping climbs the ladder, one rung a round."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, meet, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.plain import PIECES, RESULT, again, known_call, same_call, saying, spin


@dataclass(frozen=True, slots=True)
class Run:
    """An agent's run: how many of its calls came through, whether it ended in a text, what the model was asked."""

    calls: int
    ended: bool
    asked: tuple[bytes, ...]
    log: tuple[tuple[str, int, str], ...]


def spun(kit: DialectKit, ladder: str, *, stream: bool = True, most: int = 12) -> Run:
    """The run of an agent whose model makes the same call for ever, and which stops at an answer without one."""
    ended = False

    async def talk(session: Session) -> None:
        nonlocal ended
        history = History((User("Find the zebra crossing."),))
        while len(session.meetings) < most and not ended:
            call = Call(f"call_r{len(session.meetings)}", "search", PIECES)
            met = await session.exchange(ask(kit, history, stream=stream), reply(kit, saying(call), stream=stream))
            ended = kit.sdk(met.body, stream=stream)[0].calls == ()
            history = history.and_then(Round((call,), (RESULT,)))

    meetings = in_session(talk, ladder).meetings
    asked = tuple(heard.body for met in meetings for heard in met.app.heard)
    return Run(len(meetings) - ended, ended, asked, tuple(line for met in meetings for line in met.log))


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize(
    ("ladder", "calls", "asked"), [("block", 2, 3), ("chance_then_block", 2, 4), ("graduated", 4, 5)]
)
def test_a_loop_ends(kit: DialectKit, stream: bool, ladder: str, calls: int, asked: int) -> None:
    """`block` ends it at the third call, a chance costs one more question, two warnings two more rounds."""
    run = spun(kit, ladder, stream=stream)
    assert run.ended
    assert (run.calls, len(run.asked)) == (calls, asked)


@every_dialect
@pytest.mark.parametrize("ladder", ["observe", "warn"])
def test_a_loop_that_nobody_stops_goes_on(kit: DialectKit, ladder: str) -> None:
    """Watching and warning never end a run."""
    run = spun(kit, ladder, most=9)
    assert (run.calls, run.ended) == (9, False)
    assert any(MARK.encode() in body for body in run.asked) is (ladder == "warn")


@every_dialect
def test_each_repeat_is_told_with_its_count(kit: DialectKit) -> None:
    """Under `warn` every request carries all earlier warnings as they were, and the next one."""
    previous: list[tuple[str, str]] = []
    for at, body in enumerate(spun(kit, "warn", most=7).asked):
        results = kit.results(body)
        assert results[: len(previous)] == previous
        assert [MARK in text for _, text in results] == [place >= 2 for place in range(at)]
        previous = results


@every_dialect
@pytest.mark.parametrize(
    ("ladder", "actions"),
    [
        ("observe", ["observe"]),
        ("warn", ["warn"]),
        ("block", ["block"]),
        ("chance_then_block", ["steer", "block"]),
        ("graduated", ["warn", "warn", "block"]),
    ],
)
def test_a_streak_warns_once_for_each_rung(kit: DialectKit, ladder: str, actions: list[str]) -> None:
    """Each rung of a streak is one WARNING with all its fields; every further finding is an INFO; no credential."""
    found = [line for line in spun(kit, ladder, most=6).log if line[2].startswith("Tool call loop detected in session")]
    warnings = [text for _, level, text in found if level == logging.WARNING]
    assert [text.split("action=")[1].split(",")[0] for text in warnings] == actions
    for name, level, text in found:
        assert name.startswith("callfuse")
        assert level in (logging.WARNING, logging.INFO)
        for part in ("tool=search", "repeats=", "/3", "window=300", "model=", "backend=", "signature="):
            assert part in text
        assert "key-of-the-test" not in text


@every_dialect
@streamed_and_whole
def test_a_second_answer_that_is_warned(kit: DialectKit, stream: bool) -> None:
    """Where the rung after a steer lets the call go, its finding is told and climbs the ladder like any other."""
    replies = [reply(kit, again(tag=tag), stream=stream) for tag in ("first", "second")]
    met = meet(ask(kit, spin(), stream=stream), replies, "a warning between")
    (view,) = kit.sdk(met.body, stream=stream)
    assert len(view.calls) == 1
    assert told(met.log) == [("repeats=3/3", "action=steer"), ("repeats=4/3", "action=warn")]
    run = spun(kit, "a warning between", stream=stream)
    assert [action for _, action in told(run.log)] == [f"action={rung}" for rung in ("steer", "warn", "steer", "block")]
    assert run.ended


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a steered one"])
def test_a_call_that_is_warned_where_another_would_be_held(kit: DialectKit, stream: bool, beside: bool) -> None:
    """The rungs of one tool never hide the findings in another."""
    round_ = Round((same_call("call_s"), known_call("call_k")), (RESULT, RESULT))
    history = History((User("Find the zebra crossing."), round_, round_))
    answer = saying(*([same_call()] if beside else []), known_call())
    met = meet(
        ask(kit, history, stream=stream),
        [reply(kit, answer, stream=stream)],
        "block",
        per_tool={"lookup": {"mode": "warn"}},
    )
    (view,) = kit.sdk(met.body, stream=stream)
    assert [call.name for call in view.calls] == ["lookup"]
    assert sorted(told(met.log)) == [("repeats=3/3", f"action={rung}") for rung in ("block", "warn")[not beside :]]


def told(log: Sequence[tuple[str, int, str]]) -> list[tuple[str, str]]:
    """The counts and actions of the findings in a log."""
    lines = [text.split(", ") for _, _, text in log if "loop detected" in text]
    return [(parts[1], parts[5]) for parts in lines]

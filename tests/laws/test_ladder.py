"""What happens then: an agent that goes on looping climbs the ladder, one rung a round."""

import logging
from dataclasses import dataclass

import pytest

from tests.support.kits import DialectKit
from tests.support.meeting import MARK, Session, ask, every_dialect, in_session, reply, streamed_and_whole
from tests.support.model import Call, History, Round, User
from tests.support.plain import PIECES, RESULT, saying


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

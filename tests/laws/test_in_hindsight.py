"""What only results show: the same error again is told with the result that shows it, and never withheld for."""

import logging

import pytest

from callfuse.asgi.review import LoopEvent
from tests.support.asgi import JSON_REQUEST
from tests.support.kits import DialectKit
from tests.support.meeting import (
    MARK,
    Meeting,
    Session,
    ask,
    every_dialect,
    in_session,
    meet,
    reply,
    streamed_and_whole,
)
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

LIMIT = 4
SIGNED = (*JSON_REQUEST, (b"content-digest", b"sha-256=:x:"))


def failing(rounds: int, *, tool: str = "lookup") -> History:
    """A tool that fails in the same way whatever it is called with."""
    made = [
        Round((Call(f"call_f{at}", tool, (f'{{"table": "t_{at}"}}',)),), (f"Error: there is no table 't_{at}' here",))
        for at in range(rounds)
    ]
    return History((User("Find the zebra crossing."), *made))


def next_call(at: int) -> Call:
    """The call that comes after so many."""
    return Call(f"call_f{at}", "lookup", (f'{{"table": "t_{at}"}}',))


def findings(met: Meeting) -> list[tuple[int, str]]:
    """The levels and actions of the findings that were logged."""
    found = [(level, text) for _, level, text in met.log if text.startswith("Tool call loop detected")]
    return [(level, text.split("action=")[1].split(",")[0]) for level, text in found]


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
def test_the_result_says_it(kit: DialectKit, stream: bool, ladder: str) -> None:
    """Whatever the ladder, from the limit on, with the count; the answer goes through as it came."""
    answer = reply(kit, saying(next_call(LIMIT + 1)), stream=stream)
    met = meet(ask(kit, failing(LIMIT + 1), stream=stream), [answer], ladder)
    results = [text for _, text in kit.results(met.app.heard[0].body)]
    assert [MARK in text for text in results] == [False] * (LIMIT - 1) + [True, True]
    assert f"round {LIMIT} in which" in results[-2]
    assert f"round {LIMIT + 1} in which" in results[-1]
    assert met.body == answer.body


@every_dialect
def test_a_healthy_request_keeps_every_byte(kit: DialectKit) -> None:
    """Below the limit, and where another tool came between."""
    mixed = failing(LIMIT - 2).and_then(*failing(1, tool="search").turns[1:], *failing(LIMIT - 2).turns[1:])
    for history in (failing(LIMIT - 1), mixed):
        request = ask(kit, history, stream=True)
        met = meet(request, [reply(kit, saying("Done."), stream=True)], "chance_then_block")
        assert met.app.heard[0].body == request.body
        assert findings(met) == []


@every_dialect
@pytest.mark.parametrize(("ladder", "headers"), [("observe", JSON_REQUEST), ("chance_then_block", SIGNED)])
def test_where_nothing_may_be_said_it_is_only_observed(kit: DialectKit, ladder: str, headers: object) -> None:
    """Under `observe`, and in a signed request."""
    request = ask(kit, failing(LIMIT), stream=True, headers=headers)  # type: ignore[arg-type]
    met = meet(request, [reply(kit, saying("Done."), stream=True)], ladder)
    assert met.app.heard[0].body == request.body
    assert findings(met) == [(logging.WARNING, "observe")]


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("calls", [True, False])
def test_each_finding_is_told_once(kit: DialectKit, stream: bool, calls: bool) -> None:
    """When its result first comes, at WARNING, later ones at INFO; not when the client tries again."""

    async def talk(session: Session) -> None:
        for rounds in (LIMIT - 1, LIMIT, LIMIT, LIMIT + 1):
            answer = saying(next_call(rounds)) if calls else saying("Done.")
            await session.exchange(ask(kit, failing(rounds), stream=stream), reply(kit, answer, stream=stream))

    told = [findings(met) for met in in_session(talk, "chance_then_block").meetings]
    assert told == [[], [(logging.WARNING, "warn")], [], [(logging.INFO, "warn")]]


@every_dialect
def test_an_answer_that_never_came_tells_nothing(kit: DialectKit) -> None:
    """The result is new to the next try."""

    async def talk(session: Session) -> None:
        request = ask(kit, failing(LIMIT), stream=False)
        answer = reply(kit, saying("Done."), stream=False)
        await session.exchange(request, type(answer)(answer.chunks, 503, answer.headers))
        await session.exchange(request, answer)

    told = [findings(met) for met in in_session(talk, "chance_then_block").meetings]
    assert told == [[], [(logging.WARNING, "warn")]]


SAME_GROUND = (1, 2, 3, 1, 2, 4, 3, 1, 5, 2)
"""Pages: five of the last eight are known."""


def rounds_of(*calls: tuple[str, int, str]) -> History:
    """Rounds of one call, each a tool, a number that its arguments hold, and what came back."""
    made = [
        Round((Call(f"call_g{at}", tool, (f'{{"page": "p_{number}"}}',)),), (text,))
        for at, (tool, number, text) in enumerate(calls)
    ]
    return History((User("Find the zebra crossing."), *made), ("read_page", "edit_page", "run_tests"))


@every_dialect
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
def test_going_over_the_same_ground_is_told(kit: DialectKit, ladder: str) -> None:
    """In no order, with the result that completes it; the answer goes through as it came."""
    history = rounds_of(*[("read_page", page, f"Page {page * 'x'}") for page in SAME_GROUND])
    answer = reply(kit, saying("Done."), stream=True)
    met = meet(ask(kit, history, stream=True), [answer], ladder)
    results = [text for _, text in kit.results(met.app.heard[0].body)]
    told = [text for text in results if "went over the same ground" in text]
    assert told == [results[-1]]
    assert "one of 5 recent rounds" in told[0]
    assert met.body == answer.body


@every_dialect
def test_work_is_not_going_over_the_same_ground(kit: DialectKit) -> None:
    """To change something and run the same failing test is none: not a byte is changed."""
    laps = [(("edit_page", at, "Done."), ("run_tests", 0, "Error: one test failed")) for at in range(12)]
    request = ask(kit, rounds_of(*[call for lap in laps for call in lap]), stream=True)
    met = meet(request, [reply(kit, saying("Done."), stream=True)], "chance_then_block")
    assert met.app.heard[0].body == request.body
    assert findings(met) == []


@every_dialect
def test_failing_in_circles_is_told(kit: DialectKit) -> None:
    """To read the same in between is nothing new."""
    laps = [(("read_page", 0, "Page x"), ("edit_page", at + 1, "Error: the text is not there")) for at in range(LIMIT)]
    request = ask(kit, rounds_of(*[call for lap in laps for call in lap]), stream=True)
    met = meet(request, [reply(kit, saying("Done."), stream=True)], "block")
    results = [text for _, text in kit.results(met.app.heard[0].body)]
    assert [f"round {LIMIT} in which" in text for text in results] == [False] * (2 * LIMIT - 1) + [True]


@every_dialect
@pytest.mark.parametrize(
    ("ladder", "answer", "is_told"),
    [
        ("chance_then_block", None, True),
        ("chance_then_block", "allow", False),
        ("chance_then_block", "observe", False),
        ("chance_then_block", "block", True),
        ("observe", "warn", True),
    ],
)
def test_a_callback_decides_first(kit: DialectKit, ladder: str, answer: str | None, *, is_told: bool) -> None:
    """It sees the finding before the model does, once, and what it decides holds for later requests."""
    seen: list[LoopEvent] = []

    def on_loop(found: LoopEvent) -> str | None:
        seen.append(found)
        return answer

    async def talk(session: Session) -> None:
        for rounds in (LIMIT, LIMIT, LIMIT + 1):
            request = ask(kit, failing(rounds), stream=True)
            await session.exchange(request, reply(kit, saying(next_call(rounds)), stream=True))

    first, again, later = in_session(talk, ladder, on_loop=on_loop).meetings
    assert [found.finding.kind for found in seen] == ["same_error", "same_error"]
    for at, (met, count) in enumerate(((first, 1), (again, 1), (later, 2))):
        told = [MARK in text for _, text in kit.results(met.app.heard[0].body)]
        assert (at, told) == (at, [False] * (LIMIT - 1) + [is_told] * count)

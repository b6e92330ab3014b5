"""What a log of observing tells, counted, and what follows from it."""

import json
from typing import Any

import pytest

from callfuse import __version__
from callfuse.config import load_config
from callfuse.offline import observed as room
from callfuse.offline.advice import LEAST_EXCHANGES, LEAST_SESSIONS, advise, report_lines, report_object
from callfuse.offline.observed import Observed

SETTINGS = load_config(None, env={}).tool_call_loop


def exchange(session: str = "s1", cause: str = "", status: int = 200, **more: Any) -> bytes:
    """The line of an exchange."""
    given = {"logger": "callfuse.access", "time": "2026-03-01T12:00:00.000Z", "message": "openai-chat 200, ..."}
    given |= {"gen_ai.conversation.id": session, "callfuse.cause": cause, "http.response.status_code": status}  # type: ignore[dict-item]
    return json.dumps(given | more).encode()


def finding(
    count: int = 3,
    *,
    session: str = "s1",
    kind: str = "repeat",
    tool: str = "search",
    would: str = "steer",
    id_: str = "f",
    call: str = "search:{}",
    action: str = "observe",
) -> bytes:
    """The line of a finding."""
    given = {
        "logger": "callfuse",
        "time": "2026-03-02T12:00:00.000Z",
        "message": "Tool call loop detected",
        "gen_ai.conversation.id": session,
        "callfuse.lane": session,
        "gen_ai.tool.name": tool,
        "callfuse.finding.id": id_,
        "callfuse.finding.kind": kind,
        "callfuse.finding.count": count,
        "callfuse.action": action,
        "callfuse.call": call,
    }
    return json.dumps(given | ({"callfuse.would": would} if would else {})).encode()


def rating(id_: str, said: str) -> bytes:
    """The line of a rating."""
    return json.dumps({"logger": "callfuse", "callfuse.finding.id": id_, "callfuse.kind": said}).encode()


def told(*lines: bytes, enough: bool = False) -> Observed:
    """What lines tell; `enough`: after many exchanges in which nothing was found."""
    found = Observed()
    for number in range(LEAST_EXCHANGES if enough else 0):
        found.take(exchange(f"quiet {number % (5 * LEAST_SESSIONS)}"))
    for line in lines:
        found.take(line)
    return found


def test_exchanges_and_sessions() -> None:
    """Lines of others, and what is no JSON, are left out; an upstream's error is no cause of callfuse's."""
    found = told(
        exchange("a"),
        exchange("a", "no tools"),
        exchange("b", "content-encoding"),
        exchange("b", "content-type", 500),
        b'{"logger": "uvicorn", "message": "x"}',
        b"no json",
        b"[1]",
        b'{"logger": 3}',
        b'{"logger": "callfuse", "message": "callfuse failed open in session s: x"}',
    )
    assert (found.exchanges, len(found.sessions), found.failed_open) == (4, 2, 1)
    assert found.unguarded == {"content-encoding": 1}


def test_a_loop_is_counted_once() -> None:
    """However often it goes on; one that begins anew, of another call or in another session is another one."""
    found = told(
        finding(3, would="steer"),
        finding(4, would="block"),
        finding(5, would="block", id_="longest"),
        finding(3, would="steer"),
        finding(3, would="steer", call="search:{1}"),
        finding(3, would="steer", session="s2"),
    )
    assert (found.loops, found.would, len(found.looping)) == (4, {"steer": 4}, 2)
    (row,) = found.of_tool.values()
    assert (row.loops, row.calls, row.longest, row.example, found.withheld) == (4, 6, 5, "longest", 6)


def test_calls_of_one_lap_are_one_loop() -> None:
    """They share a count, and each has its own arguments."""
    found = told(*[finding(n // 2, kind="cycle", call=f"search:{n % 2}", would="block") for n in range(4, 10)])
    assert (found.loops, found.withheld) == (1, 6)


def test_a_warning_withholds_nothing() -> None:
    """But it is acting."""
    found = told(finding(kind="same_error", would="warn"))
    assert (found.loops, found.withheld, found.would) == (1, 0, {"warn": 1})


def test_what_is_observed_all_the_same_is_no_loop() -> None:
    """Nor what was acted on."""
    found = told(finding(would=""), finding(would="", action="block"), finding(would="made up"))
    assert (found.loops, found.acted, found.of_tool) == (0, 1, {})


def test_the_last_rating_counts() -> None:
    """Of findings that the log has."""
    found = told(finding(id_="a"), rating("a", "false_positive"), rating("a", "true_positive"), rating("b", "too_late"))
    feedback = found.feedback()
    assert [(one.feedback, one.kind, one.tool, one.count) for one in feedback.said] == [
        ("true_positive", "repeat", "search", 3)
    ]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names, sessions and ids there are."""
    for limit in ("MOST_LOOPS", "MOST_FINDINGS", "MOST_SESSIONS", "_MOST_NAMES"):
        monkeypatch.setattr(room, limit, 10)
    found = Observed()
    for n in range(100):
        found.take(exchange(f"s{n}", f"cause {n}"))
        found.take(finding(session=f"s{n}", tool=f"tool {n}", id_=f"id {n}"))
        found.take(rating(f"id {n}", "false_positive"))
    kept = (found.sessions, found.looping, found.unguarded, found.of_tool, found.rated, found._counts, found._found)
    assert max(map(len, kept)) <= 11
    assert (found.exchanges, found.loops) == (100, 100)


@pytest.mark.parametrize(
    ("lines", "enough", "recommendation", "answer"),
    [
        (
            [finding()],
            False,
            "observe",
            "No recommendation: 0 exchanges of 0 sessions are too few; observe until there are 200 of 20.",
        ),
        (
            [],
            True,
            "turn_on",
            "Turn it on (mode: chance_then_block, in tool_call_loop): it would have changed none of 200 exchanges.",
        ),
        (
            [finding(), finding(4, would="block"), finding(session="s2")],
            True,
            "turn_on",
            "Turn it on (mode: chance_then_block, in tool_call_loop), because 2 loops would have been stopped, in 2 of "
            "100 sessions.",
        ),
        (
            [
                *(finding(4, id_="a"), finding(5, session="s2", id_="b")),
                *(rating("a", "false_positive"), rating("b", "true_positive")),
            ],
            True,
            "change",
            "Change this first, because people rated 1 of 2 findings as no loop:",
        ),
        (
            [finding(session=f"s{n}", tool="wait_for") for n in range(12)],
            True,
            "look",
            "Look at this first, because 12 of 12 loops are calls of wait_for, and nobody has rated one.",
        ),
        (
            [finding(session=f"s{n}", tool="wait_for", id_=str(n)) for n in range(12)] + [rating("3", "true_positive")],
            True,
            "turn_on",
            "Turn it on (mode: chance_then_block, in tool_call_loop), because 12 loops would have been stopped, in 12 "
            "of 100 sessions.",
        ),
        (
            [finding(session=f"s{n}", tool=f"tool {n % 7}") for n in range(30)],
            True,
            "look",
            "Look at this first, because 30% of the sessions have a loop, and nobody has rated one.",
        ),
        (
            [exchange(f"s{n}", "content-encoding") for n in range(100)],
            True,
            "change",
            "Change this first, because 33% of the exchanges passed unguarded: content-encoding (100).",
        ),
        ([finding(would="", action="block")], True, "none", "Change nothing: it is on, and has acted on 1 findings."),
    ],
)
def test_the_answer_comes_first(lines: list[bytes], enough: bool, recommendation: str, answer: str) -> None:
    """In one sentence, and in one word for programs."""
    found = told(*lines, enough=enough)
    advice = advise(found, SETTINGS)
    assert (next(report_lines(found, advice)), advice.recommendation) == (answer, recommendation)


def test_what_to_change_is_said_as_a_setting() -> None:
    """Above the finding that was no loop."""
    found = told(finding(4, id_="a"), rating("a", "false_positive"), enough=True)
    assert advise(found, SETTINGS).steps == ("per_tool, search: max_repeats 3 -> 5, for 1 false positive",)


def test_the_figures_follow() -> None:
    """With what its columns mean."""
    found = told(finding(), finding(4, would="block", id_="last"), enough=True)
    lines = [*report_lines(found, advise(found, SETTINGS))]
    assert "  repeat of search, count 4: callfuse feedback last --kind true_positive (or false_positive)" in lines
    assert "From 2026-03-01T12:00:00.000Z to 2026-03-02T12:00:00.000Z:" in lines
    assert "  loops that would have been acted on: 1 (1 by steer, at first)" in lines
    assert "  calls of them that have run and would have been withheld: 2 at most" in lines
    assert [line.split() for line in lines if line.startswith("search ")] == [["search", "repeat", "1", "2", "4"]]
    assert lines[-1].startswith("loops: runs of findings")


def test_the_same_for_programs() -> None:
    """The report as an object; all tools are in it."""
    lines = [finding(), finding(4, would="block", id_="last"), finding(tool="\x1b[2J", session="s2", kind="cycle")]
    found = told(*lines, exchange("s1", "content-encoding"), enough=True)
    shown = report_object(found, advise(found, SETTINGS))
    assert shown.pop("callfuse") == __version__
    assert shown == {
        "recommendation": "turn_on",
        "answer": "Turn it on (mode: chance_then_block, in tool_call_loop), because 2 loops would have been stopped, "
        "in 2 of 101 sessions.",
        "steps": [
            "repeat of search, count 4: callfuse feedback last --kind true_positive (or false_positive)",
            "cycle of \x1b[2J, count 3: callfuse feedback f --kind true_positive (or false_positive)",
        ],
        "from": "2026-03-01T12:00:00.000Z",
        "to": "2026-03-01T12:00:00.000Z",
        "exchanges": 201,
        "sessions": 101,
        "looping_sessions": 2,
        "unguarded": {"content-encoding": 1},
        "failed_open": 0,
        "loops": 2,
        "loops_by_rung": {"steer": 2},
        "withheld_calls": 3,
        "acted_findings": 0,
        "rated_findings": 0,
        "rated_no_loop": 0,
        "tools": [
            {
                "tool": "search",
                "kind": "repeat",
                "loops": 1,
                "findings": 2,
                "withheld": 2,
                "longest": 4,
                "example": "last",
            },
            {
                "tool": "\x1b[2J",
                "kind": "cycle",
                "loops": 1,
                "findings": 1,
                "withheld": 1,
                "longest": 3,
                "example": "f",
            },
        ],
    }

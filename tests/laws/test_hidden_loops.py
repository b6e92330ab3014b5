"""Loops that hide, each with the innocent that looks like it, on the wire.

An agent has made these calls, and the model makes one more. Of a loop the results carry a warning from some execution
on, or the call is withheld and the model asked again; of an innocent neither. The innocents of `test_innocents.py`
are those that are stopped without a reason; here they keep a rule from going too far.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, ask, meet, reply
from tests.support.model import Call, History, Round, User
from tests.support.plain import saying

FIVE: Final = ("openai-chat", "anthropic", "openai-responses", "gemini", "ollama")
TEXT: Final = "src/tally.py:14: total = total + item.price  # no tax"
PODS: Final = "NAME    READY   STATUS    RESTARTS   AGE\nweb-0   {}   0          {}s"
OTHER: Final = Call("call_other", "read", ('{"path": "other"}',))

Turn = User | Round
Made = tuple[str, dict[str, Any], str]
"""A tool, its arguments, its result."""


class Scenario(NamedTuple):
    """What an agent does, execution by execution.

    `lap`: what it does in its lap number n. `laps`: after so many of them it makes the first call of the next lap.
    `warned`: whether the model knows by then. `acted`: after how many laps that call is withheld; 0 where it never is.
    """

    lap: Callable[[int], list[Made | str]]
    laps: int
    warned: bool
    acted: int = 0


def read(at: int = 0) -> Made:
    """The same file once more, which has the same text."""
    return "read", {"path": "tally.py"}, TEXT


def noted(name: str, argument: str) -> Scenario:
    """A note with new text behind each call."""
    return Scenario(lambda at: [read(), (name, {argument: f"step {at}"}, "Noted.")], 6, warned=True, acted=9)


def detail(arguments: Callable[[int], dict[str, Any]], result: str = TEXT, tool: str = "bash") -> Scenario:
    """A call that is different each time, and brings the same."""
    return Scenario(lambda at: [(tool, arguments(at), result.replace("{}", str(at)))], 8, warned=True)


def said(text: Callable[[int], str]) -> Scenario:
    """A message that a harness puts behind the results of each round."""
    return Scenario(lambda at: [read(), text(at)], 2, warned=False, acted=2)


LOOPS: Final = {
    "Continue": said(lambda at: "Continue."),
    "steps are counted": said(lambda at: f"Current step: {at}/50"),
    "a status as JSON": said(lambda at: json.dumps({"step": at, "status": "running"})),
    "a log stands still": Scenario(lambda at: [("tail", {"of": "log"}, "line a")], 2, warned=False, acted=2),
    "rows are written in no order": Scenario(
        lambda at: [("next_row", {}, f"Row {(3, 9, 4, 1, 8, 2, 7)[at]} written.")], 6, warned=True
    ),
    "a page is scrolled, and stays": Scenario(
        lambda at: [("scroll", {"by": 9}, "Scrolled."), ("screenshot", {}, "The end")], 4, warned=True, acted=7
    ),
    "a link is clicked, and nothing opens": Scenario(
        lambda at: [("browser_click", {"ref": "e4"}, "Clicked"), ("browser_snapshot", {}, "Home")],
        4,
        warned=True,
        acted=7,
    ),
    "pods run, and get older": Scenario(
        lambda at: [("bash", {"command": "kubectl get pods"}, PODS.format("1/1     Running", 5 + at * 4))], 6, True
    ),
    "a clock is asked": Scenario(lambda at: [("get_time", {}, f"2026-01-01T10:00:0{at}Z")], 2, False, acted=2),
    "a sensor is stuck": Scenario(lambda at: [("read_sensor", {}, "20.1")], 2, warned=False, acted=2),
    "a mail is sent again": Scenario(lambda at: [("send_email", {"to": "anna"}, "Email sent.")], 2, False, acted=2),
    "a list of tasks": noted("TodoWrite", "todos"),
    "a plan": noted("update_plan", "plan"),
    "a thought": noted("sequentialthinking", "thought"),
    "a report": noted("report_progress", "message"),
    "a memory": noted("memory_store", "text"),
    "one tool fails, another works": Scenario(
        lambda at: [("edit", {"line": at}, "Error: no such method: apply"), ("look", {"at": at}, f"text {at}")], 5, True
    ),
    "two tools fail by turns": Scenario(
        lambda at: [("fetch", {"page": at}, "Error: no token"), ("list", {"page": at}, "Error: no token")], 5, True
    ),
    "edit and test": Scenario(lambda at: [("test", {}, "1 failed: tally"), ("edit", {"line": at}, "ok")], 6, True),
    "white space at the end": detail(lambda at: {"command": "grep -rn total src" + " " * at}),
    "a comment": detail(lambda at: {"command": f"grep -rn total src # try {at}"}),
    "an echo": detail(lambda at: {"command": f"echo {at}; grep -rn total src"}, f"{{}}\n{TEXT}"),
    "capitals": detail(lambda at: {"text": "".join([c.upper() if at >> n & 1 else c for n, c in enumerate("total")])}),
    "attempts are counted": detail(lambda at: {"query": "total", "attempt": at}, tool="search"),
    "reasons are given": detail(
        lambda at: {"query": "total", "explanation": f"Reason {'abcdefghi'[at]}"}, tool="search"
    ),
    "a time is given": detail(lambda at: {"query": "total", "time": f"2026-01-01T10:00:0{at}Z"}, tool="search"),
    "an id is given": detail(lambda at: {"query": "total", "id": f"6f1c2a34-0000-4000-8000-00000000000{at}"}, tool="s"),
}
INNOCENT: Final = {
    "a person says something else": Scenario(lambda at: [read(), f"Now look at it with {'abcdefg'[at]}."], 3, False),
    "something else is done beside a note": Scenario(
        lambda at: [read(), ("TodoWrite", {"todos": f"step {at}"}, "ok"), ("edit", {"line": at}, "ok")], 10, False
    ),
    "notes are taken of what is new": Scenario(
        lambda at: [("read", {"path": f"{at}.py"}, f"text {at}"), ("TodoWrite", {"todos": f"step {at}"}, "ok")],
        12,
        False,
    ),
    "notes are taken while something runs": Scenario(
        lambda at: [("job", {"id": 1}, "Status: running"), ("TodoWrite", {"todos": f"step {at}"}, "ok")], 10, False
    ),
    "a tool fails in other ways": Scenario(
        lambda at: [
            ("edit", {"line": at}, f"Error: {'abcdefgh'[at] * 4} is amiss"),
            ("look", {"at": at}, f"text {at}"),
        ],
        7,
        False,
    ),
    "a test fails after each edit in another way": Scenario(
        lambda at: [("test", {}, f"{9 - at} failed: tally"), ("edit", {"line": at}, "ok")], 7, False
    ),
    "other commands": Scenario(lambda at: [("bash", {"command": f"grep -rn total src/{at}"}, TEXT)], 9, False),
    "an echo does something else": Scenario(
        lambda at: [("bash", {"command": f"echo {at}; rm -r build{at}"}, "done")], 9, False
    ),
    "pages are counted": Scenario(
        lambda at: [("search", {"query": "total", "page": at}, f"{TEXT} on page {at}")], 12, False
    ),
    "rooms are asked for": Scenario(lambda at: [("room", {"number": at, "day": "Monday"}, "available")], 12, False),
    "a log grows": Scenario(
        lambda at: [("tail", {"of": "log"}, "\n".join([f"line {'abcdefghijkl'[n]}" for n in range(at + 1)]))], 11, False
    ),
    "rows are written": Scenario(lambda at: [("next_row", {}, f"Row {at + 1} written.")], 12, False),
    "a page is scrolled and looked at": Scenario(
        lambda at: [("scroll", {"by": 9}, "Scrolled."), ("screenshot", {}, f"{'abcdefghijkl'[at]} in view")], 3, False
    ),
    "screenshots differ": Scenario(
        lambda at: [("undo", {}, "ok"), ("screenshot", {}, f"{'abcdefghijkl'[at]} in view")], 11, False
    ),
    "fields are filled in": Scenario(
        lambda at: [("press_key", {"key": "Tab"}, "Pressed Tab"), ("type_text", {"text": f"field {at}"}, "ok")],
        12,
        False,
    ),
    "a mail is sent to each": Scenario(
        lambda at: [("send_email", {"to": f"{'abcdefghijkl'[at]}@example.com"}, "Email sent.")], 11, False
    ),
    "a mail is asked for each time": Scenario(
        lambda at: [("send_email", {"to": "anna"}, "Email sent."), f"Thanks, {'abcdef'[at]}. Send it once more."],
        5,
        False,
    ),
    "a person is asked": Scenario(lambda at: [("ask_user", {"question": "Go on?"}, "yes")], 12, False),
    "files are written": Scenario(lambda at: [("write_file", {"path": f"{at}", "text": "-"}, TEXT)], 12, False),
}

five_dialects = pytest.mark.parametrize("kit", [one for one in KITS if one.name in FIVE], ids=lambda kit: kit.name)


def call_of(made: Made, number: int) -> Call:
    """The call with an id of its own."""
    name, arguments, _ = made
    return Call(f"call_{number}", name, (json.dumps(arguments),))


def met(kit: DialectKit, scenario: Scenario, laps: int) -> Meeting:
    """The model makes the first call of a lap after so many, and another where it is asked again."""
    turns: list[Turn] = [User("See to the total.")]
    for made in [one for at in range(laps) for one in scenario.lap(at)]:
        turns.append(User(made) if isinstance(made, str) else Round((call_of(made, len(turns)),), (made[2],)))
    first = scenario.lap(laps)[0]
    assert not isinstance(first, str)
    replies = [reply(kit, saying(one, tag=one.id), stream=True) for one in (call_of(first, len(turns)), OTHER)]
    detectors = {"unknown_tool": False, "no_effect": True}
    return meet(ask(kit, History(tuple(turns)), stream=True), replies, "chance_then_block", detectors=detectors)


def is_warned(kit: DialectKit, meeting: Meeting) -> bool:
    """Whether a result that the model sees carries a text of callfuse."""
    return any(MARK in text for _, text in kit.results(meeting.app.heard[0].body))


def is_acted_on(meeting: Meeting) -> bool:
    """Whether the model was asked again, or the call blocked."""
    return len(meeting.app.heard) > 1 or MARK.encode() in meeting.body


@five_dialects
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_found(kit: DialectKit, name: str) -> None:
    """The model is warned of it in time, or its call withheld, and not before."""
    loop = LOOPS[name]
    if loop.warned:
        assert is_warned(kit, met(kit, loop, loop.laps))
    if loop.acted:
        assert is_acted_on(met(kit, loop, loop.acted))
        assert not is_acted_on(met(kit, loop, loop.acted - 1))
    else:
        assert not is_acted_on(met(kit, loop, loop.laps))


@five_dialects
@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_is_let_go(kit: DialectKit, name: str) -> None:
    """However far it has come, nothing is said of it."""
    meeting = met(kit, INNOCENT[name], INNOCENT[name].laps)
    assert not is_acted_on(meeting)
    assert not is_warned(kit, meeting)

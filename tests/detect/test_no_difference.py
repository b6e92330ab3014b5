"""`no_difference`, rule by rule: calls that differ in a detail only, and bring the same result."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from callfuse.detect import Engine
from callfuse.model import Finding, PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.support.work import lines_run

TEXT: Final = "src/tally.py:14: total = total + item.price  # no tax"
"""A result that says something."""
Arguments = Callable[[int], dict[str, Any]]


def timeline(calls: Sequence[tuple[str, Any, str]], step: float = 1.0) -> Timeline:
    """Rounds of one call each: tool, arguments and result, oldest first."""
    rounds = []
    for at, (name, arguments, result) in enumerate(calls):
        call = ToolCall(f"id{at}", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        rounds.append(Round((PastCall(call, Result(result)),), 1 + 2 * at, at * step))
    return Timeline(rounds[::-1], len(rounds) * step)


def found(calls: Sequence[tuple[str, Any, str]], step: float = 1.0, **detectors: object) -> Finding | None:
    """What the results of these calls show."""
    alone = {"same_error": False, "failing_tool": False, "known_pairs": False, "no_effect": False}
    settings = LoopSettings.model_validate({"detectors": alone | detectors})
    return next(Engine(timeline(calls, step), settings).hindsights(), None)


def made(arguments: Arguments, result: str = TEXT, of: int = 8, name: str = "bash") -> list[tuple[str, Any, str]]:
    """So many calls; `{}` in a result is the number of the call."""
    return [(name, arguments(at), result.replace("{}", str(at))) for at in range(of)]


COMMANDS: Final[dict[str, Arguments]] = {
    "white space at the end": lambda at: {"command": "grep -rn total src" + " " * at},
    "white space inside": lambda at: {"command": f"grep{' ' * (at + 1)}-rn total src"},
    "a comment": lambda at: {"command": f"grep -rn total src # try {at}"},
    "a comment in a line of its own": lambda at: {"command": f"# try {at}\ngrep -rn total src"},
    "a comment behind a semicolon": lambda at: {"command": f"grep -rn total src; # {at}"},
    "nothing is done before": lambda at: {"command": ": ;" * at + "grep -rn total src"},
    "capitals": lambda at: {"command": "".join([c.upper() if at >> n & 1 else c for n, c in enumerate("grep -rn x")])},
}
ARGUMENTS: Final[dict[str, Arguments]] = {
    "a number of the attempt": lambda at: {"query": "total", "attempt": at},
    "a reason": lambda at: {"query": "total", "explanation": f"Look for the total, for reason {'abcdefgh'[at]}."},
    "a time": lambda at: {"query": "total", "timestamp": f"2026-01-01T10:00:0{at}Z"},
    "an id": lambda at: {"query": "total", "request_id": str(UUID(int=77 ** (at + 1)))},
    "one that is there now and then": lambda at: {"query": "total", **({"depth": at} if at else {})},
    "an object": lambda at: {"query": "total", "options": {"try": at}},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_differs_in_a_detail(name: str) -> None:
    """From the eighth on."""
    calls = made(COMMANDS[name])
    assert found(calls[:-1]) is None
    finding = found(calls)
    assert finding is not None
    assert (finding.kind, finding.tool, finding.count, finding.threshold) == ("no_difference", "bash", 8, 8)
    assert not finding.hard
    assert finding.calls == tuple(f"id{at}" for at in range(8))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_no_result_follows(name: str) -> None:
    """One of several, whichever."""
    calls = made(ARGUMENTS[name], name="search")
    assert found(calls[:-1]) is None
    assert found(calls)


def test_what_an_echo_says_is_no_result() -> None:
    """It stands before the rest of the output, and moves with the command."""
    assert found(made(lambda at: {"command": f"echo {at}; grep -rn total src"}, f"{{}}\n{TEXT}"))
    assert found(made(lambda at: {"command": f"echo 'try {at}' && grep -rn total src"}, f"try {{}}\n{TEXT}"))
    assert not found(made(lambda at: {"command": f"echo {at}; true"}, "{}"))
    assert not found(made(lambda at: {"command": f"echo {at}; grep -rn total src"}, f"{{}}\n{TEXT} {{}}"))


INNOCENT: Final[dict[str, list[tuple[str, Any, str]]]] = {
    "results that move": made(ARGUMENTS["a number of the attempt"], f"{TEXT} {{}}", name="search"),
    "other commands": made(lambda at: {"command": f"grep -rn total src/{at}"}),
    "other commands with a time limit": made(lambda at: {"command": f"grep -rn total src/{at}", "timeout": 9}),
    "what follows an echo": made(lambda at: {"command": f"echo {at}; rm -r build{at}"}),
    "what an echo writes": made(lambda at: {"command": f"echo {at} >> log; cat x"}),
    "nothing but comments": made(lambda at: {"command": f"# step {at}"}),
    "a mark in a text": made(lambda at: {"command": f"grep '# {at}' src"}),
    "the only argument": made(lambda at: {"path": f"{at}.py"}, name="look"),
    "yes and no": made(lambda at: {"room": at, "day": "Monday"}, "available", name="look"),
    "nothing found": made(lambda at: {"query": f"q{at}", "limit": 9}, "No results found", name="search"),
    "errors": made(lambda at: {"query": f"q{at}", "limit": 9}, f"Error: {TEXT}", name="search"),
    "files that are written": made(lambda at: {"path": f"{at}.py", "text": "-"}, TEXT, name="write_file"),
    "two arguments": made(lambda at: {"x": at, "y": -at, "of": "map"}, TEXT, name="look"),
    "one argument, then another": [
        *made(lambda at: {"x": at, "y": 0}, of=6, name="look"),
        *made(lambda at: {"x": 0, "y": at + 9}, of=6, name="look"),
    ],
    "clicks": made(lambda at: {"x": at, "button": "left"}, TEXT, name="click"),
    "a poller": made(lambda at: {"id": "build", "attempt": at}, TEXT, name="wait_for_job"),
    "what runs": made(lambda at: {"id": "build", "attempt": at}, '{"status": "running", "job": "the build 4711"}'),
    "a few alike, often": made(lambda at: {"command": f"ls src # {at % 7}"}, of=20),
    "no object": [("bash", f"[{at}]", TEXT) for at in range(9)],
    "no JSON": [("bash", f"ls {at * ' '}", TEXT) for at in range(9)],
    "long ones": made(lambda at: {"command": "x" * 4096 + " " * at}),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_looks_like_it(name: str) -> None:
    """Nothing is found."""
    assert found(INNOCENT[name]) is None


def test_what_is_changed_differs_in_white_space_only() -> None:
    """A message that is sent again, padded."""
    assert found(made(lambda at: {"to": "all", "text": "Hello" + " " * at}, "Sent.", name="send_message"))
    assert not found(made(lambda at: {"to": "all", "text": f"Hello {at}"}, TEXT, name="send_message"))


def test_other_tools_do_not_matter() -> None:
    """What they do in between is no news of this one; its own other calls are."""
    calls = made(COMMANDS["a comment"])
    between = [one for at, call in enumerate(calls) for one in (("look", {"path": f"{at}.py"}, f"text {at}"), call)]
    assert found(between)
    own = [one for at, call in enumerate(calls) for one in (("bash", {"command": f"cat {at}"}, f"text {at}"), call)]
    assert not found(own)


def test_a_batch_says_nothing() -> None:
    """Several calls of the tool in one answer were made in ignorance of one another."""
    made_one_by_one = timeline(made(ARGUMENTS["a number of the attempt"], name="search")).rounds[::-1]
    whole = Round(tuple([one for round_ in made_one_by_one for one in round_.calls]), 1)
    assert next(Engine(Timeline([whole]), LoopSettings()).hindsights(), None) is None


def test_a_pause_ends_it() -> None:
    """Longer than `ttl_seconds`."""
    assert found(made(COMMANDS["a comment"]), step=299.0)
    assert not found(made(COMMANDS["a comment"]), step=301.0)


def test_settings() -> None:
    """Off, another limit."""
    assert not found(made(COMMANDS["a comment"]), no_difference=False)
    assert not found(made(COMMANDS["a comment"]), no_difference=9)
    assert found(made(COMMANDS["a comment"], of=3), no_difference=3)


def test_it_is_read_in_linear_time() -> None:
    """However often, and however the arguments are made."""

    def work(size: int) -> int:
        calls = made(lambda at: {"command": "echo 1;" * 9 + f"ls # {at}", "n": "# " * size}, of=size)
        past = timeline(calls)
        return lines_run(lambda: [*Engine(past, LoopSettings()).hindsights()])

    work(10)
    assert work(400) < 6 * work(100)

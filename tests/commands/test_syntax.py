"""What is a command in a text, and what is left of the text."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.commands import Command, parse_commands
from tests.support.examples import more_examples

SET = Command("set", (("tool-loop-mode", "break"),))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("!/set(tool-loop-detection=true)", [("tool-loop-detection", "true")]),
        ("!/set(tool-loop-max-repeats=4)", [("tool-loop-max-repeats", "4")]),
        ("!/set(tool-loop-ttl=120)", [("tool-loop-ttl", "120")]),
        ("!/set(tool-loop-mode=chance_then_break)", [("tool-loop-mode", "chance_then_break")]),
        ("!/set(tool_loop_detection_enabled=true)", [("tool_loop_detection_enabled", "true")]),
        ('!/set(tool_loop_mode="chance_then_block")', [("tool_loop_mode", "chance_then_block")]),
        ("!/set(tool_loop_mode='chance')", [("tool_loop_mode", "chance")]),
        ("!/set(tool_loop_mode=\u201cchance\u201d)", [("tool_loop_mode", "chance")]),
        ("!/set(tool_loop_mode=\u2018chance\u2019)", [("tool_loop_mode", "chance")]),
        ("!/SET(Tool-Loop-Mode=break)", [("tool-loop-mode", "break")]),
        ("!/set ( tool-loop-mode = break , tool-loop-ttl = 9 )", [("tool-loop-mode", "break"), ("tool-loop-ttl", "9")]),
        ("!/set(a=)", [("a", "")]),
        ("!/set()", []),
        ("!/set", []),
    ],
)
def test_set(text: str, arguments: list[tuple[str, str]]) -> None:
    """Both spellings, quotes or none, any case, blanks, several keys."""
    typed = parse_commands(text, "!/")
    assert typed.commands == (Command("set", tuple(arguments)),)
    assert typed.only_commands
    assert typed.rest == ""


def test_unset_status_help() -> None:
    """Keys without values, and names without parentheses."""
    typed = parse_commands("!/unset(tool-loop-ttl, tool-loop-mode) !/status !/help()", "!/")
    assert typed.commands == (
        Command("unset", (("tool-loop-ttl", None), ("tool-loop-mode", None))),
        Command("status"),
        Command("help"),
    )


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Please !/set(tool-loop-mode=break) go on.", "Please go on."),
        ("!/set(tool-loop-mode=break) Go on.", "Go on."),
        ("Go on. !/set(tool-loop-mode=break)", "Go on."),
        ("One.\n!/set(tool-loop-mode=break)\nTwo.", "One.\nTwo."),
        ("One.\n\n  !/set(tool-loop-mode=break)  \n\nTwo.", "One.\n\n\nTwo."),
        ("!/set(tool-loop-mode=break)\nTwo.", "Two."),
        ("One.\r\n!/set(tool-loop-mode=break)\r\nTwo.", "One.\r\nTwo."),
        ("One,!/set(tool-loop-mode=break)", None),
    ],
)
def test_the_text_around_stays(text: str, rest: str | None) -> None:
    """A line that held nothing else goes, and no blank is doubled."""
    typed = parse_commands(text, "!/")
    assert typed.commands == (() if rest is None else (SET,))
    assert typed.rest == (text if rest is None else rest)
    assert not typed.only_commands


@pytest.mark.parametrize(
    "text",
    [
        "> !/set(tool-loop-mode=break)",
        "`!/set(tool-loop-mode=break)`",
        "```\n!/set(tool-loop-mode=break)\n```",
        "~~~ sh\n!/set(tool-loop-mode=break)\n~~~~\nbye",
        "```\n!/set(tool-loop-mode=break)",
        "````md\n```\n!/set(tool-loop-mode=break)\n```\n````",
        "- ```\n  !/set(tool-loop-mode=break)\n  ```",
        "2. > ```\n   > !/help\n   > ```\n",
        "Run: ```\n!/set(tool-loop-mode=break)\n``` please",
        "Run ```!/help``` please",
        "```\r\n!/set(tool-loop-mode=break)\r\n```\r\nbye",
        "http://x!/set(tool-loop-mode=break)",
        "!/settle this",
        "!/status-quo",
        "!/ set(tool-loop-mode=break)",
        "!/frobnicate",
        "!/settle",
        "What is !/hepl",
        "!/hepl me",
        "",
    ],
)
def test_what_is_no_command(text: str) -> None:
    """Quoted lines, code, words, and what goes on without a space."""
    assert parse_commands(text, "!/").commands == ()
    assert parse_commands(text, "!/").rest == text


@pytest.mark.parametrize(
    "quoted",
    [
        "> As you said.",
        ">",
        "`!/help`",
        "```\n!/help\n```",
        "``` sh\r\n!/help\r\n```\r",
        "~~~\n```\n~~~",
        "````\n```\n````",
        "- ```\n  !/help\n  ```",
        "Run ```!/help```",
    ],
)
def test_quotes_end(quoted: str) -> None:
    """What stands below a quoted line, or below a closed fence, is typed again."""
    typed = parse_commands(f"{quoted}\n!/set(tool-loop-mode=break)\nGo on.", "!/")
    assert typed.commands == (SET,)
    assert typed.rest == f"{quoted}\nGo on."


@pytest.mark.parametrize(("text", "name"), [("!/hepl", "hepl"), ("Go on.\n !/Statsu \n", "statsu"), ("!/uset", "uset")])
def test_a_slip_may_stand_alone(text: str, name: str) -> None:
    """A letter from a known name, in a line of its own: the answer says which was meant."""
    assert parse_commands(text, "!/").commands == (Command(name),)


def test_a_slip_is_told() -> None:
    """An unknown name with parentheses, and parentheses that cannot be read."""
    assert parse_commands("!/sett(tool-loop-mode=break)", "!/").commands[0].name == "sett"
    assert parse_commands("!/set(=x)", "!/").commands[0].broken


def test_another_prefix() -> None:
    """Whatever it is, it is no pattern."""
    assert parse_commands("$.set(tool-loop-mode=break)", "$.").commands == (SET,)
    assert parse_commands("$.set(tool-loop-mode=break)", "!/").commands == ()


@more_examples(5)
@given(st.text(alphabet="!/set(a=b)\n `>\"', ", max_size=60))
def test_nothing_is_made_up(text: str) -> None:
    """What is left was in the text, in its order, and has no command in it that the text did not quote."""
    typed = parse_commands(text, "!/")
    rest = iter(text)
    assert all(char in rest for char in typed.rest)
    assert typed.commands or typed.rest == text


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python some work runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """However many quotes and commands it has: ten times the text is ten times the work, and not a hundred times."""
    text = "!/help `!/help` x !/help\n"
    assert len(parse_commands(text * 500, "!/").commands) == 1000
    assert lines_run(lambda: parse_commands(text * 1000, "!/")) < 12 * lines_run(
        lambda: parse_commands(text * 100, "!/")
    )

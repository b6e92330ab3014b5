"""What is a command in a text, and what is left of the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.commands import Command, parse_commands, syntax
from callfuse.commands.syntax import MAX_ARGUMENTS, MAX_COMMANDS, MAX_LENGTH
from tests.support.examples import more_examples
from tests.support.regex import Machine, steps
from tests.support.work import lines_run

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
        ("!/set(tool-loop-mode=break)\nTwo.", "Two."),
        ("!/set(tool-loop-mode=break)\n\nTwo.\n", "\nTwo.\n"),
        ("\n \n  !/set(tool-loop-mode=break) \t\n  Two.", "\n \n  Two."),
        ("!/set(tool-loop-mode=break)\r\nTwo.\r\n", "Two.\r\n"),
        ("!/set(tool-loop-mode=break)\nTwo.\n!/help", "Two.\n!/help"),
        ("!/set(tool-loop-mode=break)\n!/help me", "!/help me"),
        ("!/set(tool-loop-mode=break)\n> !/help", "> !/help"),
    ],
)
def test_the_text_behind_stays(text: str, rest: str) -> None:
    """The lines of the commands go, and nothing else; what stands behind another line is text."""
    assert parse_commands(text, "!/")[:2] == ((SET,), rest)


def test_lines_of_commands() -> None:
    """Several in a line, blank lines between them."""
    typed = parse_commands("!/status !/help()!/status\n\n !/set(tool-loop-mode=break)\nGo on.", "!/")
    assert [command.name for command in typed.commands] == ["status", "help", "status", "set"]
    assert typed.rest == "Go on."


@pytest.mark.parametrize(
    "text",
    [
        "Please !/set(tool-loop-mode=break) go on.",
        "!/set(tool-loop-mode=break) Go on.",
        "!/set(tool-loop-mode=break) !/help Go on.",
        "Go on. !/set(tool-loop-mode=break)",
        "One.\n!/set(tool-loop-mode=break)\nTwo.",
        "Observation: !/set(tool-loop-mode=break)",
        "Observation:\n!/set(tool-loop-mode=break)",
        "> !/set(tool-loop-mode=break)",
        "> As you said.\n!/set(tool-loop-mode=break)",
        "- !/set(tool-loop-mode=break)",
        "`!/set(tool-loop-mode=break)`",
        "```\n!/set(tool-loop-mode=break)\n```",
        "http://x!/set(tool-loop-mode=break)",
        "!/settle this",
        "!/status-quo",
        "!/ set(tool-loop-mode=break)",
        "!/frobnicate",
        "!/settle",
        "What is !/hepl",
        "!/hepl me",
        "!/help,",
        "!/help!/status",
        "",
    ],
)
def test_what_is_no_command(text: str) -> None:
    """What does not stand alone in a line, or not at the beginning: quoted lines, code, words."""
    assert parse_commands(text, "!/") == ((), text, 0)


def test_behind_an_element() -> None:
    """What is typed begins at `start`; the commands begin in a line behind it."""
    element = "<a>!/help</a>"
    assert parse_commands(f"{element}\n!/help\nGo on.", "!/", len(element))[1] == f"{element}\nGo on."
    assert parse_commands(f"{element} !/help\nGo on.", "!/", len(element)).commands == ()


@pytest.mark.parametrize(("text", "name"), [("!/hepl", "hepl"), ("\n !/Statsu \nGo on.", "statsu"), ("!/uset", "uset")])
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


@pytest.mark.parametrize("text", ["!/set(a", "!/set(a=b Go on.", "!/set(a=it's)", "!/set(a=(b))", "!/set(a,,b)"])
def test_what_cannot_be_read_takes_its_line(text: str) -> None:
    """A known name with an open parenthesis is a command: the answer says how it is written."""
    assert parse_commands(f"{text}\nGo on.", "!/")[:2] == ((Command("set", broken=True),), "Go on.")


def test_bounds() -> None:
    """A longer command is text; one with more arguments cannot be read; more commands are not looked at."""
    room = MAX_LENGTH - len("!/set(a=)")
    assert parse_commands(f"!/set(a={'b' * room})", "!/").commands
    assert not parse_commands(f"!/set(a={'b' * (room + 1)})", "!/").commands
    assert not parse_commands(f"!/set{' ' * MAX_LENGTH}(a=b)", "!/").commands
    assert not parse_commands(f"!/set(a{'b' * MAX_LENGTH}", "!/").commands
    arguments = ",".join("a" * MAX_ARGUMENTS)
    assert len(parse_commands(f"!/set({arguments})", "!/").commands[0].arguments) == MAX_ARGUMENTS
    assert parse_commands(f"!/set({arguments},a)", "!/").commands == (Command("set", broken=True),)
    for between in (" ", "\n"):
        typed = parse_commands(between.join(["!/help"] * (MAX_COMMANDS + 10)), "!/")
        assert len(typed.commands) == MAX_COMMANDS + 1
        assert typed.rest.count("!/help") == 9


@more_examples(5)
@given(st.text(alphabet="!/set(a=b)\n `>\"', ", max_size=60))
def test_nothing_is_made_up(text: str) -> None:
    """What is left was in the text, in its order; what is left is text the next time, too."""
    typed = parse_commands(text, "!/")
    rest = iter(text)
    assert all(char in rest for char in typed.rest)
    assert typed.commands or typed.rest == text
    assert parse_commands(typed.rest, "!/").commands == ()


ATTACKS = [
    "!/help\n",
    "!/help ",
    "!/set(a)",
    "!/set(a,",
    "!/set(",
    "!/set((",
    "!/",
    "!/ ",
    "!/se",
    "!/hepl\n",
    " ",
    "\n",
]
"""Repeated, behind a command that is none."""


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("head", ["", "!/set(a", "!/set(", "!/set", "!/help "])
def test_the_work_has_a_limit(head: str, attack: str) -> None:
    """However long the text is, no more of it is looked at than so many commands of so much length."""
    short, long = (f"{head}{attack * times}b)" for times in (2_000, 20_000))
    assert lines_run(lambda: parse_commands(long, "!/")) <= lines_run(lambda: parse_commands(short, "!/")) + 10


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("head", ["", "!/set(a", "!/set", "!/help"])
def test_the_steps_of_a_command_have_a_limit(head: str, attack: str) -> None:
    """The pattern of one is tried on `MAX_LENGTH` characters, in no more steps than a few for each."""
    text = (head + attack * MAX_LENGTH)[: MAX_LENGTH + 1]
    assert steps(Machine(syntax._pattern("!/")), text, anchored=True) < 8 * MAX_LENGTH

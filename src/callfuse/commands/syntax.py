"""Parse commands: `!/set(tool-loop-mode=break, tool-loop-ttl="120")`, `!/unset(tool-loop-ttl)`, `!/status`, `!/help`.

Commands count only at the beginning of a text, in lines that contain nothing else; a line may have any number of them.
Everything after the first other line is text, even if it looks like a command. Names may be in any case; quotes of
either kind are optional. A known name needs no parentheses. An unknown name is a mistyped command if it has
parentheses, or if it ends its line and differs from a known name by one letter; else it is plain text.

The cost is bounded by `MAX_LENGTH`, `MAX_ARGUMENTS` and `MAX_COMMANDS`.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from rapidfuzz.distance import OSA

from callfuse.memo import remembered

NAMES: Final = ("set", "unset", "status", "help")

MAX_LENGTH: Final = 500
"""The most characters of a command; all keys with their longest values need 130. A longer one is text."""
MAX_ARGUMENTS: Final = 16
"""The most arguments of a command; there are four keys. A command with more is broken."""
MAX_COMMANDS: Final = 50
"""The most commands of one message that are run. One more is parsed, so that it can be refused."""

_ARGUMENTS: Final = r"""\(((?:"[^"\n]*+"|'[^'\n]*+'|[^()"'\n]++)*+)\)"""
_NAME: Final = r"[\w-]{1,40}+"
_PIECE: Final = re.compile(r"""(?:"[^"]*+"|'[^']*+'|[^,"'])++|,""")
_ARGUMENT: Final = re.compile(r"""([^=,"'\s]++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^,"']*+))?+""")
_SPACE: Final = re.compile(r"\s*+")
_BLANKS: Final = re.compile(r"[ \t\r]*+")

_QUOTES: Final = "\"'\u201c\u201d\u2018\u2019"
"""Quotes around a value; phones and word processors make them curly."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name in lower case, and its arguments; the value of an argument without `=` is None.

    `broken`: the text between the parentheses cannot be parsed.
    """

    name: str
    arguments: tuple[tuple[str, str | None], ...] = ()
    broken: bool = False


class ParsedText(NamedTuple):
    """The commands of a text, and the text without them. `at`: where in `rest` they were, or could have been."""

    commands: tuple[Command, ...]
    rest: str
    at: int = 0


def may_begin(text: str, prefix: str, start: int = 0) -> bool:
    """Whether the text typed from `start` on begins with the prefix; otherwise it has no commands."""
    return text.startswith(prefix, _end_of(_SPACE, text, start))


def parse_commands(text: str, prefix: str, start: int = 0, most: int = MAX_COMMANDS + 1) -> ParsedText:
    """Parse the commands, each beginning with `prefix`, of the lines from `start` on; at most `most` of them.

    `start` is 0, or the end of other text before the typed text; then the commands must begin in a new line. Raises
    nothing.
    """
    commands: list[Command] = []
    first = end = _next_line(text, start)
    at = _end_of(_SPACE, text, first)
    while text.startswith(prefix[0], at) and len(commands) < most:
        found, after = _read_line(_pattern(prefix), text, at, most - len(commands))
        if not found:
            break
        commands += found
        end = after
        at = _end_of(_SPACE, text, end)
    if not commands:
        return ParsedText((), text, start)
    return ParsedText(tuple(commands), text[:first] + text[end:], first)


def _next_line(text: str, start: int) -> int:
    """Return where the first line after `start` begins that is not blank. If text follows in the line of `start`,
    return 0 if `start` is 0, else the end of the text."""
    here = _end_of(_SPACE, text, start)
    line = text.rfind("\n", start, here) + 1
    return line or (len(text) if start else 0)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


@remembered(entries=16, longest=256)
def _pattern(prefix: str) -> re.Pattern[str]:
    """Return the pattern of one command. Operators set the prefix, so there are few different ones."""
    known = "|".join(NAMES)
    return re.compile(
        rf"{re.escape(prefix)}"
        rf"(?:(?P<name>{known})(?![\w-])(?:[ \t]*+(?:{_ARGUMENTS}|(?P<broken>\([^\n]*+)))?+"
        rf"|(?P<slip>{_NAME})[ \t]*+{_ARGUMENTS}"
        rf"|(?P<alone>{_NAME})(?=[ \t\r]*+(?:\n|\Z)))",
        re.IGNORECASE,
    )


def _read_line(pattern: re.Pattern[str], text: str, at: int, most: int) -> tuple[list[Command], int]:
    """Return the commands of the line that begins at `at`, and the end of the line. No commands if the line contains
    anything else.

    The line is read up to the end of the last of `most` commands.
    """
    found: list[Command] = []
    while len(found) < most:
        match = pattern.match(text, at, at + MAX_LENGTH + 1)
        if match is None or match.end() - at > MAX_LENGTH or not _is_command(match):
            return [], at
        found.append(_command(match))
        end = match.end()
        at = _end_of(_BLANKS, text, end)
        if at == len(text) or text[at] == "\n":
            return found, min(at + 1, len(text))
        if at == end and text[end - 1] != ")":
            return [], at
    return found, at


def _is_command(match: re.Match[str]) -> bool:
    """Whether a match is a command, not a word: a name that ends its line must differ from a known one by a letter."""
    name = match["alone"]
    return name is None or any(OSA.distance(name.lower(), known) <= 1 for known in NAMES)


def _command(match: re.Match[str]) -> Command:
    name = (match["name"] or match["slip"] or match["alone"]).lower()
    if match["broken"] is not None:
        return Command(name, broken=True)
    pieces = [""]
    for piece in _PIECE.findall((match[2] if match["name"] else match[5]) or ""):
        if piece == ",":
            pieces.append("")
        else:
            pieces[-1] = piece
    if not pieces[-1].strip():
        pieces.pop()
    arguments = [_ARGUMENT.fullmatch(piece.strip()) for piece in pieces[: MAX_ARGUMENTS + 1]]
    if None in arguments or len(arguments) > MAX_ARGUMENTS:
        return Command(name, broken=True)
    return Command(name, tuple(_argument(one) for one in arguments if one is not None))


def _argument(match: re.Match[str]) -> tuple[str, str | None]:
    value = match[2]
    return match[1].lower(), value.strip().strip(_QUOTES) if value is not None else None

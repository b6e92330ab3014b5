"""What is typed: `!/set(tool-loop-mode=break, tool-loop-ttl="120")`, `!/unset(tool-loop-ttl)`, `!/status`, `!/help`.

Names in any case, quotes of either kind or none, any number of commands in a text. What stands in code, in a fenced
block or in a quoted line is no command. A known name needs no parentheses; an unknown one is a slip with them, or alone
in its line and a letter from a known one, and else plain text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rapidfuzz.distance import OSA

NAMES: Final = ("set", "unset", "status", "help")

_QUOTED: Final = re.compile(
    r"^[ \t]*(?:(?:[-*+>]|\d+[.)])[ \t]+)*(`{3,}|~{3,})[^`\n]*$.*?(?:^[ \t>]*\1[`~]*[ \t\r]*$|\Z)"
    r"|^[ \t]*>[^\n]*$"
    r"|(`{3,}).*?(?:\2|\Z)"
    r"|`[^`\n]+`",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block, in a list too, up to a fence as long as its first; a quoted line; a fence in a line; inline code."""
_ARGUMENTS: Final = r"""\(((?:"[^"\n]*"|'[^'\n]*'|[^()"'\n])*)\)"""
_ARGUMENT: Final = re.compile(r"""\s*([^=,"'\s]+)\s*(?:=\s*("[^"]*"|'[^']*'|[^,"']*?))?\s*(?:,|\Z)""")

_QUOTES: Final = "\"'\u201c\u201d\u2018\u2019"
"""What may stand around a value; phones and word processors turn quotes into curly ones."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it was typed: its name in lower case, and its arguments, values None where none was given.

    `broken`: what stands between the parentheses cannot be read.
    """

    name: str
    arguments: tuple[tuple[str, str | None], ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Typed:
    """A text's commands, and the text without them."""

    commands: tuple[Command, ...]
    rest: str

    @property
    def only_commands(self) -> bool:
        """Whether the text holds nothing but commands."""
        return bool(self.commands) and not self.rest.strip()


def read(text: str, prefix: str) -> Typed:
    """Parse the commands of a text. `prefix` is what each of them begins with."""
    if prefix not in text:
        return Typed((), text)
    commands: list[Command] = []
    rest: list[str] = []
    at = 0
    for match in _pattern(prefix, text):
        commands.append(_command(match))
        rest.append(text[at : match.start()])
        at = match.end()
    if not commands:
        return Typed((), text)
    rest.append(text[at:])
    return Typed(tuple(commands), _join(rest))


def _pattern(prefix: str, text: str) -> Iterator[re.Match[str]]:
    """The commands that stand outside of quotes."""
    quotes = (match.span() for match in _QUOTED.finditer(text))
    begin = end = -1
    known = "|".join(NAMES)
    command = re.compile(
        rf"(?<![^\s)]){re.escape(prefix)}"
        rf"(?:(?P<name>{known})(?![\w-])(?:[ \t]*{_ARGUMENTS})?|(?P<slip>[\w-]+)[ \t]*{_ARGUMENTS}"
        rf"|(?P<alone>[\w-]+)[ \t\r]*$)",
        re.IGNORECASE | re.MULTILINE,
    )
    at = 0
    for match in command.finditer(text):
        while end <= match.start() and (quote := next(quotes, None)):
            begin, end = quote
        if begin <= match.start() < end:
            continue
        if match["alone"] is None or _is_slip(match["alone"], text[at : match.start()]):
            yield match
            at = match.end()


def _is_slip(name: str, before: str) -> bool:
    """Whether a name that ends its line is meant for a command: only commands stand `before` it in the line, and it is
    a letter from a known one."""
    is_first = not before.rpartition("\n")[2].strip()
    return is_first and any(OSA.distance(name.lower(), known) <= 1 for known in NAMES)


def _command(match: re.Match[str]) -> Command:
    name = (match["name"] or match["slip"] or match["alone"]).lower()
    inside = (match[2] if match["name"] else match[4]) or ""
    arguments: list[tuple[str, str | None]] = []
    at = 0
    while at < len(inside) and not inside[at:].isspace():
        found = _ARGUMENT.match(inside, at)
        if found is None:
            return Command(name, broken=True)
        value = found[2]
        arguments.append((found[1].lower(), value.strip().strip(_QUOTES) if value is not None else None))
        at = found.end()
    return Command(name, tuple(arguments))


def _join(pieces: list[str]) -> str:
    """The text around the commands: a line that held nothing else goes, and no blanks are doubled."""
    out = pieces[:1]
    for piece in pieces[1:]:
        left, right = "", piece.lstrip(" \t")
        while out and not (left := out.pop().rstrip(" \t")):
            pass
        alone = (not left or left.endswith("\n")) and (not right or right.startswith(("\n", "\r\n")))
        if alone:
            right = right.removeprefix("\r").removeprefix("\n")
        elif left and right and not left[-1].isspace() and not right[0].isspace():
            left += " "
        out += [left, right]
    return "".join(out)

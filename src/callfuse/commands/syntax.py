"""Parse commands: `!/set(tool-loop-mode=break, tool-loop-ttl="120")`, `!/unset(tool-loop-ttl)`, `!/status`, `!/help`.

Names in any case, quotes of either kind or none, any number of commands in a text. Nothing in inline code, a fenced
block or a quoted line is a command. A known name needs no parentheses. An unknown name is a mistyped command if it has
parentheses, or if it ends its line and differs from a known name by one letter; else it is plain text.
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
"""Quotes around a value; phones and word processors make them curly."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name in lower case, and its arguments; the value of an argument without `=` is None.

    `broken`: the text between the parentheses cannot be parsed.
    """

    name: str
    arguments: tuple[tuple[str, str | None], ...] = ()
    broken: bool = False


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The commands of a text, and the text without them."""

    commands: tuple[Command, ...]
    rest: str

    @property
    def only_commands(self) -> bool:
        """Whether the text holds nothing but commands."""
        return bool(self.commands) and not self.rest.strip()


def parse_commands(text: str, prefix: str) -> ParsedText:
    """Parse the commands of a text, each of which begins with `prefix`. Raises nothing."""
    if prefix not in text:
        return ParsedText((), text)
    commands: list[Command] = []
    rest: list[str] = []
    at = 0
    for match in _matches(prefix, text):
        commands.append(_command(match))
        rest.append(text[at : match.start()])
        at = match.end()
    if not commands:
        return ParsedText((), text)
    rest.append(text[at:])
    return ParsedText(tuple(commands), _join(rest))


def _matches(prefix: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of commands outside of code and quoted lines."""
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
        if match["alone"] is None or _is_typo(match["alone"], text[at : match.start()]):
            yield match
            at = match.end()


def _is_typo(name: str, before: str) -> bool:
    """Whether a name that ends its line is a mistyped command: only commands stand before it in the line, and it
    differs from a known name by at most one letter."""
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
    """Join the text around the commands: drop lines that held nothing else, and do not double blanks."""
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

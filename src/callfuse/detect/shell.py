"""Shell commands in the arguments of calls: whether one sleeps, and whether one writes.

Commands stand under the names that shells and notebooks use for them, as texts or as lists of words.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from callfuse.memo import remembered
from callfuse.model import ToolCall
from callfuse.wire.jsontext import NotJSON, loads

KEYS: Final = ("command", "commands", "cmd", "script", "code", "keystrokes")
LONG: Final = 4096
"""Characters of arguments beyond which no command is looked for."""

_BEGIN: Final = r"(?:\A|[;&|(`{!\n]|\b(?:do|else|exec|sudo|then|xargs) ) {0,8}"
"""Where a command begins."""
_SLEEPS = re.compile(
    rf"(?:{_BEGIN}|[\"'] {{0,8}})(?:/(?:usr/)?bin/)?sleep[ \n]{{1,4}}[\d.$\"]"
    r"|\b(?:asyncio|time)\.sleep\(|\bStart-Sleep\b"
)
_QUOTED = re.compile(r"'[^']{0,1000}'|\"[^\"]{0,1000}\"")
_OF_SHELL = re.compile(r"\b(?:ba|da|z)?sh -[a-z]{0,3}c\b|\beval\b")
"""A quoted text behind it is a command."""
_WRITES = re.compile(
    r"(?<![2-9<>=\-])>{1,2}\|? {0,4}(?!&|/dev/(?:null|std))[\w./~\"'$*{]"
    rf"|{_BEGIN}(?:chmod|chown|cp|dd|install|ln|mkdir|mv|patch|rm|rmdir|rsync|tee|touch|truncate|unlink)\b"
    r"|\bsed (?:[^\n;|&]{0,200} )?-(?:[a-zA-Z]{0,3}i|-in-place)|\bperl -[a-z]{0,3}i"
    r"|\bgit (?:add|am|apply|checkout|cherry-pick|clean|commit|merge|mv|pull|rebase|reset|restore|revert|rm|stash)\b"
)


def sleeps(arguments: Any) -> bool:
    """Whether the arguments, an object, hold a command that sleeps."""
    return any(_SLEEPS.search(text.partition("<<")[0]) is not None for text in _commands(arguments))


def writes(call: ToolCall) -> bool:
    """Whether a call is a shell command that writes: it redirects its output, or edits, moves or removes files."""
    arguments = call.arguments if call.has_arguments else None
    if isinstance(arguments, str):
        return len(arguments) <= LONG and _text_writes(arguments)
    return _any_writes(arguments)


@remembered(entries=512, longest=LONG)
def _text_writes(arguments: str) -> bool:
    """A history comes again with each request of its session."""
    try:
        return _any_writes(loads(arguments))
    except NotJSON:
        return False


def _any_writes(arguments: Any) -> bool:
    return any(
        _WRITES.search(text if _OF_SHELL.search(text) else _QUOTED.sub("''", text)) is not None
        for text in _commands(arguments)
    )


def _commands(arguments: Any) -> Iterator[str]:
    """The texts of commands, at most `LONG` characters each; of a list, a line for each word."""
    if not isinstance(arguments, dict):
        return
    for key in KEYS:
        value = arguments.get(key)
        if isinstance(value, list):
            value = "\n".join([one for one in value[:LONG] if isinstance(one, str)])
        if isinstance(value, str):
            yield value[:LONG]

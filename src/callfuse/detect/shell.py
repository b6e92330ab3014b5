"""Shell commands in the arguments of calls: whether one sleeps, and whether one writes.

Commands are in the arguments that shells and notebooks use for them, as texts or as lists of words.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from callfuse.memo import remembered
from callfuse.model import ToolCall
from callfuse.wire.jsontext import NotJSON, loads

KEYS: Final = ("command", "commands", "cmd", "script", "code", "keystrokes")
LONG: Final = 4096
"""Arguments of more characters are not searched for a command."""

_BEGIN: Final = r"(?:\A|[;&|(`{!\n]|\b(?:do|else|exec|if|nohup|sudo|then|time|until|while|xargs) ) {0,8}"
"""Where a command begins."""
_SLEEPS = re.compile(
    rf"(?:{_BEGIN}(?:/(?:usr/)?bin/)?sleep {{1,4}}|\b(?:asyncio|time)\.sleep\([ \n]{{0,4}})"
    r"(?:(?=\.?\d)(?P<number>\d{0,9}(?:\.\d{0,9})?)(?P<unit>[smhd]?)(?![\w.])|(?P<unknown>[$`A-Za-z_]))"
    r"|\bStart-Sleep(?P<milli> {1,4}-m(?:illiseconds|s)?)?(?: {1,4}-s(?:econds)?)?"
    r" {1,4}(?:(?P<time>\d{1,9}(?:\.\d{0,9})?)|(?P<variable>\$))",
    re.IGNORECASE,
)
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}
_WAIT: Final = 1.0
"""A command that sleeps for at least so many seconds waits for something; less is a pause between two steps."""
_QUOTED = re.compile(r"'[^']{0,1000}'|\"[^\"]{0,1000}\"")
_RUN_QUOTED = re.compile(
    r"(?:(?P<runs>\b(?:(?:(?:ba|da|k|z)?sh|su) -[a-z]{0,3}c|eval|ssh [^'\"\n;|&]{1,80}|watch(?: -n ?[\d.]{1,5})?"
    r"|python[\d.]{0,5} -c|pwsh -c|powershell -c|-Command|send-keys(?: -t ?[\w:.-]{1,40})?) {0,4})"
    r"|(?P<sleep>\bsleep {1,4}))?(?:'(?P<one>[^']{0,1000})'|\"(?P<two>[^\"]{0,1000})\")"
)
"""A quoted text, with what runs it as a command before it, if any."""
_OF_SHELL = re.compile(r"\b(?:ba|da|z)?sh -[a-z]{0,3}c\b|\beval\b")
"""A quoted text after this is a command."""
_SHELLS: Final = frozenset(("bash", "dash", "ksh", "sh", "zsh"))
_WRITES = re.compile(
    r"(?<![2-9<>=\-])>{1,2}\|? {0,4}(?!&|/dev/(?:null|std))[\w./~\"'$*{]"
    rf"|{_BEGIN}(?:chmod|chown|cp|dd|install|ln|mkdir|mv|patch|rm|rmdir|rsync|tee|touch|truncate|unlink)\b"
    r"|\bsed (?:[^\n;|&]{0,200} )?-(?:[a-zA-Z]{0,3}i|-in-place)|\bperl -[a-z]{0,3}i"
    r"|\bgit (?:add|am|apply|checkout|cherry-pick|clean|commit|merge|mv|pull|rebase|reset|restore|revert|rm|stash)\b"
)


def sleeps(arguments: Any) -> bool:
    """Whether a command in the parsed arguments sleeps for a second or more, or for an unknown time. Quoted text counts
    only if it is run."""
    texts = (_RUN_QUOTED.sub(_run, text.partition("<<")[0]) for text in _commands(arguments) if "leep" in text)
    return any(_is_long(found) for text in texts for found in _SLEEPS.finditer(text))


def _run(quoted: re.Match[str]) -> str:
    """Return the part of a quoted text that is run: a text given to a shell, or the time for which a command sleeps."""
    text = quoted["one"] if quoted["one"] is not None else quoted["two"]
    if quoted["sleep"]:
        return quoted["sleep"] + text
    return f"{quoted['runs']};{_QUOTED.sub('', text)}" if quoted["runs"] else "''"


def _is_long(slept: re.Match[str]) -> bool:
    """Whether a command sleeps for long; an unknown time counts as long."""
    if slept["unknown"] or slept["variable"]:
        return True
    number = float((slept["time"] or slept["number"] or "0").removesuffix(".") or 0)
    if slept["milli"]:
        return number >= 1000 * _WAIT
    return number * _UNITS.get((slept["unit"] or "").lower(), 1) >= _WAIT


def writes(call: ToolCall) -> bool:
    """Whether a call is a shell command that writes: it redirects its output, or edits, moves or removes files."""
    arguments = call.arguments if call.has_arguments else None
    if isinstance(arguments, str):
        return len(arguments) <= LONG and _text_writes(arguments)
    return _any_writes(arguments)


@remembered(entries=512, longest=LONG)
def _text_writes(arguments: str) -> bool:
    """Whether arguments, as text, have a command that writes. Memoized: each request repeats its session's history."""
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
    """Yield the texts of the commands in arguments, at most `LONG` characters each."""
    if not isinstance(arguments, dict):
        return
    for key in KEYS:
        value = arguments.get(key)
        if isinstance(value, list):
            value = _joined([one for one in value[:LONG] if isinstance(one, str)], key)
        if isinstance(value, str):
            yield value[:LONG]


def _joined(words: list[str], key: str) -> str:
    """Join a list into one text: commands by line ends; the words of one command by blanks, with quotes if needed."""
    if key == "commands" or not words:
        return "\n".join(words)
    if words[0].rpartition("/")[2] in _SHELLS:
        return "\n".join(words[1:])
    return " ".join([f"'{one}'" if " " in one and "'" not in one else one for one in words])

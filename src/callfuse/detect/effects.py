"""Guess from a call's words whether it reads or changes something.

The sources: what the settings declare; a shell command or an SQL statement in the arguments; the tool's name; and, if a
tool does several things, the argument that names the action. Everything else is `UNCLEAR`.
"""

import re
from collections.abc import Callable
from enum import Enum
from itertools import dropwhile
from typing import Any, Final

from callfuse.detect.settings import Settings
from callfuse.memo import remembered
from callfuse.model import ToolCall
from callfuse.wire.jsontext import NotJSON, loads


class Effect(Enum):
    """What a call does."""

    READS = "reads"
    CHANGES = "changes"
    UNCLEAR = "unclear"


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


LONG: Final = 4000
"""Arguments of more characters are not read; a longer command counts as writing."""

_WORD: Final = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_READING: Final = _set_of(
    "read get list search view cat ls pwd grep find fetch lookup look query show describe browse inspect retrieve "
    "check count glob stat status head tail tree wc which info details goto scroll open diff display estimate "
    "validate explain calculate compare examine print think"
)
_CHANGING: Final = _set_of(
    "write edit create update delete remove apply add insert replace patch post put send submit book cancel modify "
    "move mv cp rm touch mkdir install push merge commit save upload make build stop buy order place pay purchase "
    "exchange return transfer rename upsert drop import set"
)
_RUNNING: Final = _set_of("bash shell terminal exec execute run command cmd console sh")
_SQL: Final = _set_of("sql")
_TEXTS: Final = ("command", "cmd", "script", "code", "input", "query", "sql", "statement")
"""Arguments that contain a command or a statement."""
_ACTIONS: Final = ("command", "action", "operation", "action_name", "tool_name")
"""Arguments that name one of the actions of a tool."""

_SELECT: Final = re.compile(r"[\s(]*+(?:select|show|desc|describe|explain|with|pragma|values)\b", re.IGNORECASE)
_INTO: Final = re.compile(
    r"\b(?:insert|update|delete|create|drop|alter|truncate|grant|merge|replace|into)\b", re.IGNORECASE
)

_QUOTED: Final = re.compile(r"""'[^']*+(?:'|\Z)|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)""", re.DOTALL)
_NOWHERE: Final = re.compile(r"[0-9&]?>(?:&[0-9]|>?[ \t]?/dev/null)")
_NEXT: Final = re.compile(r"&&|\|\||[;|\n`()]")
_SHELLS: Final = _set_of("bash sh zsh")
_PREFIXES: Final = _set_of("sudo time timeout then do else if while nohup env")
_READERS: Final = _set_of(
    "cat ls grep egrep fgrep rg ag find head tail less more tree wc stat file pwd echo which whoami printenv nl sort "
    "uniq cut tr diff cmp du df ps uname date id true test [ type column jq awk od xxd strings basename dirname "
    "realpath readlink hexdump printf for done fi sed git"
)
_WRITERS: Final = _set_of(
    "rm mv cp mkdir touch tee chmod chown ln patch truncate dd install rsync unzip tar pip pip3 npm yarn apt apt-get "
    "conda make curl wget kill"
)
_NEUTRAL: Final = _set_of("cd #")
_GIT_READERS: Final = _set_of("status diff log show blame grep ls-files rev-parse describe")
_FIND_WRITERS: Final = _set_of("-delete -exec -execdir -ok")


def effect_of(call: ToolCall, settings: Settings) -> Effect:
    """Return the effect of a call."""
    tool = settings.for_tool(call.full_name)
    if tool.changes_state:
        return Effect.CHANGES
    if tool.takes_notes:
        return Effect.READS  # only the agent reads its notes, so they change nothing
    words = _words(call.name)
    if words & _SQL:
        return _sql_effect(_text_of(call))
    if "query" in words and _sql_effect(_text_of(call)) is Effect.CHANGES:
        return Effect.CHANGES
    if words & _RUNNING:
        return _command_effect(call)
    by_name = _effect_of_words(words)
    if by_name is Effect.READS:
        return by_name
    action = _effect_of_words(_words(_argument(call, _ACTIONS)))
    return by_name if action is Effect.UNCLEAR else action


def runs_commands(call: ToolCall) -> bool:
    """Whether a tool's name says that the tool runs commands or programs."""
    return not _words(call.name).isdisjoint(_RUNNING)


def _effect_of_words(words: frozenset[str]) -> Effect:
    if words & _CHANGING:
        return Effect.CHANGES
    return Effect.READS if words & _READING else Effect.UNCLEAR


_LONGEST_NAME: Final = 200


@remembered(entries=512, longest=_LONGEST_NAME)
def _words(name: str) -> frozenset[str]:
    """Return the words of a tool's name, without a server in front (`mcp__files__read_file`); none for a sentence."""
    if len(name) > _LONGEST_NAME or " " in name:
        return frozenset()
    return frozenset([word.lower() for word in _WORD.findall(name.rpartition("__")[2])])


def _command_effect(call: ToolCall) -> Effect:
    text = _text_of(call)
    if text:
        return _shell_effect(text) if len(text) <= LONG else Effect.CHANGES
    if not call.has_arguments:
        return Effect.CHANGES  # the command is no longer known
    return _effect_of_words(_words(_argument(call, _ACTIONS)))


def _text_of(call: ToolCall) -> str:
    """Return the command or the statement in a call's arguments; empty if there is none."""
    return _argument(call, _TEXTS)


def _argument(call: ToolCall, keys: tuple[str, ...]) -> str:
    """Return the first of these arguments that is a text or a list of words; if they are not JSON, the whole text."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return _argument_in(arguments, keys)
    return _text_among(arguments, keys)


@remembered(entries=256, longest=2 * LONG)
def _argument_in(arguments: str, keys: tuple[str, ...]) -> str:
    if len(arguments) > 2 * LONG:
        return arguments
    try:
        return _text_among(loads(arguments), keys)
    except NotJSON:
        return arguments


def _text_among(value: Any, keys: tuple[str, ...]) -> str:
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    for key in keys:
        found = value.get(key)
        if isinstance(found, list) and found and len(found) <= LONG and all(isinstance(one, str) for one in found):
            return found[-1] if found[0].rpartition("/")[2] in _SHELLS else " ".join(found)
        if isinstance(found, str) and found:
            return found
    return ""


def _sql_effect(statement: str) -> Effect:
    if not statement:
        return Effect.UNCLEAR
    if len(statement) > LONG or _INTO.search(statement):
        return Effect.CHANGES
    return Effect.READS if _SELECT.match(statement) else Effect.UNCLEAR


@remembered(entries=512, longest=LONG)
def _shell_effect(command: str) -> Effect:
    """Return the effect of a shell command: the strongest effect of any of its parts."""
    bare = _NOWHERE.sub(" ", _QUOTED.sub(_unquoted, command))
    if ">" in bare or "<<" in bare:
        return Effect.CHANGES
    effects = {_part_effect(part) for part in _NEXT.split(bare)}
    for effect in (Effect.CHANGES, Effect.UNCLEAR, Effect.READS):
        if effect in effects:
            return effect
    return Effect.UNCLEAR


def _unquoted(quoted: re.Match[str]) -> str:
    """Return the replacement of a quoted text: a word, or the commands in it that a shell would run."""
    text = quoted[0]
    return text.strip('"') if text[0] == '"' and ("$(" in text or "`" in text) else "Q"


def _part_effect(part: str) -> Effect | None:
    """Return the effect of one command of a line; None if there is no command, or it does nothing by itself."""
    words = [*dropwhile(_is_before_a_command, part.replace("$", " ").split())]
    name = words[0].lstrip("!%").rpartition("/")[2] if words else ""
    if not name or name in _NEUTRAL or name.startswith("#"):
        return None
    if name in _WRITERS or (name in _OPTIONS and _OPTIONS[name](words[1:])):
        return Effect.CHANGES
    return Effect.READS if name in _READERS else Effect.UNCLEAR


def _is_before_a_command(word: str) -> bool:
    """Whether a word only introduces a command: an assignment, `sudo`, `timeout 30`, and the like."""
    return "=" in word or word in _PREFIXES or word.rstrip("smh").isdecimal()


_OPTIONS: Final[dict[str, Callable[[list[str]], bool]]] = {
    "git": lambda words: _GIT_READERS.isdisjoint(words[:3]),
    "sed": lambda words: True in [word.startswith(("-i", "--in-place")) for word in words],
    "find": lambda words: not _FIND_WRITERS.isdisjoint(words),
}
"""Commands that read, unless their arguments say otherwise."""

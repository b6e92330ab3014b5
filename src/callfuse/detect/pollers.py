"""Recognise calls that are meant to repeat: they wait for something external, or act on a screen.

Waiting is recognised by the tool's name, an argument that says so, a shell command that sleeps, or the result: still
running, or a transient error (429, overloaded, 502 to 504, time-outs, connection refused). A refused or denied call
does not count: it stays refused. Acting on a screen (Tab, scroll, undo) is recognised by the tool's name.
"""

from collections.abc import Collection
from itertools import chain
from typing import Any, Final

from callfuse.detect import shell
from callfuse.detect.settings import Settings
from callfuse.memo import remembered
from callfuse.model import PastCall, ToolCall
from callfuse.model.signature import Signature
from callfuse.wire.jsontext import NotJSON, loads

KEYS: Final = ("action", "operation", "op", "command", "method", "mode", "type")
VALUES: Final = frozenset({"poll", "wait", "sleep", "status", "check_status", "get_status", "job_status", "await"})
LONG: Final = 500
"""Arguments of more characters are not searched for such a word."""


def acts_on_screen(calls: Collection[PastCall], call: ToolCall, settings: Settings) -> bool:
    """Whether a pending call, or one of those before it, is of a tool that acts on a screen."""
    names = {call.full_name, *[one.full_name for one in calls]}
    return True in [settings.for_tool(name).on_screen for name in names]


def polls(call: ToolCall, settings: Settings) -> bool:
    """Whether a call waits for something, by its tool or its arguments; also usable for a pending call."""
    return settings.for_tool(call.full_name).poller or _says_so(call.arguments)


def have_waited(calls: Collection[PastCall], settings: Settings) -> bool:
    """Whether any of these past calls waited for something, by its tool, its arguments or its outcome."""
    texts: set[str] = set()
    values: dict[Signature, Any] = {}
    for call in calls:
        if not call.withheld and (outcome := call.outcome) and (outcome.pending or outcome.transient):
            return True
        if not call.call.has_arguments:
            continue
        arguments = call.call.arguments
        if type(arguments) is str:
            texts.add(arguments)
        else:
            values[call.signature] = arguments
    if True in [settings.for_tool(name).poller for name in {call.full_name for call in calls}]:
        return True
    return True in map(_says_so, chain(texts, values.values()))


def _says_so(arguments: Any) -> bool:
    if isinstance(arguments, str):
        if len(arguments) <= LONG:
            return _text_says_so(arguments)
        return len(arguments) <= shell.LONG and "sleep" in arguments.lower() and _sleeps(arguments)
    return _value_says_so(arguments)


def _sleeps(arguments: str) -> bool:
    try:
        return shell.sleeps(loads(arguments))
    except NotJSON:
        return False


@remembered(entries=4096, longest=LONG)
def _text_says_so(arguments: str) -> bool:
    """A history comes again with each request of its session, and a loop's calls in each of its rounds."""
    lowered = arguments.lower()
    if not ("poll" in lowered or "wait" in lowered or "sleep" in lowered or "status" in lowered):
        return False  # one of these is in each of the values
    try:
        return _value_says_so(loads(arguments))
    except NotJSON:
        return False


def _value_says_so(arguments: Any) -> bool:
    if not isinstance(arguments, dict):
        return False
    return any(
        isinstance(value := arguments.get(key), str) and value.lower() in VALUES for key in KEYS
    ) or shell.sleeps(arguments)

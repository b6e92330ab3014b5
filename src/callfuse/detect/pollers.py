"""Calls that come again and again by their nature: they wait for something outside.

Known by the tool's name, by an argument that says so, or by what came back: still running, or an error whose cause
lies outside (429, 5xx, a denied permission).
"""

from collections.abc import Collection
from typing import Any, Final

from callfuse.jsontext import NotJSON, loads
from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings

KEYS: Final = ("action", "operation", "op", "command", "method", "mode", "type")
VALUES: Final = frozenset({"poll", "wait", "sleep", "status", "check_status", "get_status", "job_status", "await"})
LONG: Final = 500
"""Characters of arguments beyond which nobody looks for such a word."""


def polls(call: ToolCall, settings: LoopSettings) -> bool:
    """Whether a call waits for something, by its tool or its arguments: all that is known of one that is pending."""
    return settings.for_tool(call.full_name).poller or _says_so(call.arguments)


def have_waited(calls: Collection[ToolCall], settings: LoopSettings) -> bool:
    """Whether a call of the past waited for something, by what it is or as its outcome tells."""
    for call in calls:
        if not call.withheld and (outcome := call.outcome) and (outcome.pending or outcome.transient):
            return True
    different = {call.signature: call for call in calls}.values()
    if True in [settings.for_tool(name).poller for name in {call.full_name for call in different}]:
        return True
    arguments = [call.arguments for call in different]
    texts = [one for one in arguments if isinstance(one, str) and len(one) <= LONG]
    values = [one for one in arguments if not isinstance(one, str)]
    return any(map(_says_so, texts + values if _has_word("\n".join(texts)) else values))


def _has_word(text: str) -> bool:
    """Whether it has one of the words that are in each of the values."""
    lowered = text.lower()
    return "poll" in lowered or "wait" in lowered or "sleep" in lowered or "status" in lowered


def _says_so(arguments: Any) -> bool:
    if isinstance(arguments, str):
        if len(arguments) > LONG:
            return False
        if not _has_word(arguments):
            return False
        try:
            arguments = loads(arguments)
        except NotJSON:
            return False
    if not isinstance(arguments, dict):
        return False
    return any(isinstance(value := arguments.get(key), str) and value.lower() in VALUES for key in KEYS)

"""Calls that come again and again by their nature: they wait for something outside.

Known by the tool's name, by an argument that says so, or by what came back: still running, or an error whose cause
lies outside (429, 5xx, a denied permission).
"""

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


def has_waited(call: ToolCall) -> bool:
    """Whether a call of the past waited for something, as its outcome tells."""
    outcome = None if call.withheld else call.outcome
    return outcome is not None and (outcome.pending or outcome.transient)


def _says_so(arguments: Any) -> bool:
    if isinstance(arguments, str):
        if len(arguments) > LONG:
            return False
        lowered = arguments.lower()
        if not ("poll" in lowered or "wait" in lowered or "sleep" in lowered or "status" in lowered):
            return False  # one of these is in each of the values
        try:
            arguments = loads(arguments)
        except NotJSON:
            return False
    if not isinstance(arguments, dict):
        return False
    return any(isinstance(value := arguments.get(key), str) and value.lower() in VALUES for key in KEYS)

"""Calls that come again and again by their nature: they wait for something outside.

Known by the tool's name, by an argument that says so, or by what came back last: still running, or an error whose cause
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


def is_poller(call: ToolCall, settings: LoopSettings) -> bool:
    """Whether this call waits for something."""
    if settings.for_tool(call.full_name).poller:
        return True
    outcome = None if call.withheld else call.outcome
    if outcome is not None and (outcome.pending or outcome.transient):
        return True
    return _says_so(call.arguments)


def _says_so(arguments: Any) -> bool:
    if isinstance(arguments, str):
        if len(arguments) > LONG or not any(value in arguments for value in VALUES):
            return False
        try:
            arguments = loads(arguments)
        except NotJSON:
            return False
    if not isinstance(arguments, dict):
        return False
    return any(isinstance(value := arguments.get(key), str) and value.lower() in VALUES for key in KEYS)

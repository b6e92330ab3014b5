"""Ignore arguments that should not make calls different, such as a request id: settings name them by tool.

Must be applied before a call's signature is first read.
"""

from collections.abc import Iterable

from callfuse.model import Round, ToolCall
from callfuse.policy.settings import LoopSettings


def apply_ignored_arguments(calls: Iterable[ToolCall], settings: LoopSettings) -> list[ToolCall]:
    """Return the calls with signatures that leave out the arguments which these settings ignore."""
    if not settings.ignores:
        return [*calls]
    return [call.ignoring(settings.for_tool(call.full_name).ignore) for call in calls]


def ignore_in_rounds(rounds: Iterable[Round], settings: LoopSettings) -> None:
    """Replace the calls of past rounds by calls whose signatures leave out the ignored arguments."""
    if settings.ignores:
        for round_ in rounds:
            for past in round_.calls:
                past.call = past.call.ignoring(settings.for_tool(past.full_name).ignore)
            round_.forget()

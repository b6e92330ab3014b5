"""Arguments that do not tell calls apart, a request id say: settings name them by tool.

To be applied before a call's signature is first asked for.
"""

from collections.abc import Iterable

from callfuse.model import Round, ToolCall
from callfuse.policy.settings import LoopSettings


def apply_ignored_arguments(calls: Iterable[ToolCall], settings: LoopSettings) -> list[ToolCall]:
    """The calls, told from others only by the arguments that count for their tools under these settings."""
    if not settings.ignores:
        return [*calls]
    return [call.ignoring(settings.for_tool(call.full_name).ignore) for call in calls]


def ignore_in_rounds(rounds: Iterable[Round], settings: LoopSettings) -> None:
    """Have the calls of past rounds told apart only by the arguments that count under these settings."""
    if settings.ignores:
        for round_ in rounds:
            for past in round_.calls:
                past.call = past.call.ignoring(settings.for_tool(past.full_name).ignore)
            round_.forget()

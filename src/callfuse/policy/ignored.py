"""Arguments that do not tell calls apart, a request id say: where the settings name such, every call must know them
before its signature is first asked for."""

from collections.abc import Iterable

from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings


def ignoring(calls: Iterable[ToolCall], settings: LoopSettings) -> None:
    """Let each call know which of its arguments do not matter."""
    if settings.ignores:
        for call in calls:
            call.ignore = settings.for_tool(call.full_name).ignore

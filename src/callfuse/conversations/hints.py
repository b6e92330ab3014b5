"""Add a hint to tools' descriptions, and names to results, as the settings `tool_hint` and `tool_names` say.

Both are pure functions of the request and of the server's settings: a session's settings, times and counts do not
matter. So the same prefix of a conversation always gets the same bytes, and prompt caches keep hitting. Texts that have
the hint or name already stay unchanged.
"""

from collections.abc import Iterator
from typing import Final

from callfuse.dialects.base import Request
from callfuse.dialects.declared import DescribedTool
from callfuse.dialects.edits import append_to_string
from callfuse.policy.settings import LoopSettings
from callfuse.policy.texts import LOOP_HINT
from callfuse.wire.jsontext import Edit, apply

LONGEST_DESCRIPTION: Final = 1024
"""The most characters of a description that OpenAI accepts for some models. A hint that would exceed it is left out."""


def with_hints(request: Request, settings: LoopSettings) -> bytes:
    """Return the body of a request with the hints and names that these settings ask for; every other byte stays.

    Nothing is added for tools that are not guarded or only observed. `settings` are those of server and model.
    """
    if not settings.enabled or settings.observes:
        return request.body
    edits = [*_hints(request, settings)] if settings.tool_hint else []
    if settings.tool_names:
        edits += request.name_results()
    return apply(request.body, edits)


def _hints(request: Request, settings: LoopSettings) -> Iterator[Edit]:
    """Yield the edits that append the hint to descriptions."""
    longer = len(f"\n\n{LOOP_HINT}")
    for tool in request.described_tools():
        length = len(tool.description)
        grows_too_long = length <= LONGEST_DESCRIPTION < length + longer
        if not grows_too_long and LOOP_HINT not in tool.description and _is_for(tool, settings):
            yield Edit(tool.path, append_to_string(LOOP_HINT))


def _is_for(tool: DescribedTool, settings: LoopSettings) -> bool:
    """Whether the hint is true for a tool: not if it waits or changes something, and so may be called again."""
    own = settings.for_tool(tool.name)
    repeats = own.poller or own.changes_state
    return own.settings.enabled and not own.settings.observes and not repeats

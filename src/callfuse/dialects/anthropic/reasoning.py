"""Thinking in Anthropic messages, whose signatures hold for one model only: what another one is sent lacks it."""

from collections.abc import Iterator
from typing import Any, Final

from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_CLEARING: Final = "clear_thinking"
"""How the type of the context edits begins that the vendor takes only where thinking is on."""


def thinks(block: Any) -> bool:
    """Whether a content block is one of thinking."""
    return isinstance(block, dict) and block.get("type") in THINKING


def not_thinking(payload: Payload) -> Iterator[Edit]:
    """The edits that turn off thinking where it is on by a budget: then the vendor demands it in the history."""
    thinking = payload.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    yield Edit(("thinking",), None)
    management = payload.get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    for at, edit in enumerate(edits if isinstance(edits, list) else ()):
        if isinstance(edit, dict) and str(edit.get("type")).startswith(_CLEARING):
            yield Edit(("context_management", "edits", at), None)

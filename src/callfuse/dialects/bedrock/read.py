"""Tool uses of Bedrock's Converse messages, of a whole answer or of a history.

Only calls that the client executes are read: a tool use of the type `server_tool_use` has run already.
"""

from collections.abc import Iterator
from typing import Any, Final

from callfuse.dialects.base import WholeChoice
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import ExactAt

CUTTING: Final = frozenset(
    {"max_tokens", "content_filtered", "guardrail_intervened", "model_context_window_exceeded", "malformed_tool_use"}
)
"""Stop reasons after which the last call may lack its end."""


def tool_use_of(block: Any) -> Payload | None:
    """The tool use in a content block, if it is one for the client."""
    use = block.get("toolUse") if isinstance(block, dict) else None
    return use if isinstance(use, dict) and use.get("type") != "server_tool_use" else None


def calls_in(content: Any) -> Iterator[tuple[int, Payload]]:
    """The client's tool uses among content blocks, with their places."""
    for at, block in enumerate(content if isinstance(content, list) else ()):
        if (use := tool_use_of(block)) is not None:
            yield at, use


def call_of(use: Payload, exact: ExactAt | None = None) -> ToolCall:
    """A tool use as a call; `exact` reads its input again."""
    return ToolCall(str(use.get("toolUseId") or ""), str(use.get("name") or ""), use.get("input"), exact=exact)


def content_of(payload: Any) -> Any:
    """The content of a whole answer's message; None where it has none."""
    output = payload.get("output") if isinstance(payload, dict) else None
    message = output.get("message") if isinstance(output, dict) else None
    return message.get("content") if isinstance(message, dict) else None


def read_whole(payload: Payload) -> list[WholeChoice]:
    """The calls of a whole answer."""
    content = content_of(payload)
    if content is None:
        return []
    calls = tuple(call_of(use) for _, use in calls_in(content))
    return [WholeChoice(0, calls, cut=payload.get("stopReason") in CUTTING)]

"""Events of Cohere's, as its own tests do not have them right through the middleware."""

import json
from typing import Any

from tests.dialects.quirks import ZEBRA, Quirk


def event(kind: str, **more: Any) -> bytes:
    """An event of Cohere's."""
    return f"data: {json.dumps({'type': kind, **more})}\n\n".encode()


def opened(at: int, name: str) -> bytes:
    """A call begins."""
    made = {"id": f"{name}_{at}", "type": "function", "function": {"name": name, "arguments": ""}}
    return event("tool-call-start", index=at, delta={"message": {"tool_calls": made}})


QUIRKS = [
    Quirk(
        "no arguments, no event lines, no [DONE]",
        event("message-start", id="x", delta={"message": {"role": "assistant"}})
        + opened(0, "lookup") + event("tool-call-end", index=0)
        + event("message-end", delta={"finish_reason": "TOOL_CALL"}),
        [(0, "lookup_0", "lookup", "")],
    ),
    Quirk(
        "two calls, the pieces of each in its own events",
        event("message-start", id="x", delta={"message": {"role": "assistant"}})
        + b"".join(
            opened(at, "search")
            + b"".join(
                event("tool-call-delta", index=at, delta={"message": {"tool_calls": {"function": {"arguments": text}}}})
                for text in ("", '{"query":', f'"{word}"}}')
            )
            + event("tool-call-end", index=at)
            for at, word in enumerate(("zebra", "okapi"))
        )
        + event("message-end", delta={"finish_reason": "TOOL_CALL"}) + b"data: [DONE]\n\n",
        [(0, "search_0", "search", ZEBRA), (0, "search_1", "search", '{"query":"okapi"}')],
        kept=b"data: [DONE]\n\n",
    ),
]  # fmt: skip

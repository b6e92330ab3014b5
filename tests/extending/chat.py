"""Chats in OpenAI's format through the guard, for tests of things that every dialect has."""

import json
from collections.abc import Sequence
from typing import Any

from callfuse import CallFuseMiddleware
from callfuse.testing import Answer, Call, ScriptedVendor
from tests.support.asgi import JSON_REQUEST, App, Exchange, Headers, Request, run

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("read", "list")
]


def request(arguments: Sequence[str], *, stream: bool) -> bytes:
    """A chat in which `read` has been called with each of these paths, one round after the other."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read on."}]
    for at, path in enumerate(arguments):
        function = {"name": "read", "arguments": json.dumps({"path": path})}
        calls = [{"id": f"call_{at}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": f"the text of {path}"})
    return json.dumps({"model": "gpt-test", "stream": stream, "tools": TOOLS, "messages": messages}).encode()


def reads(path: str) -> Answer:
    """The model reads a file."""
    return Answer(calls=[Call("read", {"path": path}, f"call_for_{path}")])


def guarded(vendor: ScriptedVendor, **settings: Any) -> App:
    """The vendor behind the guard."""
    app: App = CallFuseMiddleware(vendor, {"tool_call_loop": settings})
    return app


def exchange(vendor: ScriptedVendor, body: bytes, *, headers: Headers = (), **settings: Any) -> Exchange:
    """One exchange with the vendor behind the guard."""
    return run(guarded(vendor, **settings), Request("/v1/chat/completions", body, (*JSON_REQUEST, *headers)))

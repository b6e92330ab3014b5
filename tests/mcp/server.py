"""A scripted MCP server as an ASGI app, and the requests of its clients: nothing but bytes, no package of MCP."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callfuse.mcp import MCPMiddleware
from tests.support.asgi import Exchange, Headers, Receive, Request, Scope, Send
from tests.support.observing import Observed

OLD: Headers = (
    (b"host", b"mcp.test"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", b"2025-11-25"),
    (b"mcp-session-id", b"a1b2c3"),
)
"""The headers of revision 2025-11-25."""
NEW: Headers = (
    (b"host", b"mcp.test"),
    (b"user-agent", b"agent/1"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"),
)
"""Those of revision 2026-07-28, which has no session."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def text(said: str, **more: Any) -> dict[str, Any]:
    """A result with one block of text."""
    return {"content": [{"type": "text", "text": said}], "isError": False, **more}


def dumps(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(slots=True)
class ToolServer:
    """Answers each request `tools/call` with what `tool` makes of it: a result, or raw bytes as the whole `result`.

    `form`: `json` or `sse`, with a notification before the result; `cut`: so many bytes at a time. `bodies`, `scopes`:
    what has come. `runs`: the arguments of the calls that have run. `listed`: the result of `tools/list`.
    """

    tool: Callable[[dict[str, Any]], Any] = lambda _: text("nothing was found")
    form: str = "json"
    status: int = 200
    cut: int = 0
    headers: Headers = ()
    listed: Mapping[str, Any] = field(default_factory=lambda: {"tools": []})
    bodies: list[bytes] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    runs: list[Any] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        self.scopes.append(scope)
        out = self.answer(body)
        kind = b"text/event-stream" if self.form == "sse" and out else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", str(len(out)).encode()), *self.headers]
        if kind == b"text/event-stream":
            del headers[1]
        status = self.status if out else 202
        await send({"type": "http.response.start", "status": status, "headers": headers})
        size = self.cut or len(out) or 1
        parts = [out[at : at + size] for at in range(0, len(out), size)] or [b""]
        for at, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": at + 1 < len(parts)})

    def answer(self, body: bytes) -> bytes:
        """The body of the answer; empty if there is nothing to respond to."""
        posted = json.loads(body) if body else []
        messages = posted if isinstance(posted, list) else [posted]
        responses = [self.response(one) for one in messages if "id" in one and "method" in one]
        if not responses:
            return b""
        if self.form == "sse":
            note = dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
            return b"".join(b"event: message\r\ndata: " + one + b"\r\n\r\n" for one in (note, *responses))
        return b"[" + b",".join(responses) + b"]" if isinstance(posted, list) else responses[0]

    def response(self, message: dict[str, Any]) -> bytes:
        """The response to one request."""
        head = b'{"jsonrpc":"2.0","id":' + dumps(message["id"])
        if message["method"] != "tools/call":
            return head + b',"result":' + dumps(self.listed) + b"}"
        self.runs.append(message["params"].get("arguments"))
        made = self.tool(message["params"])
        if isinstance(made, dict) and "error" in made:
            return head + b',"error":' + dumps(made["error"]) + b"}"
        return head + b',"result":' + (made if isinstance(made, bytes) else dumps(made)) + b"}"


def call(
    arguments: Mapping[str, Any] | None = None,
    *,
    name: str = "search",
    id_: Any = 1,
    headers: Headers = OLD,
    meta: Mapping[str, Any] | None = None,
    path: str = "/mcp",
    **params: Any,
) -> Request:
    """A POST with a request `tools/call`."""
    return Request(path, dumps(call_message(arguments, name=name, id_=id_, meta=meta, **params)), headers)


def call_message(
    arguments: Mapping[str, Any] | None = None,
    *,
    name: str = "search",
    id_: Any = 1,
    meta: Mapping[str, Any] | None = None,
    **params: Any,
) -> dict[str, Any]:
    """A request `tools/call`."""
    own = {"name": name, "arguments": {"q": "zebra"} if arguments is None else arguments, **params}
    if meta is not None:
        own["_meta"] = meta
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": own}


def post(message: Any, headers: Headers = OLD, path: str = "/mcp") -> Request:
    """A POST with any message."""
    return Request(path, dumps(message), headers)


def with_header(headers: Headers, name: bytes, value: bytes) -> Headers:
    """The headers with one more, in place of that of its name."""
    return (*(one for one in headers if one[0] != name), (name, value))


READ_ONLY = {"*": {"changes_state": False}}
"""Settings by tool that say of all that they change nothing, so that results are given again."""


def guarded(server: Any, mode: Any = "chance_then_block", **more: Any) -> MCPMiddleware:
    """The server behind the middleware; by default all its tools are known to change nothing."""
    return MCPMiddleware(server, {"tool_call_loop": {"mode": mode, "per_tool": READ_ONLY, **more}})


def observed(server: Any, mode: Any = "chance_then_block", **more: Any) -> tuple[MCPMiddleware, Observed]:
    """The same, with what happens there."""
    app, seen = guarded(server, mode, **more), Observed()
    app.bus.add(seen)
    return app, seen


def responses(exchange: Exchange) -> list[dict[str, Any]]:
    """The responses in an answer of either form."""
    body = exchange.body
    if (exchange.header(b"content-type") or b"").startswith(b"text/event-stream"):
        lines = body.replace(b"\r\n", b"\n").split(b"\n")
        found: Sequence[Any] = [json.loads(line[5:]) for line in lines if line.startswith(b"data:")]
    else:
        found = json.loads(body) if body else []
    found = found if isinstance(found, list) else [found]
    return [one for one in found if "id" in one and "method" not in one]


def result(exchange: Exchange) -> dict[str, Any]:
    """The result of the only response."""
    (one,) = responses(exchange)
    found: dict[str, Any] = one["result"]
    return found


def notices(exchange: Exchange) -> list[str]:
    """The texts of callfuse's own in the results of an answer."""
    blocks = [block for one in responses(exchange) for block in one.get("result", {}).get("content", [])]
    return [block["text"] for block in blocks if str(block.get("text")).startswith("[callfuse]")]

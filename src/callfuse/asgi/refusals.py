"""Refuse WebSocket handshakes on guarded paths, because a WebSocket would not be guarded.

Clients that support both, such as Codex, then continue over HTTP.
"""

from typing import Final

from callfuse.asgi.types import Headers, Receive, Scope, Send

UPGRADE_REQUIRED: Final = 426
REASON: Final = (
    "callfuse guards tool calls over HTTP, not over a WebSocket: use HTTP, "
    "or set tool_call_loop.websocket to pass, which leaves this path unguarded"
)
_EXTENSION: Final = "websocket.http.response"
POLICY_VIOLATION: Final = 1008


def is_handshake(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether an HTTP request asks for a WebSocket, at a server without WebSockets."""
    return bool(scope.get("method") == "GET" and headers.get(b"upgrade", b"").strip().lower() == b"websocket")


async def refuse_handshake(content: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a handshake with 426 and this body, an error of the dialect. If the server has no extension for that,
    close it, which servers turn into 403."""
    headers: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"upgrade", b"HTTP/1.1"),
        (b"connection", b"upgrade"),
        (b"x-should-retry", b"false"),
    ]
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        if _EXTENSION not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "callfuse guards HTTP only"})
            return
        kind = _EXTENSION
    await send({"type": f"{kind}.start", "status": UPGRADE_REQUIRED, "headers": headers})
    await send({"type": f"{kind}.body", "body": content, "more_body": False})

"""Act as an ASGI server for one exchange, for programs that measure in process. Uses no code of callfuse."""

import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]


def scope_of(path: str, headers: Headers = ()) -> Scope:
    """Return the scope of a POST."""
    return {"type": "http", "method": "POST", "path": path, "headers": headers, "root_path": ""}


async def timed(app: ASGIApp, path: str, body: bytes, headers: Headers = ()) -> float:
    """Return the seconds of CPU time of one exchange. Messages of the app are dropped at no cost."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        """Drop a message."""

    scope = scope_of(path, headers)
    begin = time.process_time()
    await app(scope, receive, send)
    return time.process_time() - begin

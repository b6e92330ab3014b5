"""A call of the app whose refusal may be answered: where the vendor names what it misses, it gets it, once.

Only a refusal of the request itself (400) is kept back, until it is whole; every other answer passes as it comes.
"""

from collections.abc import Awaitable, Callable

from callfuse.asgi import headers
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send

Mend = Callable[[bytes, bytes], bytes | None]
"""The request's body and the error's: a body that the vendor may take, or None."""

REFUSED = 400
MAX_ERROR_BYTES = 65536


class Mending:
    """An app around the app."""

    def __init__(self, app: ASGIApp, mend: Mend) -> None:
        self._app = app
        self._mend = mend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, and a second one where the first is refused for what can be mended."""
        asked: list[bytes] = []
        refusal: list[Message] = []
        size = 0

        async def heard() -> Message:
            message = await receive()
            asked.append(message.get("body", b""))
            return message

        def answered(message: Message) -> Awaitable[None]:
            nonlocal size
            if refusal or (message["type"] == "http.response.start" and message["status"] == REFUSED):
                size += len(message.get("body", b""))
                refusal.append(message)
                return kept()
            return send(message)

        async def kept() -> None:
            if size > MAX_ERROR_BYTES:
                await passed()

        async def passed() -> None:
            while refusal:
                await send(refusal.pop(0))

        try:
            await self._app(scope, heard, answered)
        except Exception:
            await passed()
            raise
        error = b"".join(message.get("body", b"") for message in refusal)
        mended = self._mend(b"".join(asked), error) if refusal else None
        if mended is None:
            await passed()
            return

        body = iter([{"type": "http.request", "body": mended, "more_body": False}])

        async def again() -> Message:
            return next(body, None) or await receive()

        await self._app(headers.for_body(scope, mended, again=True), again, send)

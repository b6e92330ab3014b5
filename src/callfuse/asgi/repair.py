"""A call of the app whose refusal may be repaired: a vendor that names what it misses in a request gets it, once.

Only a refusal of the request itself (400) is kept back, until it is whole; every other answer passes as it comes.
"""

from collections.abc import Awaitable, Callable

from callfuse.asgi import headers
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send

Repair = Callable[[bytes, bytes], bytes | None]
"""The refused body and the error's body go in; a body that the vendor may take comes out, or None."""

REFUSED = 400
MAX_ERROR_BYTES = 65536


class RepairingApp:
    """The app, with one more try where `repair` knows what to do about a refusal."""

    def __init__(self, app: ASGIApp, repair: Repair) -> None:
        self._app = app
        self._repair = repair

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, and a second one where the first is refused for something that can be repaired."""
        asked: list[bytes] = []
        refusal: list[Message] = []
        size = 0

        async def receive_and_note() -> Message:
            message = await receive()
            asked.append(message.get("body", b""))
            return message

        def send_or_keep(message: Message) -> Awaitable[None]:
            nonlocal size
            if refusal or (message["type"] == "http.response.start" and message["status"] == REFUSED):
                size += len(message.get("body") or b"")
                refusal.append(message)
                return give_up_if_long()
            asked.clear()  # an answer may come for minutes
            return send(message)

        async def give_up_if_long() -> None:
            if size > MAX_ERROR_BYTES:
                await send_kept()

        async def send_kept() -> None:
            while refusal:
                await send(refusal.pop(0))

        try:
            await self._app(scope, receive_and_note, send_or_keep)
        except Exception:
            await send_kept()
            raise
        error = b"".join(message.get("body") or b"" for message in refusal)
        repaired = self._repair(b"".join(asked), error) if refusal else None
        if repaired is None:
            await send_kept()
            return

        body = iter([{"type": "http.request", "body": repaired, "more_body": False}])

        async def receive_repaired() -> Message:
            return next(body, None) or await receive()

        await self._app(headers.for_body(scope, repaired, again=True), receive_repaired, send)

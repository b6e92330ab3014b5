"""Call the app, and again with a repaired body if the vendor refuses the first one with an error that can be fixed.

Only answers of status 400 are held back, until they are complete. Every other answer passes unchanged.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from callfuse.asgi import headers, off_loop
from callfuse.asgi.answer import START
from callfuse.asgi.scopes import snapshot
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send

Repair = Callable[[bytes, bytes], bytes | None]
"""Takes the refused body and the error's body; returns a body that the vendor may accept, or None."""

REFUSED = 400
MAX_ERROR_BYTES = 65536
"""The most bytes of a refusal that are held back, far more than a vendor's error has. A longer one passes."""


class RepairingApp:
    """Calls the app, and retries once if `repair` can fix a refused body."""

    def __init__(self, app: ASGIApp, repair: Repair) -> None:
        self._app = app
        self._repair = repair

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, and again if the first call was refused for a reason that can be repaired."""
        first, before = _FirstTry(receive, send), snapshot(scope)
        try:
            await self._app(scope, first.receive, first.send)
        except Exception:  # raised again, after the refusal was sent
            first.forget_request()
            await first.send_refusal()
            raise
        repaired = None
        if first.is_refused:
            refused = first.body
            repaired = await off_loop.run(partial(self._repair, refused, first.error), len(refused))
        if repaired is None:
            await first.send_refusal()
            return

        body = iter([{"type": "http.request", "body": repaired, "more_body": False}])

        async def receive_repaired() -> Message:
            return next(body, None) or await receive()

        await self._app(headers.for_body(before, repaired, again=True), receive_repaired, send)


class _FirstTry:
    """The `receive` and `send` of the first call: records the body that the app reads, and holds back a refusal."""

    __slots__ = ("_asked", "_receive", "_refusal", "_send", "_size")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._asked: list[bytes] = []
        self._refusal: list[Message] = []
        self._size = 0

    @property
    def is_refused(self) -> bool:
        """Whether a refusal is held back."""
        return bool(self._refusal)

    @property
    def body(self) -> bytes:
        """The part of the request's body that the app has read."""
        return b"".join(self._asked)

    @property
    def error(self) -> bytes:
        """The refusal's body."""
        return b"".join(message.get("body") or b"" for message in self._refusal)

    def forget_request(self) -> None:
        """Drop the request's body, because the exception's traceback may keep this object alive."""
        self._asked.clear()

    async def receive(self) -> Message:
        """Take a message for the app, and record the body."""
        message = await self._receive()
        self._asked.append(message.get("body") or b"")
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Take a message of the app. Returns the server's own awaitable unless the message is part of a refusal."""
        if not self._refusal and not (message["type"] == START and message["status"] == REFUSED):
            self._asked.clear()  # free it while the answer streams
            return self._send(message)
        self._size += len(message.get("body") or b"")
        self._refusal.append(message)
        return self._give_up_if_long()

    async def _give_up_if_long(self) -> None:
        if self._size > MAX_ERROR_BYTES:
            await self.send_refusal()

    async def send_refusal(self) -> None:
        """Send the refusal that was held back, if any."""
        while self._refusal:
            await self._send(self._refusal.pop(0))

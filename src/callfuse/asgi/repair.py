"""A call of the app whose refusal may be repaired: a vendor that names what it misses in a request gets it, once.

Only a refusal of the request itself (400) is kept back, until it is whole; every other answer passes as it comes.
"""

from collections.abc import Awaitable, Callable

from callfuse.asgi import headers
from callfuse.asgi.answer import START
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
        first = _FirstTry(receive, send)
        try:
            await self._app(scope, first.receive, first.send)
        except Exception:  # it goes on to the host, behind what was kept back
            await first.send_refusal()
            raise
        repaired = self._repair(first.body, first.error) if first.is_refused else None
        if repaired is None:
            await first.send_refusal()
            return

        body = iter([{"type": "http.request", "body": repaired, "more_body": False}])

        async def receive_repaired() -> Message:
            return next(body, None) or await receive()

        await self._app(headers.for_body(scope, repaired, again=True), receive_repaired, send)


class _FirstTry:
    """The `receive` and `send` of the first call: notes the body that is asked for, keeps a refusal back."""

    __slots__ = ("_asked", "_receive", "_refusal", "_send", "_size")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._asked: list[bytes] = []
        self._refusal: list[Message] = []
        self._size = 0

    @property
    def is_refused(self) -> bool:
        """Whether a refusal is kept back."""
        return bool(self._refusal)

    @property
    def body(self) -> bytes:
        """The request's body, as far as the app has read it."""
        return b"".join(self._asked)

    @property
    def error(self) -> bytes:
        """The refusal's body."""
        return b"".join(message.get("body") or b"" for message in self._refusal)

    async def receive(self) -> Message:
        """The app's `receive`."""
        message = await self._receive()
        self._asked.append(message.get("body") or b"")
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """The app's `send`. What is no refusal goes on by the server's own awaitable."""
        if not self._refusal and not (message["type"] == START and message["status"] == REFUSED):
            self._asked.clear()  # an answer may come for minutes
            return self._send(message)
        self._size += len(message.get("body") or b"")
        self._refusal.append(message)
        return self._give_up_if_long()

    async def _give_up_if_long(self) -> None:
        if self._size > MAX_ERROR_BYTES:
            await self.send_refusal()

    async def send_refusal(self) -> None:
        """Let go what was kept back, if there is anything."""
        while self._refusal:
            await self._send(self._refusal.pop(0))

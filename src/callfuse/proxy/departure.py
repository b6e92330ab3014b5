"""The client's leaving, turned into the end of the exchange.

In: the `receive` of one exchange. Out: a block of code that is left, silently, as soon as the client has gone, whatever
it was waiting for: the upstream's headers, the next chunk, a slow send. A cancellation by anyone else goes through.
"""

import asyncio
from types import TracebackType

from callfuse.proxy.asgi import Message, Receive


class Departure:
    """Cancels the exchange's task when its client leaves, and takes that cancellation back at the end of the block.

    It is the pattern of `asyncio.timeout`, the client in the place of the clock: one task an exchange, none a chunk.
    """

    __slots__ = ("_cancelling", "_listener", "_over", "_task", "gone", "receive")

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.gone = False
        self._over = False
        self._listener: asyncio.Future[Message] | None = None

    def __enter__(self) -> "Departure":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an exchange runs in a task of asyncio")
        self._task = task
        self._cancelling = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> bool:
        self._over = True
        if self._listener is not None:
            self._listener.cancel()
        if not self.gone:
            return False
        ours = self._task.uncancel() <= self._cancelling
        return ours and kind is not None and issubclass(kind, Exception | asyncio.CancelledError)

    def listen(self) -> None:
        """From the end of the request on, the next message can only be the disconnect."""
        if not self._over:
            self._listener = asyncio.ensure_future(self.receive())
            self._listener.add_done_callback(self._heard)

    def _heard(self, listener: "asyncio.Future[Message]") -> None:
        # A host whose `receive` fails has lost the client too. One that goes on with the request breaks the protocol:
        # it is not asked again, since a `receive` that never waits would keep the loop busy for ever.
        if not listener.cancelled() and (listener.exception() or listener.result()["type"] == "http.disconnect"):
            self.left()

    def left(self) -> None:
        """The client has gone: end the block."""
        if not self._over and not self.gone:
            self.gone = True
            self._task.cancel()

"""End an exchange as soon as its client disconnects.

When the client has gone, the block of a `Departure` ends without an exception, whatever it awaits: the headers of the
upstream, the next chunk, a slow send. A cancellation from elsewhere passes through.
"""

import asyncio
from types import TracebackType

from callfuse.proxy.asgi import Message, Receive


class Departure:
    """Cancels the task of an exchange when its client disconnects, and swallows that cancellation after the block.

    It works like `asyncio.timeout`, with the client instead of the clock. It needs one task for an exchange, not one
    for each chunk. `gone`: the client has disconnected. Raises RuntimeError outside of an asyncio task.
    """

    __slots__ = ("_cancelling", "_ended", "_listener", "_task", "gone", "receive")

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.gone = False
        self._ended = False
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
        self._ended = True
        if self._listener is not None:
            self._listener.cancel()
        if not self.gone:
            return False
        ours = self._task.uncancel() <= self._cancelling
        return ours and kind is not None and issubclass(kind, Exception | asyncio.CancelledError)

    def listen(self) -> None:
        """Wait for the disconnect in the background. Call this after the end of the request, when no other message can
        come."""
        if not self._ended:
            self._listener = asyncio.ensure_future(self.receive())
            self._listener.add_done_callback(self._on_message)

    def _on_message(self, listener: "asyncio.Future[Message]") -> None:
        # If the host's `receive` raises, the client is gone. A further request message breaks the protocol: it ends
        # the listening, because a `receive` that never waits would keep the event loop busy forever.
        if not listener.cancelled() and (listener.exception() or listener.result()["type"] == "http.disconnect"):
            self.mark_gone()

    def mark_gone(self) -> None:
        """Record that the client has gone, and end the block."""
        if not self._ended and not self.gone:
            self.gone = True
            self._task.cancel()

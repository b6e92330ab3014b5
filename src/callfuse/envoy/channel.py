"""Connect the task that reads Envoy's stream with the task that runs the middleware."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from callfuse.envoy import messages

MOST_WAITING: Final = 64
"""The most messages that wait to be read. Further ones wait in Envoy, which then slows down reading the vendor's
answer. Each has one read of Envoy, about 16 KB."""

Write = Callable[[Any], Awaitable[None]]


class StreamOverError(OSError):
    """Raised when Envoy's stream is over, so that nothing can reach the client any more."""


class Inbox:
    """Keeps messages from Envoy, in their order, until they are read."""

    __slots__ = ("_changed", "_is_over", "_messages")

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._is_over = False

    async def put(self, message: Any) -> bool:
        """Add a message as soon as there is room. Returns False if there is no reader any more."""
        while len(self._messages) >= MOST_WAITING and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        if not self._is_over:
            self._messages.append(message)
            self._changed.set()
        return not self._is_over

    async def get(self) -> Any | None:
        """Return the next message; None if there will be no more."""
        while not self._messages:
            if self._is_over:
                return None
            self._changed.clear()
            await self._changed.wait()
        if len(self._messages) == MOST_WAITING:
            self._changed.set()
        return self._messages.popleft()

    def end(self) -> list[Any]:
        """Stop taking messages. Returns those that were not read."""
        left = list(self._messages)
        self._is_over = True
        self._messages.clear()
        self._changed.set()
        return left


class Replies:
    """Sends the replies to Envoy, and keeps read messages until their reply. `write` sends one reply, and raises
    StreamOverError if it cannot."""

    __slots__ = ("_lock", "_unanswered", "_write", "modes")

    def __init__(self, first: Any, write: Write) -> None:
        self.modes = messages.modes_of(first)
        self._lock = asyncio.Lock()
        self._unanswered = [first]
        self._write = write

    @property
    def buffers(self) -> bool:
        """Whether Envoy waits for the reply to the request's headers, and then sends the body as a whole."""
        return bool(self.modes[0] == messages.BUFFERED)

    def owe(self, message: Any) -> None:
        """Note a message that was read and needs a reply."""
        self._unanswered.append(message)

    async def send(self, replies: Iterable[Any]) -> None:
        """Send replies, which answer all messages that were read."""
        async with self._lock:
            for reply in replies:
                await self._write(reply)
            self._unanswered.clear()

    async def send_unchanged(self, unread: Iterable[Any]) -> None:
        """Forward, unchanged, read messages without a reply, and then unread ones."""
        async with self._lock:
            passing, self._unanswered = [*self._unanswered, *unread], []
            for message in passing:
                for reply in messages.unchanged(message, self.modes):
                    await self._write(reply)

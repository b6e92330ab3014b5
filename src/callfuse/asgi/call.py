"""One call of the wrapped app: a task of its own, so that the exchange can go on before the app has returned."""

from collections.abc import Awaitable, Callable

import anyio

from callfuse.asgi.body import RequestBody
from callfuse.asgi.types import ASGIApp, Message, Scope

DISCONNECT = "http.disconnect"


class AppCall:
    """Runs the app once. `over` is set when it has returned or raised, or when it has been left.

    A call that has been left has said all that is wanted of it: what it still sends is dropped, it is told that the
    client has gone, and it may end in its own time (a framework's background tasks run then).
    """

    def __init__(
        self,
        app: ASGIApp,
        scope: Scope,
        body: RequestBody,
        content: bytes | None,
        answer: Callable[[Message], Awaitable[None]],
    ) -> None:
        self.over = anyio.Event()
        self.ended = False
        self.failure: BaseException | None = None
        self._app = app
        self._scope = scope
        self._receive = body.replay(content)
        self._answer = answer
        self._left = anyio.Event()
        self._cancel = anyio.CancelScope()

    async def run(self) -> None:
        """Call the app; what it raises is kept in `failure`."""
        with self._cancel:
            try:
                await self._app(self._scope, self.receive, self.send)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - the exchange raises it outside its task group
                self.failure = error
        self.ended = True
        self.over.set()

    def leave(self) -> None:
        """Nothing more is wanted of this call."""
        self._left.set()
        self.over.set()

    def cancel(self) -> None:
        """Leave this call and end it."""
        self.leave()
        self._cancel.cancel()

    async def send(self, message: Message) -> None:
        """The app's `send`."""
        if not self._left.is_set():
            await self._answer(message)

    async def receive(self) -> Message:
        """The app's `receive`: the body, then what the client does, until the call is left."""
        message: Message = {"type": DISCONNECT}
        if self._left.is_set():
            return message

        async def next_message() -> None:
            nonlocal message
            message = await self._receive()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(next_message)
            await self._left.wait()
            tasks.cancel_scope.cancel()
        return message

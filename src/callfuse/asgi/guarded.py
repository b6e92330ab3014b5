"""One exchange whose answer may have to be held: the wrapped app is called, and called again where the model is asked
again; its messages go through the guard, and what the guard lets go reaches the client.
"""

import logging
import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from callfuse.asgi import headers
from callfuse.asgi.body import RequestBody
from callfuse.asgi.shape import Shape, is_success, shape_of
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import ASGIApp, Message, Scope, Send
from callfuse.dialects.base import Dialect, Request
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.stream.guard import StreamGuard
from callfuse.stream.judge import Judge
from callfuse.stream.record import Record
from callfuse.stream.step import Guard
from callfuse.stream.whole import WholeGuard

logger = logging.getLogger("callfuse")

Review = Callable[[list[Verdict]], Awaitable[list[Verdict]]]
"""Shows findings to a callback, which may change what is done about them."""
Settle = Callable[[Record], Awaitable[None]]
"""Keeps and tells what an exchange has brought."""
Unguarded = Callable[[str], None]
"""Counts an answer that could not be guarded, by its cause."""


class GuardedExchange:
    """Runs the app for one request of which a call could be withheld."""

    def __init__(
        self,
        app: ASGIApp,
        scope: Scope,
        body: RequestBody,
        send: Send,
        *,
        dialect: Dialect,
        request: Request,
        judge: Judge,
        review: Review,
        settle: Settle,
        unguarded: Unguarded,
    ) -> None:
        self._app = app
        self._scope = scope
        self._body = body
        self._send = send
        self._dialect = dialect
        self._request = request
        self._judge = judge
        self._settings = judge.settings
        self._review = review
        self._settle = settle
        self._unguarded = unguarded
        self._guard: Guard | None = None
        self._client = ClientStream(send)
        self._ask: bytes | None = None
        self._shape = Shape()
        self._beating = False
        self._held_since = 0.0
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self, content: bytes | None) -> None:
        """Call the app with this body (None: as it came) and deliver its answer. Raises only what the app raises."""
        failure: Exception | None = None
        async with anyio.create_task_group() as self._tasks:
            try:
                await self._run(content)
            except Exception as error:  # noqa: BLE001 - raised again outside the group, which would wrap it
                failure = error
            self._tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _run(self, content: bytes | None) -> None:
        scope = headers.for_body(self._scope, content, identity=True)
        try:
            await self._app(scope, self._body.replay(content), self._first_answer)
        except Exception:
            await self._cut()
            raise
        await self._cut()
        while self._ask is not None and not self._body.gone:
            await self._ask_again(self._ask)

    async def _cut(self) -> None:
        """The app has ended its call; if not its answer, the client sees what it would have seen."""
        if self._guard is not None and self._ask is None and not self._client.closed:
            await self._client.abandon(self._guard.cut())

    async def _first_answer(self, message: Message) -> None:
        """The `send` of the app's first call."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._guard is None:
            await self._send(message)
        elif self._ask is None and message["type"] == "http.response.body":
            await self._take(self._guard, message)
        elif self._ask is None:
            await self._client.pass_on(message)

    async def _begin(self, message: Message) -> None:
        """Choose the guard by status, encoding and form; an answer that cannot be guarded passes as it is."""
        shape = shape_of(message, self._dialect, self._request)
        if not is_success(message):
            await self._send(message)
        elif shape.unreadable:
            self._unguarded(shape.unreadable)
            await self._send(message)
        else:
            self._shape = shape
            if shape.stream:
                self._guard = StreamGuard(self._dialect, self._request, self._judge, shape.stream)
            else:
                self._guard = WholeGuard(self._dialect, self._request, self._judge)
            await self._client.start(message, at_once=shape.stream is not None)

    async def _take(self, guard: Guard, message: Message) -> None:
        """A part of an answer."""
        if self._client.closed:
            return
        chunk = message.get("body", b"")
        final = not message.get("more_body", False)
        out = guard.feed(chunk) if chunk else b""
        if final:
            out += guard.finish()
        if guard.due:
            step = guard.act(await self._review(guard.verdicts()))
            out += step.out
            self._ask = step.ask
        ends = final and not guard.pending
        await self._deliver(guard, out, final=ends)
        self._watch(guard)

    async def _deliver(self, guard: Guard, out: bytes, *, final: bool) -> None:
        """Bytes for the client; with the last ones the exchange is settled, before the client can come back."""
        action = ""
        if final:
            guard.settle()
            action = texts.header(guard.record.verdicts)
            if not self._body.gone:
                await self._settle(guard.record)
        await self._client.write(out, final=final, action=action)

    async def _ask_again(self, content: bytes) -> None:
        """Call the app with an amended request, and take the next rung where its answer is good for nothing."""
        guard = self._guard
        if guard is None:
            return
        self._ask = None
        accepted = begun = False

        async def answer(message: Message) -> None:
            nonlocal accepted, begun
            if message["type"] == "http.response.start":
                accepted = is_success(message) and self._shape == shape_of(message, self._dialect, self._request)
            elif message["type"] == "http.response.body" and accepted and self._ask is None:
                if not begun and message.get("body"):
                    begun = True
                    scope.deadline = math.inf
                    self._held_since = anyio.current_time()
                    guard.answered()
                if begun:
                    await self._take(guard, message)

        with anyio.CancelScope(deadline=anyio.current_time() + self._settings.steer_timeout_s) as scope:
            try:
                request = headers.for_body(self._scope, content, again=True, identity=True)
                await self._app(request, self._body.replay(content), answer)
            except Exception as error:
                await self._cut()
                if not guard.pending:
                    raise
                logger.warning("The model could not be asked again: %s", type(error).__name__)
        if guard.pending and self._ask is None:
            step = guard.unanswered()
            self._ask = step.ask
            await self._deliver(guard, step.out, final=step.ask is None)

    def _watch(self, guard: Guard) -> None:
        """Look after a hold that has begun."""
        if self._tasks is None or self._beating or not guard.holding:
            return
        self._beating = self._client.shared = True
        self._held_since = self._client.last_sent = anyio.current_time()
        self._tasks.start_soon(self._beat, guard)

    async def _beat(self, guard: Guard) -> None:
        """Keep the connection open during a hold, and end a hold that lasts too long."""
        try:
            while guard.holding and not self._client.closed:
                now = anyio.current_time()
                judging = guard.pending or guard.due
                deadline = math.inf if judging else self._held_since + self._settings.max_hold_s
                if now >= deadline:
                    await self._client.write(guard.fail("max_hold_s"))
                    return
                if now >= self._client.last_sent + self._settings.heartbeat_s:
                    await self._client.write(self._dialect.heartbeat)
                await anyio.sleep(max(0.001, min(deadline, self._client.last_sent + self._settings.heartbeat_s) - now))
        except Exception as error:  # noqa: BLE001 - the client's end is gone; the app will learn it from its own send
            logger.debug("No heartbeat: %s", type(error).__name__)
        finally:
            self._beating = False

"""One exchange whose answer may have to be held: the wrapped app is called, and called again where the model is asked
again; its messages go through the guard, and what the guard lets go reaches the client.
"""

import logging
import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from callfuse import wire
from callfuse.asgi import headers
from callfuse.asgi.address import addressed
from callfuse.asgi.body import RequestBody
from callfuse.asgi.call import AppCall
from callfuse.asgi.shape import WHOLE, Shape, is_success, shape_of
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import ASGIApp, Message, Scope, Send
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.guard import Guard
from callfuse.guard.judge import Judge
from callfuse.guard.record import Record
from callfuse.guard.step import Ask
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict

logger = logging.getLogger("callfuse")

Review = Callable[[list[Verdict]], Awaitable[list[Verdict]]]
"""Shows findings to a callback, which may change what is done about them."""
Settle = Callable[[Record], Awaitable[None]]
"""Tells and keeps what an exchange has brought whose answer was delivered."""
Tell = Callable[[Record], None]
"""Tells what an exchange has brought whose answer was not."""
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
        tell: Tell,
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
        self._tell = tell
        self._unguarded = unguarded
        self._guard: Guard | None = None
        self._client = ClientStream(send)
        self._ask: Ask | None = None
        self._shape = WHOLE
        self._beating = False
        self._held_since: float | None = None
        self._beat_scope: anyio.CancelScope | None = None
        self._call: AppCall | None = None
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self, content: bytes | None) -> None:
        """Call the app with this body (None: as it came) and deliver its answer. Raises only what the app raises."""
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    failure = await self._run(content)
                except Exception as error:  # noqa: BLE001 - raised again outside the group, which would wrap it
                    failure = error
                if self._beat_scope is not None:
                    self._beat_scope.cancel()
                if self._guard is not None:
                    self._tell(self._guard.record)
        finally:  # what holds this object is let go: it needs no collector then
            self._call = self._tasks = self._beat_scope = None
        if failure is not None:
            raise failure

    async def _run(self, content: bytes | None) -> BaseException | None:
        """The calls of the app, one after the other; what the one raised that the client's answer is from."""
        first = headers.for_body(self._scope, content, identity=True)
        started = self._start(first, content, self._first_answer)
        await started.over.wait()
        call: AppCall | None = started
        while self._guard is not None and self._ask is not None and not self._body.gone:
            call = await self._ask_again(self._guard, self._ask)
        if call is not None and call.ended and self._ask is None:
            await self._cut()
            return call.failure
        return None

    def _start(self, scope: Scope, content: bytes | None, answer: Send) -> AppCall:
        self._call = AppCall(self._app, scope, self._body, content, answer)
        if self._tasks is not None:
            self._tasks.start_soon(self._call.run)
        return self._call

    def _asks(self) -> bool:
        """Whether the model is to be asked again."""
        return self._ask is not None

    async def _cut(self) -> None:
        """The app has ended its call; if not its answer, the client sees what it would have seen."""
        if self._guard is not None and not self._client.closed:
            await self._client.abandon(self._guard.cut())

    async def _first_answer(self, message: Message) -> None:
        """The `send` of the app's first call."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._guard is None:
            await self._send(message)
        elif message["type"] == "http.response.body":
            await self._take(self._guard, message)
        else:
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
            self._guard = Guard(self._dialect, self._request, self._judge, shape.stream or wire.WHOLE)
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
        await self._deliver(guard, out, final=final and not guard.pending)
        self._watch(guard)
        if self._ask is not None and self._call is not None:
            self._call.leave()

    async def _deliver(self, guard: Guard, out: bytes, *, final: bool) -> None:
        """Bytes for the client; with the last ones the exchange is settled, before the client can come back."""
        action = ""
        if final:
            guard.settle()
            action = texts.header(guard.record.verdicts)
            if not self._body.gone:
                await self._settle(guard.record)
        await self._client.write(out, final=final, action=action)

    async def _ask_again(self, guard: Guard, ask: Ask) -> AppCall | None:
        """Call the app with an amended request, and take the next rung where its answer is good for nothing, or where
        the request has no address."""
        self._ask = None
        accepted = begun = False
        cause = "it did not answer"

        async def answer(message: Message) -> None:
            nonlocal accepted, begun, cause
            if message["type"] == "http.response.start":
                shape = shape_of(message, self._dialect, self._request)
                accepted = is_success(message) and shape == self._shape
                cause = _refusal(message, shape) if not accepted else "its answer broke off"
            elif message["type"] != "http.response.body":
                if self._client.closed:
                    await self._client.pass_on(message)
            elif accepted:
                if not begun and message.get("body"):
                    begun = True
                    first_byte.deadline = math.inf
                    self._held_since = None
                    guard.answered()
                if begun:
                    await self._take(guard, message)

        scope = headers.for_body(self._scope, ask.body, again=True, identity=True)
        if ask.model and not addressed(scope, ask.model, in_body=bool(self._request.model)):
            guard.record.unasked.append("path")
            await self._fall(guard, f"no path to {ask.model}")
            return None
        call = self._start(scope, ask.body, answer)
        with anyio.CancelScope(deadline=anyio.current_time() + self._settings.steer_timeout_s) as first_byte:
            await call.over.wait()
        if not call.over.is_set():
            cause = f"no answer within {self._settings.steer_timeout_s:g} s"
            call.cancel()
        if guard.pending and not self._asks():
            await self._fall(guard, type(call.failure).__name__ if call.failure else cause)
            call.failure = None
        return call

    async def _fall(self, guard: Guard, cause: str) -> None:
        """What was asked for has failed: take the next rung."""
        logger.warning("The model could not be asked again: %s", cause)
        step = guard.unanswered()
        self._ask = step.ask
        await self._deliver(guard, step.out, final=step.ask is None)

    def _watch(self, guard: Guard) -> None:
        """Look after a hold that has begun, and forget one that has ended."""
        if not guard.held_bytes:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = anyio.current_time()
        if self._tasks is not None and not self._beating and guard.holding:
            self._beating = self._client.shared = True
            self._client.last_sent = anyio.current_time()
            self._tasks.start_soon(self._beat, guard)

    async def _beat(self, guard: Guard) -> None:
        """Keep the connection open during a hold, and end a hold that lasts too long."""
        try:
            with anyio.CancelScope() as self._beat_scope:
                while guard.holding and not self._client.closed:
                    await self._beat_once(guard)
        except Exception as error:  # noqa: BLE001 - the client's end is gone; the app will learn it from its own send
            logger.debug("No heartbeat: %s", type(error).__name__)
        finally:
            self._beating = False

    async def _beat_once(self, guard: Guard) -> None:
        """Do what is due, and sleep until something else is."""
        now = anyio.current_time()
        deadline = math.inf
        if self._held_since is not None and not guard.due:
            deadline = self._held_since + self._settings.max_hold_s
        if now >= deadline:
            self._held_since = None
            if guard.pending and self._call is not None:
                self._call.cancel()
            else:
                await self._client.write(guard.fail("max_hold_s"))
            return
        if now >= self._client.last_sent + self._settings.heartbeat_s:
            self._client.last_sent = now
            await self._client.write(self._dialect.heartbeat)
        await anyio.sleep(max(0.001, min(deadline, self._client.last_sent + self._settings.heartbeat_s) - now))


def _refusal(message: Message, shape: Shape) -> str:
    """Why the start of an answer cannot go on with the client's."""
    if not is_success(message):
        return f"it answered with status {message['status']}"
    return f"its answer cannot be read: {shape.unreadable}" if shape.unreadable else "its answer came in another form"

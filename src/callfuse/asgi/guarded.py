"""Delivers a guarded answer: feeds the app's messages to the guard and sends the client what the guard releases. One
client's answer may take several answers of the app.
"""

from functools import partial

from callfuse.asgi.answer import BODY, START, WHOLE, Shape, is_success, shape_of
from callfuse.asgi.body import RequestBody
from callfuse.asgi.keep import Keeper
from callfuse.asgi.review import Review
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.asgi.stream import ClientStream
from callfuse.asgi.types import Message
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.judge import Judge
from callfuse.guard.step import Ask
from callfuse.observe import log


class GuardedAnswer:
    """One client's answer.

    `ask`: the request to make when the current call of the app is over; None if there is none. `guard`: None until an
    answer that can be guarded has begun.
    """

    __slots__ = (
        "_body",
        "_judge",
        "_request",
        "_review",
        "_shape",
        "_stream_format",
        "ask",
        "client",
        "dialect",
        "guard",
        "keeper",
        "settings",
    )

    def __init__(
        self,
        dialect: Dialect,
        request: Request,
        judge: Judge,
        review: Review,
        keeper: Keeper,
        body: RequestBody,
        client: ClientStream,
    ) -> None:
        self.ask: Ask | None = None
        self.guard: SafeGuard | None = None
        self.client = client
        self.dialect = dialect
        self.keeper = keeper
        self.settings = judge.settings
        self._body = body
        self._judge = judge
        self._request = request
        self._review = review
        self._shape: Shape = WHOLE
        self._stream_format = partial(dialect.stream_format, request=request)

    @property
    def is_wanted(self) -> bool:
        """Whether the client is still there."""
        return not self._body.gone

    @property
    def names_model(self) -> bool:
        """Whether the request's body names a model."""
        return bool(self._request.model)

    async def take_first(self, message: Message) -> None:
        """Take a message of the app's first answer."""
        kind = message["type"]
        if kind == START:
            with self.keeper.fail_open.stage("while guarding"):
                self._choose_guard(message)
            if self.guard is not None:
                await self.client.start(message, at_once=self._shape.stream is not None)
                return
        if self.guard is not None and kind == BODY:
            await self.take(self.guard, message)
        else:
            await self.client.pass_on(message)

    def _choose_guard(self, message: Message) -> None:
        """Make a guard for the answer that starts with this message, unless its status, encoding or form rules it
        out."""
        if not is_success(message):
            return
        self._shape = shape_of(message, self._stream_format)
        if self._shape.unreadable:
            self.keeper.unguarded(self._shape.unreadable)
        else:
            keeper = self.keeper
            self.guard = SafeGuard(
                self.dialect, self._request, self._judge, self._shape, keeper.fail_open, log.tracer(keeper.session)
            )

    def refusal(self, message: Message) -> str:
        """Why a later answer, by its start, cannot continue the client's; empty if it can."""
        with self.keeper.fail_open.stage("while asking"):
            if not is_success(message):
                return f"it answered with status {message['status']}"
            shape = shape_of(message, self._stream_format)
            if shape.unreadable:
                return f"its answer cannot be read: {shape.unreadable}"
            return "" if shape == self._shape else "its answer came in another form"
        return "its answer cannot be read"

    async def take(self, guard: SafeGuard, message: Message) -> None:
        """Take a body message: feed the guard, carry out a verdict that is needed, and write what may leave."""
        if self.client.closed:
            return
        final = not message.get("more_body", False)
        out = guard.feed(message.get("body") or b"", final=final)
        if guard.needs_verdict:
            step = await guard.decide(self._review.review)
            out += step.out
            self.ask = step.ask
        if final and not guard.pending:
            await self._finish(guard, out)
        else:
            await self.client.write(out)

    async def escalate(self, cause: str) -> None:
        """The model could not be asked again, for this cause: take the next rung."""
        if self.guard is None:
            return
        with self.keeper.fail_open.stage("while reporting"):
            log.steer_failure(cause)
        step = self.guard.escalate()
        self.ask = step.ask
        if step.ask is None:
            await self._finish(self.guard, step.out)
        else:
            await self.client.write(step.out)

    async def cut(self) -> None:
        """The call of the app is over. If its answer is not, send what was held and leave the answer unfinished."""
        if self.guard is not None and not self.client.closed:
            await self.client.abandon(self.guard.cut())

    def report(self) -> None:
        """Log and count what is still on record, e.g. after an answer that broke off."""
        if self.guard is not None:
            self.keeper.report(self.guard.record)

    async def _finish(self, guard: SafeGuard, out: bytes) -> None:
        """Write the last bytes. The exchange is settled first, because the client may send its next request right
        after."""
        action = guard.settle()
        if self.is_wanted:
            await self.keeper.settle(guard.record)
        await self.client.write(out, final=True, action=action)

"""The client's answer where a call of it may be withheld: the app's messages go in, and what the guard lets go reaches
the client, over as many answers of the app as it takes.
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

    `ask`: how the model is to be asked again, once the app's current answer is over. `guard`: None until an answer has
    begun that can be guarded.
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
        """A message of the app's first answer."""
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
        """By status, encoding and form; an answer that cannot be guarded passes as it is."""
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
        """Why the start of a later answer cannot go on with the client's; empty where it can."""
        with self.keeper.fail_open.stage("while asking"):
            if not is_success(message):
                return f"it answered with status {message['status']}"
            shape = shape_of(message, self._stream_format)
            if shape.unreadable:
                return f"its answer cannot be read: {shape.unreadable}"
            return "" if shape == self._shape else "its answer came in another form"
        return "its answer cannot be read"

    async def take(self, guard: SafeGuard, message: Message) -> None:
        """A part of an answer's body."""
        if self.client.closed:
            return
        final = not message.get("more_body", False)
        out = guard.feed(message.get("body") or b"", final=final)
        if guard.due:
            step = await guard.decide(self._review.review)
            out += step.out
            self.ask = step.ask
        if final and not guard.pending:
            await self._finish(guard, out)
        else:
            await self.client.write(out)

    async def escalate(self, cause: str) -> None:
        """The model could not be asked again: take the next rung."""
        if self.guard is None:
            return
        with self.keeper.fail_open.stage("while reporting"):
            log.steer_failure(cause)
        step = self.guard.unanswered()
        self.ask = step.ask
        if step.ask is None:
            await self._finish(self.guard, step.out)
        else:
            await self.client.write(step.out)

    async def cut(self) -> None:
        """The app has ended its call; if not its answer, the client sees what it would have seen."""
        if self.guard is not None and not self.client.closed:
            await self.client.abandon(self.guard.cut())

    def report(self) -> None:
        """Log and count what no settled answer has brought."""
        if self.guard is not None:
            self.keeper.report(self.guard.record)

    async def _finish(self, guard: SafeGuard, out: bytes) -> None:
        """The last bytes for the client; the exchange is settled before, for then the client can come back."""
        action = guard.settle()
        if self.is_wanted:
            await self.keeper.settle(guard.record)
        await self.client.write(out, final=True, action=action)

"""Call the wrapped app for the client, and again each time the model is asked again.

If a single call of the answer could be a loop (`GuardedExchange`), each call of the app runs in its own task, so that
the exchange can continue before the app has returned. If only too many calls in one answer could be a loop
(`WatchedCall`), the model is not asked again, and the app's call stays in the host's own task.
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Final

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from callfuse.asgi import headers
from callfuse.asgi.answer import BODY, START
from callfuse.asgi.beside import Beside
from callfuse.asgi.body import RequestBody
from callfuse.asgi.delivery import AnswerDelivery
from callfuse.asgi.driver import AnswerDriver
from callfuse.asgi.scopes import call as call_app
from callfuse.asgi.scopes import hand_back, snapshot
from callfuse.asgi.types import ASGIApp, Message, Receive, Scope, Send
from callfuse.guard.step import Ask
from callfuse.observe.events import AskedAgain

DISCONNECT = "http.disconnect"
MOST_UNHEEDED: Final = 8
"""Messages that an app may send after a disconnect before its `send` raises."""


class ClientGoneError(OSError):
    """Raised in an app that continues an answer after its end for the client."""


class Unheeded:
    """Drops messages that an app sends after a disconnect. `scope`: that of the app's call."""

    __slots__ = ("_left",)

    def __init__(self, scope: Scope) -> None:
        version = str(scope.get("asgi", {}).get("spec_version", "2.0")).split(".")
        raises = [int(part) if part.isdecimal() else 0 for part in version[:2]] >= [2, 4]
        self._left = 0 if raises else MOST_UNHEEDED

    async def note(self) -> None:
        """Drop a message. Raises ClientGoneError: at once if the host's own `send` would, as in version 2.4 of ASGI's
        HTTP protocol, else after a few messages."""
        self._left -= 1
        if self._left < 0:
            raise ClientGoneError
        await checkpoint()  # lets a waiting `receive` return the disconnect


class AppCall:
    """Runs the app once. `answer` takes its messages. `over` is set when the app has returned or raised, or when the
    call was left; `ended` only when the app has returned or raised.

    A call is left when its answer is complete or no longer needed. Its further messages are dropped, its `receive`
    reports a disconnect, and it may end later, because frameworks run background tasks then. `hang_up` is for a call in
    the middle of its answer: its `send` reports the disconnect, too.
    """

    __slots__ = (
        "_app",
        "_cancel",
        "_failure",
        "_left",
        "_receive",
        "_scope",
        "_unheeded",
        "answer",
        "ended",
        "over",
    )

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
        self._failure: BaseException | None = None
        self._app = app
        self._scope = scope
        self._receive = body.replay(content)
        self.answer = answer
        self._left = anyio.Event()
        self._unheeded: Unheeded | None = None
        self._cancel = anyio.CancelScope()

    async def run(self) -> None:
        """Call the app, and keep its exception for `take_failure`."""
        try:
            with self._cancel:
                await self._app(self._scope, self.receive, self.send)
        except anyio.get_cancelled_exc_class() as error:  # the app itself may raise it, too
            self._failure = error
            raise
        except BaseException as error:  # noqa: BLE001 - the exchange raises it outside its task group
            self._failure = error
        finally:
            self.ended = True
            self.over.set()

    def take_failure(self) -> BaseException | None:
        """Return and clear the exception of the app, if any, because its traceback refers to this call."""
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        """Drop references to the exchange, which is over, because frames of the app may keep this call alive."""
        self.answer, self._receive = _drop, _disconnect

    def leave(self) -> None:
        """Ignore the call from now on."""
        self._left.set()
        self.over.set()

    def cancel(self) -> None:
        """Leave the call and cancel its task."""
        self.leave()
        self._cancel.cancel()

    def hang_up(self) -> None:
        """Leave the call, and make the app see a disconnect of the client."""
        self._unheeded = Unheeded(self._scope)
        self.leave()

    async def send(self, message: Message) -> None:
        """Take a message of the app. Raises ClientGoneError if the app continues after `hang_up`."""
        if not self._left.is_set():
            await self.answer(message)
        elif self._unheeded is not None:
            await self._unheeded.note()

    async def receive(self) -> Message:
        """Return the body, then the client's messages; a disconnect once the call is left."""
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


async def _drop(_message: Message) -> None:
    """Drop a message that a call sends after its exchange."""


async def _disconnect() -> Message:
    return {"type": DISCONNECT}


class GuardedExchange:
    """Runs the app for one request if calls of the answer may be withheld.

    Raises only exceptions of the app and of the server's `send`.
    """

    __slots__ = ("_app", "_body", "_call", "_calls", "_delivery", "_driver", "_first", "_given", "_scope", "_tasks")

    def __init__(self, app: ASGIApp, scope: Scope, body: RequestBody, driver: AnswerDriver) -> None:
        self._app = app
        self._given = self._first = scope
        self._scope = snapshot(scope)
        self._body = body
        self._driver = driver
        self._delivery = driver.delivery
        self._delivery.runner = self
        self._call: AppCall | None = None
        self._calls: list[AppCall] = []
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self, scope: Scope, content: bytes | None) -> None:
        """Call the app with this scope and body (None: the original one) and deliver its answer."""
        failure: BaseException | None = None
        self._first = scope
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    failure = await self._run(scope, content)
                except Exception as error:  # noqa: BLE001 - raised again outside the group, which would wrap it
                    failure = error
                if self._delivery.timer is not None:
                    self._delivery.timer.stop()
            if failure is not None:
                raise failure
        finally:  # also breaks reference cycles: tasks, the app's frames and the traceback refer to this object
            self._delivery.report()  # also if the host has cancelled the exchange
            hand_back(scope, self._given)
            for call in self._calls:
                call.close()
            self._calls.clear()
            self._call = self._tasks = failure = content = None
            self._driver.close()
            del self._driver, self._delivery

    async def _run(self, scope: Scope, content: bytes | None) -> BaseException | None:
        """Make the calls one after another. Returns the exception of the call that gave the client's answer, if any."""
        delivery = self._delivery
        started = self._start(scope, content, self._take_first)
        await started.over.wait()
        call: AppCall | None = started
        while delivery.ask is not None and not self._body.gone:
            call = await self._ask_again(delivery.ask)
        if delivery.client.is_cut:
            return None
        if call is not None and call.ended and delivery.ask is None:
            await delivery.cut()
            return call.take_failure()
        return None

    def _start(self, scope: Scope, content: bytes | None, send: Send, *, again: bool = False) -> AppCall:
        app = self._delivery.keeper.traced(self._app) if again else self._app
        self._call = AppCall(app, scope, self._body, content, send)
        self._calls.append(self._call)
        if self._tasks is not None:
            self._tasks.start_soon(self._call.run)
        return self._call

    async def _take_first(self, message: Message) -> None:
        """Take a message of the first call, until its answer has started."""
        if message["type"] == START:
            hand_back(self._first, self._given)
            if self._call is not None:
                self._call.answer = self._driver.take
        await self._driver.take(message)

    def after_message(self) -> None:
        """Start the timer if a hold began. Leave the call if the model will be asked again, or hang up on it if its
        answer was cut short."""
        delivery = self._delivery
        if delivery.hold_began() and self._tasks is not None and delivery.timer is not None:
            self._tasks.start_soon(delivery.timer.run, self._cancel_call)
        if self._call is None:
            return
        if delivery.ask is not None and not delivery.ask.cuts:
            self._call.leave()
        elif delivery.ask is not None or delivery.client.is_cut:
            self._call.hang_up()

    async def drop(self) -> None:
        """Do nothing: `AppCall.send` drops the messages of a call after `hang_up`."""

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    async def _ask_again(self, ask: Ask) -> AppCall | None:
        """Call the app with an amended request. Escalates to the next rung if the answer cannot be used, or if no path
        leads to the model; in the latter case, returns None."""
        delivery = self._delivery
        delivery.ask = None
        scope = self._scope_for(ask)
        if scope is None:
            await delivery.escalate(f"the request's path cannot name the model {ask.model}")
            return None
        delivery.keeper.bus.emit(AskedAgain(delivery.keeper.tally.where, ask.model))
        limit_s = delivery.evidence.settings.steer_timeout_s
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as first_byte:
            later = LaterAnswer(self, self._driver, first_byte)
            call = self._start(scope, ask.body, later.send, again=True)
            await call.over.wait()
        cause = later.cause
        if not call.over.is_set():
            cause = f"no answer within {limit_s:g} s"
            call.cancel()
        if delivery.guard is not None and delivery.guard.state.pending and delivery.ask is None:
            failure = call.take_failure()
            await delivery.escalate(type(failure).__name__ if failure else cause)
        return call

    def _scope_for(self, ask: Ask) -> Scope | None:
        """Return the scope of an amended request; None if no path leads to the model to ask."""
        delivery = self._delivery
        with delivery.keeper.fail_open.stage("while asking"):
            scope = headers.for_body(self._scope, ask.body, again=True, identity=True)
            if not ask.model or headers.route_to_model(scope, ask.model, in_body=bool(delivery.evidence.request.model)):
                return scope
            if delivery.guard is not None:
                delivery.guard.record.unasked.append("path")
        return None


class LaterAnswer:
    """The app's answer to an amended request. Its first byte makes it the client's answer, and removes the deadline of
    `first_byte`. `cause`: why it did not become the client's answer, for the log."""

    __slots__ = ("_accepted", "_begun", "_driver", "_exchange", "_first_byte", "cause")

    def __init__(self, exchange: GuardedExchange, driver: AnswerDriver, first_byte: anyio.CancelScope) -> None:
        self.cause = "it did not answer"
        self._exchange = exchange
        self._driver = driver
        self._first_byte = first_byte
        self._accepted = self._begun = False

    async def send(self, message: Message) -> None:
        """Take a message of the app's call."""
        driver, delivery = self._driver, self._driver.delivery
        guard, kind = delivery.guard, message["type"]
        if guard is None:
            return
        if kind == START:
            refusal = driver.refusal(message)
            self._accepted = not refusal
            self.cause = refusal or "its answer broke off"
        elif kind != BODY:
            if delivery.client.closed:
                await delivery.client.pass_on(message)
        elif self._accepted:
            if not self._begun and message.get("body"):
                self._first_byte.deadline = math.inf
                if delivery.timer is not None:
                    delivery.timer.held_since = None  # its hold is timed from zero
                self._exchange.after_message()
                self._begun = self._accepted = guard.begin_next_answer()
            if self._begun and not await driver.feed(guard, message):
                self._exchange.after_message()


class WatchedCall:
    """Calls the app once, in the host's own task, for an answer in which only too many calls can be a finding."""

    __slots__ = ("_beside", "_body", "_delivery", "_scope", "_unheeded")

    def __init__(self, delivery: AnswerDelivery, body: RequestBody, scope: Scope) -> None:
        self._delivery = delivery
        self._beside = Beside()
        self._body = body
        self._scope = scope
        self._unheeded: Unheeded | None = None
        delivery.runner = self

    async def run(self, app: ASGIApp, used: Scope, given: Scope, receive: Receive, send: Send) -> None:
        """Call the app with a copy of the given scope, and copy back what the app wrote there."""
        async with self._beside, self:
            await call_app(app, used, given, receive, send)

    async def __aenter__(self) -> None:
        """On exit, suppress an error of an app whose answer was cut short, because `hang_up` may have caused it."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False  # a cancelled call must not wait for its client
        delivery = self._delivery
        if delivery.timer is not None:
            delivery.timer.stop()
        await delivery.cut()
        delivery.report()
        return delivery.client.is_cut

    def after_message(self) -> None:
        """Start heartbeats if a hold began, and hang up on the app if the answer was cut short."""
        if self._delivery.client.is_cut:
            self._body.hang_up()
        if self._delivery.hold_began() and self._delivery.timer is not None:
            self._beside.start(partial(self._delivery.timer.run, _nothing))

    async def drop(self) -> None:
        """Drop a message that the app sends after its answer was cut short."""
        if self._unheeded is None:
            self._unheeded = Unheeded(self._scope)
        await self._unheeded.note()


def _nothing() -> None:
    """Do nothing: no model is asked again, so there is no call to cancel."""

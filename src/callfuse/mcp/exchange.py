"""Handle one POST with calls of tools: judge them, let the app run the permitted ones, and read its answer.

One caller's calls are judged one after another. Long bodies are processed in a thread.
"""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from callfuse.asgi import headers, off_loop
from callfuse.asgi.body import RequestBody
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.scopes import hand_back
from callfuse.asgi.types import ASGIApp, Scope, Send
from callfuse.mcp import messages
from callfuse.mcp.answer import JSON, STREAM, AppAnswer
from callfuse.mcp.caller import Find, Pending, header_of, reply
from callfuse.mcp.callers import KnownCaller
from callfuse.mcp.messages import CallRequest, Posted
from callfuse.observe.bus import Bus
from callfuse.observe.events import ExchangeEnded, NotGuarded, action_of
from callfuse.policy import texts
from callfuse.wire.sse import event

_REFUSALS: Final = frozenset({401, 403})
"""Statuses by which a server refuses a client."""
_NO_SESSION: Final = 404
_OK: Final = 200


class Asked(NamedTuple):
    """One POST with calls. `client`: as in `Identity`. `says_read_only`: tells whether the server declared a tool as
    read-only to this client. `is_modern`: its protocol revision has typed results."""

    posted: Posted
    client: bytes
    says_read_only: Callable[[str], bool]
    is_modern: bool


class ToolExchange:
    """One POST with calls, and its answer. `known`: the caller."""

    def __init__(self, asked: Asked, known: KnownCaller, bus: Bus) -> None:
        self.known = known
        self._asked = asked
        self._bus = bus
        self._fail_open = FailOpen(bus, known.caller.where.session)
        self._pending: list[Pending] = []
        self._withheld: dict[int, CallRequest] = {}
        self._replies: list[bytes] = []
        self._answer: AppAnswer | None = None
        self._status = 0
        self._began = perf_counter()
        self._ending = self._cause = "error"

    async def judge(self, weight: int) -> None:
        """Judge the calls. If that fails, they run unjudged, or under `fail_closed` not at all. `weight`: the bytes of
        the body."""
        stage = self._fail_open.stage("while judging")
        with stage:
            async with self.known.lock:
                await off_loop.run(self._judge, weight)
        if stage.failed and self.known.caller.detector.settings.fail_closed:
            self._refuse_all()

    def _judge(self) -> None:
        caller = self.known.caller
        self._pending = caller.begin(self._asked.posted.calls, self._asked.client)
        held = [one for one in self._pending if one.withheld]
        says, is_modern = self._asked.says_read_only, self._asked.is_modern
        self._replies = [reply(caller, one, is_modern=is_modern, says_read_only=says(one.call.name)) for one in held]
        self._withheld = {one.request.at: one.request for one in held}
        self._cause = ""

    def _refuse_all(self) -> None:
        """Let no call run, because they could not be judged."""
        self._withheld = {one.at: one for one in self._asked.posted.calls}
        refuse = partial(messages.reply, kept=None, is_error=True, is_modern=self._asked.is_modern)
        self._replies = [refuse(one.id, notice=texts.unchecked_call(one.name)) for one in self._asked.posted.calls]

    @property
    def is_answered(self) -> bool:
        """Whether the app need not be called."""
        return not self._asked.posted.rest and len(self._withheld) == len(self._asked.posted.calls)

    async def answer(self, found: Mapping[bytes, bytes], send: Send) -> None:
        """Answer in place of the app. `found`: the headers of the request."""
        body = b"[" + b",".join(self._replies) + b"]" if self._asked.posted.is_batch else self._replies[0]
        accepted, content_type = found.get(b"accept", JSON), JSON
        if STREAM in accepted and JSON not in accepted and b"*/*" not in accepted:
            body, content_type = event(body, "message"), STREAM
        fields = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        if action := header_of(self._pending):
            fields.append((b"x-callfuse-action", action.encode()))
        await send({"type": "http.response.start", "status": _OK, "headers": fields})
        await send({"type": "http.response.body", "body": body, "more_body": False})
        self._ending, self._status = "complete", _OK

    async def run(self, app: ASGIApp, scope: Scope, body: RequestBody, send: Send) -> None:
        """Let the app run the calls that may run, and read its answer."""
        content = None
        if self._withheld and body.content is not None:
            content = messages.without(body.content, self._withheld.values())
        limit = self.known.caller.detector.settings.max_response_bytes
        self._answer = answer = AppAnswer(send, self._rewrite, body.share, limit, self._replies)
        receive = body.replay(content)
        body.release()
        own = headers.for_body(scope, content, identity=True)
        try:
            await app(own, receive, answer.take)
        finally:
            hand_back(own, scope)
        await answer.abandon()
        self._ending = "complete" if answer.complete else "broke off"

    async def _rewrite(self, data: bytes) -> bytes:
        """Record the responses in data of the answer. Returns the data with notices added."""
        with self._fail_open.stage("while reading a result"):
            return await settle(self.known, data, self._find)
        return data

    def _find(self, key: bytes) -> Pending | None:
        """Return the call for the key of a response; None if several calls have the key, because the result may belong
        to any of them."""
        found = [one for one in self._pending if one.request.key == key]
        return found[0] if len(found) == 1 else None

    def end(self, *, gone: bool) -> None:
        """End the exchange. The caller's lock must be held. `gone`: the client left before the end."""
        caller, answer, self._answer = self.known.caller, self._answer, None
        goes_on = answer is not None and answer.has_ids and self.known.is_session
        with self._fail_open.stage("at the end of a call"):
            for one in self._pending:
                (caller.await_later if goes_on else caller.give_up)(one)
        unread = ""
        if answer is not None:
            self._status, unread = answer.status, answer.unread
            answer.close()
        if unread:
            self._bus.emit(NotGuarded(unread, caller.where))
        mode = "passed" if self._cause else "guarded"
        self._bus.emit(
            ExchangeEnded(
                caller.where,
                "answered" if self.is_answered else mode,
                "client gone" if gone else self._ending,
                self._cause or unread,
                self._status,
                len(self._asked.posted.calls),
                next((action_of(one.found.verdict) for one in self._pending[::-1] if one.found is not None), ""),
                perf_counter() - self._began,
                0.0,
            )
        )

    @property
    def is_refused(self) -> bool:
        """Whether the server refused the client, or ended its session. Known only at the end."""
        return self._status in _REFUSALS or (self._status == _NO_SESSION and self.known.is_session)


async def settle(known: KnownCaller, data: bytes, find: Find) -> bytes:
    """Call `Caller.settle` with the caller's lock held, in a thread if the data are long."""
    async with known.lock:
        return await off_loop.run(partial(known.caller.settle, data, find), off_loop.weight_of(data))

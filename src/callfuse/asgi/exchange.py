"""One exchange: results in its request may carry texts, its answer is watched or guarded, what came of it is kept.

In a healthy timeline no call can be found to loop: then every message passes, whatever it holds, and is only looked at.
Where a call could be withheld the answer goes through a guard.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio

from callfuse.asgi import headers
from callfuse.asgi.body import RequestBody
from callfuse.asgi.event import LoopEvent, Where
from callfuse.asgi.guarded import GuardedExchange
from callfuse.asgi.mending import Mending
from callfuse.asgi.shape import Shape, is_success, shape_of
from callfuse.asgi.types import ASGIApp, Message, Scope, Send
from callfuse.conversations.identity import Lane, lane_at
from callfuse.conversations.ledger import LaneState, Ledger
from callfuse.conversations.notes import note_keys, notes_for
from callfuse.conversations.timeline import Conversation, read_conversation
from callfuse.dialects.base import Continuation, Continuing, Dialect, Request
from callfuse.guard.judge import Judge
from callfuse.guard.observer import Observer
from callfuse.guard.record import Record
from callfuse.model import ToolCall
from callfuse.observe import log
from callfuse.observe.counts import Counts
from callfuse.policy.ladder import OnLoopError, Verdict, wanted, warned
from callfuse.policy.settings import LoopSettings, Rung
from callfuse.wire import WHOLE

OnLoop = Callable[[LoopEvent], Any]
"""Sees each verdict before it is carried out, sync or async. None keeps it; a rung's name, or `allow`, changes it."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the exchanges of one middleware share. `clock` gives seconds."""

    app: ASGIApp
    settings: LoopSettings
    ledger: Ledger
    counts: Counts
    on_loop: OnLoop | None
    clock: Callable[[], float]
    backend: str = ""
    """The vendor's name, where a route gives it another than its dialect has."""

    def unguarded(self, cause: str) -> None:
        """Count what passes without being guarded, and log the first of its kind."""
        if self.counts.add("not_guarded", cause) == 1:
            log.unguarded(cause)

    def failed_open(self, cause: str, session: str) -> None:
        """Count a cause for which calls went unjudged, and log it the first time."""
        if self.counts.add("fail_open", cause.partition(":")[0]) == 1:
            log.fail_open(cause, session=session)


class Exchange:
    """One request that callfuse has read, and its answer. `came`: the body as the client has sent it, which may have
    lost commands since. `keeps_place`: the session has set something that must be found wherever a chain goes on."""

    __slots__ = (
        "_body",
        "_came",
        "_continuing",
        "_dialect",
        "_end",
        "_hindsight",
        "_holds",
        "_host",
        "_idle",
        "_is_healthy",
        "_keeps_place",
        "_lane",
        "_made",
        "_mark",
        "_may_withhold",
        "_mends",
        "_notes",
        "_now",
        "_read",
        "_reads_all",
        "_request",
        "_send",
        "_shape",
        "_signed",
        "_state",
        "_tap",
    )

    _send: Send
    _body: RequestBody

    def __init__(
        self,
        host: Host,
        dialect: Dialect,
        request: Request,
        lane: Lane,
        state: LaneState,
        now: float,
        *,
        signed: bool,
        came: bytes,
        keeps_place: bool = False,
    ) -> None:
        self._host = host
        self._came = came
        self._keeps_place = keeps_place
        self._dialect = dialect
        self._request = request
        self._lane = lane
        self._state = state
        self._now = now
        self._read: Conversation | None = None
        self._signed = signed
        self._may_withhold = True
        self._mends = False
        self._reads_all = False
        self._notes: tuple[tuple[ToolCall, str], ...] = ()
        self._mark = dialect.call_mark
        self._shape: Shape | None = None
        self._tap: Observer | None = None
        self._idle = False
        self._end: bytes | tuple[bytes, ...] = b""
        self._continuing = follower = request.continuing
        if follower is not None:
            self._reads_all = follower.chained or follower.begins_chain
            if follower.stored or follower.chained:
                self._may_withhold = not signed
                self._mends = not signed
            if signed and follower.chained:
                host.unguarded("signed chain")
        self._made: Judge | None = None
        self._is_healthy = not self._judge.any_finding
        self._holds = not self._is_healthy and self._judge.any_hold
        self._hindsight = self._judge.hindsight() if self._conversation.brings_results else None

    @property
    def _session(self) -> str:
        """What logs call the session."""
        return self._state.session or self._lane.session

    @property
    def _conversation(self) -> Conversation:
        """What most exchanges of short conversations need only if calls come."""
        if self._read is None:
            settings = self._host.settings
            self._read = read_conversation(self._request, self._state, self._now, settings, named=self._lane.named)
        return self._read

    @property
    def _judge(self) -> Judge:
        """Most exchanges need none."""
        if self._made is None:
            self._made = Judge(
                self._conversation.timeline,
                self._host.settings,
                model=self._request.model,
                may_change=not self._signed,
                may_ask=self._request.choices == 1,
                may_withhold=self._may_withhold,
                hold_all=self._host.on_loop is not None,
            )
        return self._made

    def run(self, scope: Scope, body: RequestBody, send: Send) -> Awaitable[None]:
        """Have the app answer. Gives back the app's own awaitable, which each chunk then wakes without a way through
        here."""
        content = self._with_texts()
        app = self._host.app
        if self._mends:  # not kept: an exchange that holds it keeps its body until the collector comes
            app = Mending(app, self._mended)
        if self._holds:
            guarded = GuardedExchange(
                app,
                scope,
                body,
                send,
                dialect=self._dialect,
                request=self._request,
                judge=self._judge,
                review=self._review,
                settle=self._settle,
                tell=self._tell,
                unguarded=self._host.unguarded,
            )
            return guarded.run(content)
        if content is not None or self._reads_all:
            scope = headers.for_body(scope, content, identity=self._reads_all)
        self._send, self._body = send, body
        watched = self._watched_to_its_end if self._conversation.evidence.is_new else self._watched
        return app(scope, body.replay(content), watched)

    def _with_texts(self) -> bytes | None:
        """The request's body with warnings and notes in its results, and as a vendor that remembers can take it; None
        where it stays as it came."""
        if self._signed:
            return None
        try:
            if notes := notes_for(self._conversation):
                self._request.body = self._request.with_notes(notes)
            if self._continuing is not None:
                self._request.body = self._continuing.resumed(self._state.continuation)
        except Exception as error:  # noqa: BLE001 - the request is right without them
            self._failed_open(f"{type(error).__name__} while adding texts: {error}")
        return None if self._request.body == self._came else self._request.body

    def _mended(self, body: bytes, error: bytes) -> bytes | None:
        """A refused body, put right."""
        if self._continuing is None:
            return None
        try:
            mended = self._continuing.mended(body, error)
            return mended or self._continuing.mended(self._request.body, error)
        except Exception as error_:  # noqa: BLE001 - the client then gets the refusal
            self._failed_open(f"{type(error_).__name__} while mending: {error_}")
            return None

    def _watched(self, message: Message) -> Awaitable[None]:
        """A `send` that lets every message go, and looks at it.

        It gives back the server's own awaitable: this is the way of every chunk of a healthy stream.
        """
        if self._idle:  # nothing has spoken of a call yet: does this chunk?
            chunk = message.get("body", b"")
            if self._mark not in chunk and (chunk.endswith(self._end) or not chunk):
                return self._send(message)
        try:
            if self._tap is None:
                if message["type"] == "http.response.start":
                    self._shape = shape = self._shape_of(message)
                    if shape and shape.stream:
                        self._idle, self._end = self._hindsight is None, shape.stream.frame_end
                elif message["type"] == "http.response.body" and self._shape:
                    self._tap = self._tap_for(self._shape)
            if (tap := self._tap) is not None:
                if message.get("more_body"):
                    tap.feed(message.get("body", b""))
                    self._idle = tap.idle and self._hindsight is None
                elif message["type"] == "http.response.body":
                    self._shape, self._tap, self._idle = None, None, False
                    return self._send_last(tap, message)
        except Exception as error:  # noqa: BLE001 - the client gets its bytes; only the ledger misses them
            self._shape, self._tap, self._idle = None, None, False
            self._failed_open(f"{type(error).__name__} while watching: {error}")
        return self._send(message)

    def _watched_to_its_end(self, message: Message) -> Awaitable[None]:
        """The same where something is to be kept even of a stream that never speaks of a call."""
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._idle = False
        return self._watched(message)

    def _shape_of(self, message: Message) -> Shape | None:
        """How an answer comes that begins like this, if it is to be watched."""
        if not is_success(message):
            return None
        shape = shape_of(message, self._dialect, self._request)
        if not shape.unreadable:
            return shape
        self._host.counts.add("not_watched", shape.unreadable)
        return None

    def _tap_for(self, shape: Shape) -> Observer:
        """The watcher for an answer that comes so; of a stream that never speaks of a call it takes none."""
        judge = None if self._is_healthy else self._judge
        return Observer(self._dialect, self._request, self._host.settings, judge, shape.stream or WHOLE)

    async def _send_last(self, tap: Observer, message: Message) -> None:
        """The last message of an answer: what it has brought is kept before the client can come back."""
        try:
            if last := message.get("body", b""):
                tap.feed(last)
            record = tap.settle()
        except Exception as error:  # noqa: BLE001 - see `_watched`
            self._failed_open(f"{type(error).__name__} while watching: {error}")
        else:
            if not self._body.gone:
                await self._settle(record)
        await self._send(message)

    async def _review(self, verdicts: list[Verdict]) -> list[Verdict]:
        """The verdicts as the callback leaves them."""
        return [await self._reviewed(verdict) for verdict in verdicts]

    async def _reviewed(self, verdict: Verdict) -> Verdict:
        if self._host.on_loop is None:
            return verdict
        try:
            answer = await self._answered(self._host.on_loop(self._event(verdict)))
            if answer is not None:
                rung = wanted(answer)
                verdict = replace(verdict, rung=None if rung is None else self._judge.allowed(rung))
                self._note_change(verdict)
        except Exception as error:  # noqa: BLE001 - policy stands, whatever a callback does
            log.callback(error)
            self._host.counts.add("callback_errors")
        return verdict

    async def _answered(self, answer: object) -> object:
        """What a callback says, at once or in time."""
        if not inspect.isawaitable(answer):
            return answer
        limit_s = self._host.settings.callback_timeout_s
        with anyio.move_on_after(limit_s):
            return await answer
        raise OnLoopError(f"no answer within {limit_s:g} s")

    def _note_change(self, verdict: Verdict) -> None:
        """Requests are warned by what the ladder says: what a callback has said instead is kept with the call."""
        warns = verdict.rung is Rung.WARN
        if verdict.withholds or warns == warned(verdict.finding, self._judge.ladder(verdict.call.full_name)):
            return
        self._notes += ((verdict.call, self._judge.warning(verdict) if warns else ""),)

    def _event(self, verdict: Verdict) -> LoopEvent:
        return LoopEvent(
            verdict.call, verdict.finding, verdict.rung, verdict.place, verdict.first, **self._where()._asdict()
        )

    async def _settle(self, record: Record) -> None:
        """Tell and keep what the exchange has brought, whose answer has been delivered. Never raises."""
        if self._hindsight is not None:
            self._tell_of(self._hindsight)
        self._tell(record)
        try:
            await self._keep(record)
        except Exception as error:  # noqa: BLE001 - the answer is right without it
            self._failed_open(f"{type(error).__name__} while keeping: {error}")

    def _tell(self, record: Record) -> None:
        """Log and count what has been found and done, once."""
        for verdict in record.verdicts:
            self._tell_of(verdict)
        for cause in record.fail_open:
            self._failed_open(cause)
        for part in record.unasked:
            self._host.counts.add("not_asked", part)
        record.told()

    def _tell_of(self, verdict: Verdict) -> None:
        """Log and count one finding."""
        log.finding(verdict, **self._where()._asdict())
        self._host.counts.add("findings", log.action(verdict))

    def _where(self) -> Where:
        return Where(
            self._session,
            self._lane.source,
            self._lane.tag,
            self._request.model,
            self._host.backend or self._dialect.backend,
            self._dialect.name,
        )

    async def _keep(self, record: Record) -> None:
        """Keep the rounds and notes in the ledger."""
        host = self._host
        rounds = [calls for calls in record.rounds if calls]
        goes_on = self._keeps_place and bool(record.answers)
        notes = [*record.notes, *self._notes] if self._request.choices == 1 else []
        now = host.clock()
        evidence = self._conversation.evidence
        if not (rounds or notes or self._hindsight or goes_on or evidence.is_new):
            return
        keyed = note_keys(self._conversation, notes)
        state = evidence.after(rounds, keyed, now, max_rounds=host.settings.max_rounds)
        lanes = {self._lane: state}
        if self._continuing is not None:
            lanes = self._places(self._continuing, state, record)
        await host.ledger.write(lanes, now)

    def _places(self, request: Continuing, state: LaneState, record: Record) -> dict[Lane, LaneState]:
        """The state where the next request will look for it: in its lane, or where an answer's id leads."""
        known = request.continuation(self._state.continuation, record.answers)
        opening = request.after(record.answers[0].id) if record.answers else ()
        lanes: dict[Lane, LaneState] = {}
        if opening:
            there = replace(state, notes={}, continuation=known, session=self._session)
            lanes[lane_at(self._lane, opening)] = there
        if not (request.chained and opening):
            here = known if request.chained else Continuation(known.items)
            lanes[self._lane] = replace(state, continuation=here)
        return lanes

    def _failed_open(self, cause: str) -> None:
        self._host.failed_open(cause, self._session)

"""Prepares a request for its exchange: reads the body, runs commands, finds the lane, its state and the settings.

In: a POST to a path that a dialect serves. Out: `Prepared`, everything that an exchange needs; a `SyntheticReply` if
callfuse answers itself; an `Unjudged` if only commands were removed; or None if the request passes as it came.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from callfuse.asgi import headers, off_loop, overrides
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import ByteBudget, Share
from callfuse.asgi.codings import UnreadableBodyError, unpack
from callfuse.asgi.commands import NOTHING, ChatCommands, Session, Status, SyntheticReply, Unjudged, merge_overrides
from callfuse.asgi.evidence import KeptRequest
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.review import Callback
from callfuse.asgi.tally import DISABLED, Tally
from callfuse.asgi.types import ASGIApp, Scope
from callfuse.commands import FoundCommands
from callfuse.conversations.blocks import after_reset
from callfuse.conversations.identity import Lane, are_ordinary_headers, lane_of
from callfuse.conversations.ledger import LaneState, Ledger, Read, SessionState
from callfuse.dialects import Dialect
from callfuse.dialects.base import NO_DIFFERENCE, Request
from callfuse.model.ids import bounded_id
from callfuse.observe.bus import Bus
from callfuse.observe.events import HeaderIgnored, NotGuarded, Where
from callfuse.observe.telemetry import Traces
from callfuse.policy.holdout import Arm, arm_of
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, apply, as_utf8, loads
from callfuse.wire.values import has_too_many_values

NO_TOOLS: Final = "no tools"
"""The cause of an exchange whose answer can have no calls: its request has no tools, or asks for one token."""
MOST_DIGITS = 19
"""Digits of a content length that are read. 19 hold any 64-bit size; Python refuses to parse more than 4,300."""


@dataclass(frozen=True, slots=True)
class Host:
    """What all exchanges of one middleware share. `clock`: seconds since the epoch. `backend_of`: the vendor's name of
    a path. `budget`: bounds what they keep together. `traces`: their place in traces, if anybody wants to know."""

    app: ASGIApp
    settings: LoopSettings
    ledger: Ledger
    bus: Bus
    on_loop: Callback | None
    clock: Callable[[], float]
    commands: ChatCommands
    budget: ByteBudget
    backend_of: Callable[[str], str | None] | None = None
    traces: Traces | None = None

    @property
    def fail_open(self) -> FailOpen:
        """Reports errors that occur before the session is known."""
        return FailOpen(self.bus)

    def begin(self, dialect: Dialect, found: Mapping[bytes, bytes]) -> Tally:
        """Begin the account of an exchange. `found`: the headers of its request, by name."""
        if self.traces is not None:
            with self.fail_open.stage("in a request"):
                self.traces.begin(found)
        return Tally(self.bus, dialect)

    def unguarded(self, cause: str) -> None:
        """Tell of a request whose exchange is not known, and that passes unguarded, by cause."""
        self.bus.emit(NotGuarded(cause))


@dataclass(frozen=True, slots=True)
class Prepared:
    """One request that is judged.

    `state`, `session`: the ledger's states of its lane and session. `settings`: those of this exchange. `signed`: the
    body must not be changed. `observed`: another callfuse guards it, so this one only observes. `changed`: commands
    were removed, so the body differs from the original. `keeps_place`: the session has settings, or the lane a state,
    that must be found again where a chain continues, even after an answer without calls. `tally`: the account of the
    exchange. `arm`: that of its session, where some are only observed to measure against. `weight`: that of the body,
    for `off_loop.run`.
    """

    request: KeptRequest
    lane: Lane
    state: LaneState
    session: SessionState
    now: float
    settings: LoopSettings
    where: Where
    signed: bool
    observed: bool
    changed: bool
    keeps_place: bool
    tally: Tally
    arm: Arm
    weight: int

    @property
    def read(self) -> Read:
        """What was read of the ledger."""
        return Read(self.lane, self.state, self.session)


class Incoming(NamedTuple):
    """A request as it came: headers by lower-case name, and the whole body, decoded and in UTF-8."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    dialect: Dialect
    content: bytes

    @property
    def target(self) -> str:
        """Path and query."""
        query = self.scope.get("query_string", b"")
        return f"{self.scope['path']}?{query.decode('latin-1')}" if query else str(self.scope["path"])

    def decode(self, encoding: str, limit: int) -> "Incoming":
        """The same without its content codings, in UTF-8. Raises UnreadableBodyError, NotJSON or TooManyValuesError."""
        content = as_utf8(unpack(self.content, encoding, limit) if encoding else self.content)
        if has_too_many_values(content):
            raise TooManyValuesError
        return self._replace(content=content)

    def read(self, content: bytes) -> tuple[Request | None, Payload]:
        """The request with this body (None if the body is not of the dialect) and the parsed body. Raises NotJSON."""
        payload = loads(content)
        return self.dialect.read_request(content, payload, self.target), payload


class TooManyValuesError(ValueError):
    """A body has so many values that everybody would wait while it is parsed."""


async def prepare(
    host: Host, scope: Scope, found: Mapping[bytes, bytes], body: RequestBody, dialect: Dialect, tally: Tally
) -> Prepared | SyntheticReply | Unjudged | None:
    """Read a request and all that belongs to it. `found`: its headers by name. Raises only what `receive` raises."""
    limit = host.settings.max_request_bytes
    length = found.get(b"content-length", b"0")
    fits = length.isdigit() and len(length) <= MOST_DIGITS and int(length) <= limit
    if fits:
        await body.read(limit, host.settings.read_timeout_s)
    with host.fail_open.stage("in a request"):
        if body.content is None:
            tally.unguarded(body.unread or "max_request_bytes")
            return None
        try:
            return await _Preparation(host, Incoming(scope, found, dialect, body.content), body.share, tally).run()
        except NotJSON:
            tally.unguarded("request not JSON")
        except UnreadableBodyError:
            tally.unguarded("request encoding")
        except TooManyValuesError:
            tally.unguarded("request values")
    return None


class _Preparation:
    """The steps from an `Incoming` to a `Prepared`."""

    __slots__ = (
        "_backend",
        "_host",
        "_incoming",
        "_is_observed",
        "_is_ordinary",
        "_is_signed",
        "_own",
        "_share",
        "_tally",
        "_weight",
    )

    def __init__(self, host: Host, incoming: Incoming, share: Share, tally: Tally) -> None:
        self._host = host
        self._incoming = incoming
        self._share = share
        self._tally = tally
        self._backend = (host.backend_of and host.backend_of(incoming.scope["path"])) or ""
        self._is_ordinary = are_ordinary_headers(incoming.headers)
        self._is_observed = headers.VIA in incoming.headers
        self._is_signed = not self._is_ordinary and headers.is_signed(incoming.headers)
        self._own = NO_OVERRIDES
        self._weight = 0

    async def run(self) -> Prepared | SyntheticReply | Unjudged | None:
        """Run all steps."""
        host, incoming = self._host, self._incoming
        encoding = incoming.headers.get(b"content-encoding", b"").decode("latin-1")
        self._weight = off_loop.weight_of(incoming.content, packed=bool(encoding))
        read = await off_loop.run(partial(self._read, encoding), self._weight)
        if encoding:
            self._weight = off_loop.weight_of(self._incoming.content)
            if not self._share.add(len(self._incoming.content)):
                self._tally.unguarded("max_total_bytes")
                return None
        if read is None:
            return None
        request, commands, lane = read
        if not self._is_ordinary:
            self._own = own_overrides(host, incoming.headers)
        now = host.clock()
        state, kept = await host.ledger.read(lane, now)
        self._tally.where = self._where(request, lane, state)
        kept = host.commands.without_closed(kept)
        if commands.any and self._is_observed:
            commands = NOTHING
        if commands.any and self._is_signed:
            host.unguarded("signed command")
        elif commands.any:
            session = Session(lane, state.session or lane.owner, now)
            done = await self._carry_out(commands, request, session, kept)
            if not isinstance(done, tuple):
                return done
            request, kept = done
        return self._build(request, lane, after_reset(state, kept), kept, now)

    def _read(self, encoding: str) -> tuple[Request, FoundCommands, Lane] | None:
        """Read the body: the request, its commands and its lane; None if it passes as it came."""
        self._incoming = incoming = self._incoming.decode(encoding, self._host.settings.max_request_bytes)
        request, payload = incoming.read(incoming.content)
        if request is None:
            self._tally.cause = "other body"
            return None
        commands = self._host.commands.find(request, incoming.headers)
        if request.probe and not commands.any:
            self._tally.cause = NO_TOOLS
            return None
        query = incoming.scope.get("query_string", b"")
        further = self._host.settings.further_credentials
        lane = lane_of(incoming.headers, request, query, payload, ordinary=self._is_ordinary, further=further)
        return request, commands, lane

    async def _carry_out(
        self, commands: FoundCommands, request: Request, session: Session, kept: SessionState
    ) -> tuple[Request, SessionState] | SyntheticReply | None:
        """Run commands. Returns the request without them and the session's new state, or callfuse's own answer."""
        status = Status(self._host.settings, self._model(request), self._own, kept.by_code)
        kept, answer = await self._host.commands.carry_out(commands, request, session, kept, status)
        if answer is not None:
            return SyntheticReply(answer)
        stripped = await off_loop.run(partial(self._strip, commands), self._weight)
        return None if stripped is None else (stripped, kept)  # no edit changes what a body is

    def _strip(self, commands: FoundCommands) -> Request | None:
        """The request without its commands."""
        return self._incoming.read(apply(self._incoming.content, commands.edits))[0]

    def _build(
        self, request: Request, lane: Lane, state: LaneState, kept: SessionState, now: float
    ) -> Prepared | Unjudged | None:
        """The result for a request: with its settings, or unjudged if these or the request itself say so."""
        host, incoming = self._host, self._incoming
        settings, keeps_place = host.settings, goes_on(request, state)
        chosen = merge_overrides(kept.by_code, merge_overrides(self._own, kept.overrides))
        if chosen or self._backend or settings.models:
            settings = settings.for_exchange(self._model(request), chosen)
            keeps_place |= bool(kept.overrides or kept.by_code) and request.chain is not None
        changed = request.body != incoming.content
        if request.probe or not (settings.enabled or keeps_place):
            self._tally.cause = NO_TOOLS if request.probe else DISABLED
            return Unjudged(host.app, request.body) if changed else None
        arm = Arm("", settings) if self._is_observed else arm_of(settings, lane.credential, self._tally.where.session)
        return Prepared(
            KeptRequest(incoming.dialect, request, incoming.target),
            lane,
            state,
            kept,
            now,
            arm.settings,
            self._tally.where,
            signed=self._is_signed or self._is_observed,
            observed=self._is_observed,
            changed=changed,
            keeps_place=keeps_place,
            tally=self._tally,
            arm=arm,
            weight=self._weight,
        )

    def _where(self, request: Request, lane: Lane, state: LaneState) -> Where:
        """Where the exchange belongs."""
        dialect = self._incoming.dialect
        session = lane.session if lane.named else state.session or lane.session
        model = bounded_id(request.model)  # sinks keep it, and a client may name any
        return Where(session, lane.source, lane.tag, model, self._backend or dialect.backend, dialect.name)

    def _model(self, request: Request) -> str:
        """Backend and model as one text, the form in which settings name models."""
        return f"{self._backend or self._incoming.dialect.backend}:{request.model}"


def goes_on(request: Request, state: LaneState) -> bool:
    """Whether a request continues a stored conversation of which the ledger has a state."""
    chain = request.chain
    return chain is not None and chain.chained and bool(state.rounds or state.continuation != NO_DIFFERENCE)


def own_overrides(host: Host, found: Mapping[bytes, bytes]) -> Overrides:
    """The overrides in the headers of a request; each header that sets nothing is told."""
    for name, problem in overrides.find_unknown(found).items():
        host.bus.emit(HeaderIgnored(name, problem, known=False))
    if not host.settings.header_overrides:
        return NO_OVERRIDES
    own, wrong = overrides.read_overrides(found, has_other_model=host.settings.has_other_model)
    for name, problem in wrong.items():
        host.bus.emit(HeaderIgnored(name, problem, known=True))
    return own

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
from callfuse.asgi.commands import ChatCommands, Session, Status, SyntheticReply, Unjudged, merge_overrides
from callfuse.asgi.evidence import KeptRequest
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.last_requests import LEAST_BYTES, Continued, LastRequest, LastRequests, Sender
from callfuse.asgi.review import Callback
from callfuse.asgi.tally import DISABLED, Tally
from callfuse.asgi.types import ASGIApp, Scope
from callfuse.commands import FoundCommands, PrefixSearch
from callfuse.conversations.blocks import after_reset
from callfuse.conversations.identity import Lane, are_ordinary_headers, credential_of, lane_of, session_headers
from callfuse.conversations.ledger import LaneState, Ledger, Read, SessionState
from callfuse.dialects import Dialect
from callfuse.dialects.base import Request
from callfuse.dialects.continued import ReadHistory
from callfuse.dialects.stateful import NO_DIFFERENCE
from callfuse.model.ids import bounded_id
from callfuse.observe.bus import Bus
from callfuse.observe.events import HeaderIgnored, NotGuarded, Where
from callfuse.observe.telemetry import Traces
from callfuse.policy.holdout import Arm, arm_of
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, apply, as_utf8, loads, loads_exact
from callfuse.wire.resent import KnownText, NewText, Shared, parse_new, parse_whole
from callfuse.wire.values import has_too_many_values

NO_TOOLS: Final = "no tools"
"""The cause of an exchange whose answer can have no calls: its request has no tools, or asks for one token."""
MOST_DIGITS = 19
"""Digits of a content length that are read. 19 hold any 64-bit size; Python refuses to parse more than 4,300."""


@dataclass(frozen=True, slots=True)
class Host:
    """What all exchanges of one middleware share. `clock`: seconds since the epoch. `backend_of`: the vendor's name of
    a path. `budget`: bounds what they keep together. `last_requests`: those that may come again. `traces`: their place
    in traces, if anybody wants to know."""

    app: ASGIApp
    settings: LoopSettings
    ledger: Ledger
    bus: Bus
    on_loop: Callback | None
    clock: Callable[[], float]
    commands: ChatCommands
    budget: ByteBudget
    last_requests: LastRequests
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
    """A request as it came: headers by lower-case name, path and query (`target`), and the whole body, decoded and in
    UTF-8."""

    path: str
    query: bytes
    headers: Mapping[bytes, bytes]
    dialect: Dialect
    content: bytes
    target: str

    def unpack(self, encoding: str, limit: int) -> "Incoming":
        """The same without its content codings. Raises UnreadableBodyError."""
        return self._replace(content=unpack(self.content, encoding, limit))

    def parse(self, shared: Shared | None, mark: str) -> tuple["Incoming", NewText]:
        """The same in UTF-8, and its parsed body. `shared`, `mark`: to prove where it may be continued. Raises NotJSON
        or TooManyValuesError."""
        content = as_utf8(self.content)
        if len(content) < LEAST_BYTES:
            return self._replace(content=content), NewText(loads(content), None)
        if has_too_many_values(content):
            raise TooManyValuesError
        parsed = parse_whole(content, self.dialect.history_key, shared, mark)
        return self._replace(content=content), parsed or NewText(loads_exact(content), None)

    def read(self, content: bytes, payload: Payload) -> Request | None:
        """The request with this body; None if the body is not of the dialect."""
        return self.dialect.read_request(content, payload, self.target)


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
            path, query = scope["path"], scope.get("query_string", b"")
            target = f"{path}?{query.decode('latin-1')}" if query else path
            incoming = Incoming(path, query, found, dialect, body.content, target)
            return await _Preparation(host, incoming, body.share, tally).run()
        except NotJSON:
            tally.unguarded("request not JSON")
        except UnreadableBodyError:
            tally.unguarded("request encoding")
        except TooManyValuesError:
            tally.unguarded("request values")
    return None


class _ReadBody(NamedTuple):
    """What was read of a body. Kept for the next request: `known`, `history`, into which its rounds will be read, and
    `quiet`, the search by which no command was found in it (None: it may have one)."""

    request: Request
    commands: FoundCommands
    lane: Lane
    known: KnownText | None
    history: ReadHistory
    quiet: PrefixSearch | None


class _Preparation:
    """The steps from an `Incoming` to a `Prepared`."""

    __slots__ = (
        "_backend",
        "_credential",
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
        self._backend = (host.backend_of and host.backend_of(incoming.path)) or ""
        self._is_ordinary = are_ordinary_headers(incoming.headers)
        self._is_observed = headers.VIA in incoming.headers
        self._is_signed = not self._is_ordinary and headers.is_signed(incoming.headers)
        self._own = NO_OVERRIDES
        self._credential = b""
        self._weight = 0

    async def run(self) -> Prepared | SyntheticReply | Unjudged | None:
        """Run all steps."""
        encoding = self._incoming.headers.get(b"content-encoding", b"").decode("latin-1")
        if encoding and not await self._unpack(encoding):
            return None
        read = await self._read_body()
        if read is None:
            return None
        host, incoming = self._host, self._incoming
        request, commands, lane = read.request, read.commands, read.lane
        if not self._is_ordinary:
            self._own = own_overrides(host, incoming.headers)
        now = host.clock()
        state, kept = await host.ledger.read(lane, now)
        self._tally.where = self._where(request, lane, state)
        kept = host.commands.without_closed(kept)
        has_commands = commands.any and not self._is_observed
        if has_commands and self._is_signed:
            host.unguarded("signed command")
        elif has_commands:
            session = Session(lane, state.session or lane.owner, now)
            done = await self._carry_out(commands, request, session, kept)
            if not isinstance(done, tuple):
                return done
            request, kept = done
        return self._build(request, lane, after_reset(state, kept), kept, now)

    async def _unpack(self, encoding: str) -> bool:
        """Take off the content codings. Whether there is room for what comes out."""
        incoming = self._incoming
        unpacking = partial(incoming.unpack, encoding, self._host.settings.max_request_bytes)
        self._incoming = incoming = await off_loop.run(unpacking, off_loop.weight_of(incoming.content, packed=True))
        if not self._share.add(len(incoming.content)):
            self._tally.unguarded("max_total_bytes")
            return False
        return True

    async def _read_body(self) -> "_ReadBody | None":
        """Read the body; None if it passes as it came. A long one is read on from the last request of its conversation,
        and kept for the next."""
        host, incoming = self._host, self._incoming
        content = incoming.content
        self._credential = credential_of(incoming.headers, incoming.query, host.settings.further_credentials)
        self._weight = len(content)
        if len(content) < LEAST_BYTES:
            return await off_loop.run(partial(self._read, None, None), self._weight)
        session = () if self._is_ordinary else session_headers(incoming.headers)
        sender = Sender(self._credential, session, incoming.dialect.name, incoming.target)
        found = host.last_requests.find(sender, content)
        parsed: NewText | None = None
        if found is not None and found.shared.is_proven:
            parse = partial(parse_new, content, incoming.dialect.history_key, found.shared, host.last_requests.mark)
            parsed = await off_loop.run(parse, len(found.new))
        self._weight = off_loop.weight_of(content) if found is None or parsed is None else found.weight
        read = await off_loop.run(partial(self._read, found, parsed), self._weight)
        if read is not None and read.known is not None:
            last = LastRequest(sender, read.known, read.history, read.quiet)
            room, ttl_s = host.budget.limit - host.budget.used, host.settings.ttl_seconds
            host.last_requests.keep(last, found and found.last, room, host.clock(), ttl_s)
        return read

    def _read(self, found: Continued | None, parsed: NewText | None) -> "_ReadBody | None":
        """Read the body; None if it passes as it came. `found`: a request that begins as it does; `parsed`: the body,
        if it goes on from that."""
        if parsed is None:
            shared = None if found is None or found.shared.is_proven else found.shared
            self._incoming, parsed = self._incoming.parse(shared, self._host.last_requests.mark)
            found = None
        incoming, (payload, known) = self._incoming, parsed
        request = incoming.read(incoming.content, payload)
        if request is None:
            self._tally.cause = "other body"
            return None
        history = ReadHistory() if found is None else found.history()
        if known is not None and known.counts:
            request.take_history(history)
        finder = self._host.commands
        is_quiet = found is not None and found.last.quiet is finder.search
        may_occur = finder.may_occur_in(found.new if found and is_quiet else incoming.content)
        commands = finder.find(request, incoming.headers, may_occur=may_occur)
        if request.probe and not commands.any:
            self._tally.cause = NO_TOOLS
            return None
        lane = lane_of(
            incoming.headers, request, payload=payload, ordinary=self._is_ordinary, credential=self._credential
        )
        return _ReadBody(request, commands, lane, known, history, None if may_occur else finder.search)

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
        content = apply(self._incoming.content, commands.edits)
        return self._incoming.read(content, loads(content))

    def _build(
        self, request: Request, lane: Lane, state: LaneState, kept: SessionState, now: float
    ) -> Prepared | Unjudged | None:
        """The result for a request: with its settings, or unjudged if these or the request itself say so."""
        host, incoming = self._host, self._incoming
        settings, keeps_place = host.settings, goes_on(request, state)
        chosen = merge_overrides(kept.by_code, merge_overrides(self._own, kept.overrides))
        if chosen is not NO_OVERRIDES or self._backend or settings.models:
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

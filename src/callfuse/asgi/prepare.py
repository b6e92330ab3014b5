"""Prepare a request for its exchange: read the body, run commands, find the lane, its state and the settings.

Input: a POST to a path that a dialect serves. Output: `Prepared`, everything that an exchange needs; a `SyntheticReply`
if callfuse answers itself; an `Unjudged` if only commands were removed; or None if the request passes unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from callfuse.asgi import headers, off_loop, overrides
from callfuse.asgi.body import RequestBody
from callfuse.asgi.budget import ByteBudget, Share
from callfuse.asgi.codings import UnreadableBodyError, unpack
from callfuse.asgi.commands import ChatCommands, Session, Status, SyntheticReply, Unjudged, merge_overrides
from callfuse.asgi.evidence import KeptRequest
from callfuse.asgi.fail_open import FailOpen, Stage
from callfuse.asgi.last_requests import LEAST_BYTES, Continued, LastRequest, LastRequests, Sender
from callfuse.asgi.review import Callback
from callfuse.asgi.tally import DISABLED, InFlight, Tally
from callfuse.asgi.types import ASGIApp, Scope
from callfuse.commands import FoundCommands
from callfuse.config.serve import Route
from callfuse.conversations.blocks import after_reset
from callfuse.conversations.identity import NO_SESSION_HEADERS, KnownHeaders, Lane, credential_of, lane_of
from callfuse.conversations.ledger import LaneState, Ledger, Read, SessionState
from callfuse.conversations.spawns import spawner_of
from callfuse.dialects import Dialect
from callfuse.dialects.base import Request
from callfuse.dialects.continued import ReadHistory
from callfuse.dialects.stateful import NO_DIFFERENCE
from callfuse.model.ids import bounded_id
from callfuse.observe.bus import Bus
from callfuse.observe.events import HeaderIgnored, NotGuarded, Where
from callfuse.observe.telemetry import Traces
from callfuse.policy.allowed import Allowance, of_lane
from callfuse.policy.holdout import Arm, arm_of
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides
from callfuse.wire.jsontext import NotJSON, apply, as_utf8, loads, loads_exact
from callfuse.wire.resent import NewText, parse_new, parse_whole
from callfuse.wire.values import has_too_many_values

NO_TOOLS: Final = "no tools"
"""The cause for an answer that cannot have calls, because its request has no tools, or asks for one token."""
MOST_DIGITS = 19
"""The most digits of a content length. 19 are enough for 64 bits; Python refuses to parse more than 4,300."""


@dataclass(frozen=True, slots=True)
class Host:
    """Everything that the exchanges of one middleware share. `clock`: seconds since the epoch. `route_of`: returns the
    route of a path, if there are routes. `in_flight`: counts running exchanges. `budget`: bounds their bytes together.
    `last_requests`: requests that the next ones may continue. `fail_open`: reports errors that occur before the session
    is known. `traces`: the exchanges' places in traces, if enabled. `known_headers`: parsed headers of clients."""

    app: ASGIApp
    settings: LoopSettings
    ledger: Ledger
    bus: Bus
    on_loop: Callback | None
    clock: Callable[[], float]
    commands: ChatCommands
    budget: ByteBudget
    last_requests: LastRequests
    fail_open: FailOpen
    route_of: Callable[[str], Route | None] | None = None
    traces: Traces | None = None
    known_headers: KnownHeaders = field(default_factory=KnownHeaders)
    in_flight: InFlight = field(default_factory=InFlight)

    def begin(self, dialect: Dialect, path: str, found: Mapping[bytes, bytes]) -> Tally:
        """Open the account of an exchange. `found`: the headers of its request, by name."""
        self.in_flight.exchanges += 1
        if self.traces is not None:
            with self.fail_open.stage("in a request"):
                self.traces.begin(found)
        return Tally(self.bus, dialect, self.route_of and self.route_of(path))

    def unguarded(self, cause: str) -> None:
        """Report, by cause, a request that passes unguarded before its session is known."""
        self.bus.emit(NotGuarded(cause))


@dataclass(frozen=True, slots=True)
class Prepared:
    """One request to judge.

    `state`, `session`: the ledger's states of its lane and session. `settings`: those of this exchange. `signed`: the
    body must not be changed. `observed`: another callfuse guards it, so this one only observes. `keeps_place`: the
    state must be stored for a chain's next request, even after an answer without calls, because the session has
    settings or the lane a state. `tally`: the account of the exchange. `arm`: that of its session in a holdout.
    `weight`: that of the body, for `off_loop.run`. `spawner`: the session whose agent started this one, if known.
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
    keeps_place: bool
    tally: Tally
    arm: Arm
    weight: int
    spawner: str

    @property
    def allowed(self) -> Sequence[Allowance]:
        """The calls that a person has allowed in its lane."""
        return of_lane(self.session.allowed, self.where.lane) if self.session.allowed else ()

    @property
    def read(self) -> Read:
        """The states that were read from the ledger."""
        return Read(self.lane, self.state, self.session)


class TooManyValuesError(ValueError):
    """Raised for a body with so many values that parsing it would delay all other exchanges."""


async def prepare(
    host: Host,
    scope: Scope,
    found: Mapping[bytes, bytes],
    body: RequestBody,
    dialect: Dialect,
    tally: Tally,
    stage: Stage,
) -> Prepared | SyntheticReply | Unjudged | None:
    """Read a request, its state and its settings, in this stage. `found`: its headers by name. Raises only `receive`'s
    errors."""
    limit = host.settings.max_request_bytes
    length = found.get(b"content-length", b"0")
    fits = length.isdigit() and len(length) <= MOST_DIGITS and int(length) <= limit
    if fits:
        await body.read(limit, host.settings.read_timeout_s)
        tally.times.read = perf_counter()
    with stage:
        if body.content is None:
            tally.unguarded(body.unread or "max_request_bytes")
            return None
        try:
            return await _Preparation(host, scope, found, dialect, tally).run(body.content, body.share)
        except NotJSON:
            tally.unguarded("request not JSON")
        except UnreadableBodyError:
            tally.unguarded("request encoding")
        except TooManyValuesError:
            tally.unguarded("request values")
    return None


class _ReadBody(NamedTuple):
    """A body that was read. `content`: in UTF-8. `last`: kept for the next request, if any."""

    content: bytes
    request: Request
    commands: FoundCommands
    lane: Lane
    last: LastRequest | None


class _Preparation:
    """Runs the steps from a request to a `Prepared`. `target`: its path and query."""

    __slots__ = (
        "_backend",
        "_credential",
        "_dialect",
        "_encoding",
        "_host",
        "_is_observed",
        "_is_signed",
        "_said",
        "_tally",
        "_target",
        "_weight",
    )

    def __init__(self, host: Host, scope: Scope, found: Mapping[bytes, bytes], dialect: Dialect, tally: Tally) -> None:
        path, query = scope["path"], scope.get("query_string", b"")
        self._host = host
        self._dialect = dialect
        self._tally = tally
        self._target = f"{path}?{query.decode('latin-1')}" if query else path
        self._backend = tally.where.backend
        self._credential = credential_of(found, query, host.settings.further_credentials)
        self._said = host.known_headers.read(found)
        self._encoding = found.get(b"content-encoding", b"").decode("latin-1")
        self._is_observed = headers.VIA in found
        self._is_signed = headers.is_signed(found)
        self._weight = 0

    async def run(self, content: bytes, share: Share) -> Prepared | SyntheticReply | Unjudged | None:
        """Run all steps for an original body."""
        if self._encoding:
            content = await self._unpack(content)
            if not share.add(len(content)):
                self._tally.unguarded("max_total_bytes")
                return None
        read = await self._read_body(content)
        if read is None:
            return None
        host, request, commands, lane = self._host, read.request, read.commands, read.lane
        own = own_overrides(host, dict(self._said.settings)) if self._said.settings else NO_OVERRIDES
        now = host.clock()
        state, kept = await host.ledger.read(lane, now)
        self._tally.where = self._where(request, lane, state)
        kept = host.commands.without_closed(kept)
        if commands.any and not self._is_observed:
            if self._is_signed:
                host.unguarded("signed command")
            else:
                session = Session(lane, state.session or lane.owner, now)
                done = await self._carry_out(read, session, kept, own)
                if not isinstance(done, tuple):
                    return done
                request, kept = done
        is_changed = request.body != read.content
        return self._build(request, lane, after_reset(state, kept), kept, now, own, is_changed=is_changed)

    async def _unpack(self, content: bytes) -> bytes:
        """Unpack a body. Raises UnreadableBodyError."""
        unpacking = partial(unpack, content, self._encoding, self._host.settings.max_request_bytes)
        return await off_loop.run(unpacking, off_loop.weight_of(content, packed=True))

    async def _read_body(self, content: bytes) -> "_ReadBody | None":
        """Read the body. Returns None if it passes unchanged. Of a long body, reads only the part after the last
        request of its conversation, and keeps it for the next."""
        host = self._host
        if len(content) < LEAST_BYTES:
            self._weight = len(content)
            return self._read(content)
        sender = Sender(self._credential, self._said.as_sent, self._dialect.name, self._target)
        found = host.last_requests.find(sender, content)
        parsed: NewText | None = None
        if found is not None and found.is_proven:
            parse = partial(parse_new, content, self._dialect.history_key, found.shared, host.last_requests.mark)
            parsed = await off_loop.run(parse, len(found.new))
        self._weight = off_loop.weight_of(content) if found is None or parsed is None else found.weight
        read = await off_loop.run(partial(self._read, content, sender, found, parsed), self._weight)
        if read is not None and read.last is not None:
            room, ttl_s = host.budget.limit - host.budget.used, host.settings.ttl_seconds
            host.last_requests.keep(read.last, found and found.last, room, host.clock(), ttl_s)
        return read

    def _read(
        self,
        content: bytes,
        sender: Sender | None = None,
        found: Continued | None = None,
        parsed: NewText | None = None,
    ) -> "_ReadBody | None":
        """Read the body. Returns None if it passes unchanged. `sender`: the sender, to keep it as the last request.
        `found`: a kept request with the same beginning; `parsed`: the body, if it continues that request."""
        if parsed is None:
            content = as_utf8(content)
            parsed, found = self._parse(content, found), None
        payload, known = parsed
        request = self._dialect.read_request(content, payload, self._target)
        if request is None:
            self._tally.cause = "other body"
            return None
        finder = self._host.commands
        is_quiet = found is not None and found.last.quiet is finder.search
        may_occur = finder.may_occur_in(found.new if found and is_quiet else content)
        commands = finder.find(request, may_occur=may_occur and not self._said.is_sub_agent)
        if request.probe and not commands.any:
            self._tally.cause = NO_TOOLS
            return None
        lane = lane_of(self._credential, self._said, request, payload)
        if known is None or sender is None:
            return _ReadBody(content, request, commands, lane, None)
        history = ReadHistory() if found is None else found.history
        if known.counts:
            request.take_history(history)
        last = LastRequest(sender, known, history, None if may_occur else finder.search)
        return _ReadBody(content, request, commands, lane, last)

    def _parse(self, content: bytes, found: Continued | None) -> NewText:
        """Parse a body in UTF-8. `found`: a request with the same beginning, to prove where it may be continued. Raises
        NotJSON or TooManyValuesError."""
        if len(content) < LEAST_BYTES:
            return NewText(loads(content), None)
        if has_too_many_values(content):
            raise TooManyValuesError
        shared = None if found is None or found.is_proven else found.shared
        parsed = parse_whole(content, self._dialect.history_key, shared, self._host.last_requests.mark)
        return parsed or NewText(loads_exact(content), None)

    async def _carry_out(
        self, read: _ReadBody, session: Session, kept: SessionState, own: Overrides
    ) -> tuple[Request, SessionState] | SyntheticReply | None:
        """Run commands. Returns the request without them and the session's new state, or callfuse's own answer."""
        request, commands = read.request, read.commands
        status = Status(self._host.settings, self._model(request), own, kept.by_code)
        kept, answer = await self._host.commands.carry_out(commands, request, session, kept, status)
        if answer is not None:
            return SyntheticReply(answer)
        stripped = await off_loop.run(partial(self._strip, read.content, commands), self._weight)
        return None if stripped is None else (stripped, kept)  # no edit makes a body unreadable

    def _strip(self, content: bytes, commands: FoundCommands) -> Request | None:
        """Return the request without its commands."""
        content = apply(content, commands.edits)
        return self._dialect.read_request(content, loads(content), self._target)

    def _build(
        self,
        request: Request,
        lane: Lane,
        state: LaneState,
        kept: SessionState,
        now: float,
        own: Overrides,
        *,
        is_changed: bool,
    ) -> Prepared | Unjudged | None:
        """Return the result for a request: with its settings, or unjudged if the settings or the request require it."""
        host, settings, keeps_place = self._host, self._host.settings, goes_on(request, state)
        chosen = merge_overrides(kept.by_code, own, kept.overrides)
        if chosen is not NO_OVERRIDES or settings.models:
            settings = settings.for_exchange(self._model(request), chosen)
            keeps_place |= bool(kept.overrides or kept.by_code or kept.allowed) and request.chain is not None
        if request.probe or not (settings.enabled or keeps_place):
            self._tally.cause = NO_TOOLS if request.probe else DISABLED
            return Unjudged(host.app, request.body) if is_changed else None
        keeps_place |= settings.budget.is_on and request.chain is not None
        arm = Arm("", settings) if self._is_observed else arm_of(settings, lane.credential, self._tally.where.session)
        return Prepared(
            KeptRequest(self._dialect, request, self._target, is_changed=is_changed),
            lane,
            state,
            kept,
            now,
            arm.settings,
            self._tally.where,
            signed=self._is_signed or self._is_observed,
            observed=self._is_observed,
            keeps_place=keeps_place,
            tally=self._tally,
            arm=arm,
            weight=self._weight,
            spawner=spawner_of(lane, self._said) if self._said is not NO_SESSION_HEADERS else "",
        )

    def _where(self, request: Request, lane: Lane, state: LaneState) -> Where:
        """Return session, lane, model, backend and dialect of the exchange."""
        session = lane.session if lane.named else state.session or lane.session
        model = bounded_id(request.model)  # bounded, because sinks keep it and clients choose it
        return Where(session, lane.source, lane.tag, model, self._backend, self._dialect.name)

    def _model(self, request: Request) -> str:
        """Return backend and model as one text, as settings name models."""
        return f"{self._backend}:{request.model}"


def goes_on(request: Request, state: LaneState) -> bool:
    """Whether a request continues a stored conversation that the ledger knows."""
    chain = request.chain
    return chain is not None and chain.chained and bool(state.rounds or state.continuation != NO_DIFFERENCE)


def own_overrides(host: Host, found: Mapping[bytes, bytes]) -> Overrides:
    """Return the overrides in the headers of a request, and report each header that sets nothing."""
    for name, problem in overrides.find_unknown(found).items():
        host.bus.emit(HeaderIgnored(name, problem, known=False))
    if not host.settings.header_overrides:
        return NO_OVERRIDES
    own, wrong = overrides.read_overrides(found, has_other_model=host.settings.has_other_model)
    for name, problem in wrong.items():
        host.bus.emit(HeaderIgnored(name, problem, known=True))
    return own

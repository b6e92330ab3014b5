"""From an ASGI request to what callfuse does about it: body, dialect, commands, lane, ledger, settings.

In: a POST to a path that a dialect serves. Out: `Prepared`, everything that an exchange needs; a `SyntheticReply`
where callfuse answers by itself; an `Unjudged` where only commands were taken out; or None, and the request passes as
it came.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from callfuse.asgi import headers, overrides
from callfuse.asgi.body import RequestBody, UnreadableBodyError, decode
from callfuse.asgi.commands import ChatCommands, Session, Status, SyntheticReply, Unjudged, merge_overrides
from callfuse.asgi.evidence import KeptRequest
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.review import OnLoop, Where
from callfuse.asgi.types import ASGIApp, Scope
from callfuse.commands import FoundCommands
from callfuse.conversations.identity import Lane, are_ordinary_headers, lane_of
from callfuse.conversations.ledger import LaneState, Ledger, SessionState
from callfuse.dialects import Dialect
from callfuse.dialects.base import Request
from callfuse.observe import log
from callfuse.observe.counts import Counts
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides
from callfuse.wire import Payload
from callfuse.wire.jsontext import NotJSON, apply, loads

MOST_DIGITS = 19
"""Of a content length; Python reads no number of thousands."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the exchanges of one middleware share. `clock` gives seconds; `backend_of` the vendor's name by a path."""

    app: ASGIApp
    settings: LoopSettings
    ledger: Ledger
    counts: Counts
    on_loop: OnLoop | None
    clock: Callable[[], float]
    commands: ChatCommands
    backend_of: Callable[[str], str | None] | None = None

    @property
    def fail_open(self) -> FailOpen:
        """Reports errors of which no session is known yet."""
        return FailOpen(self.counts)

    def unguarded(self, cause: str) -> None:
        """Count what passes without being guarded, and log the first of its kind."""
        if self.counts.add("not_guarded", cause) == 1:
            log.unguarded_exchange(cause)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One request that counts.

    `state`: what the ledger had of its lane. `settings`: those that hold for this exchange. `signed`: the body must not
    be changed. `changed`: it has lost commands, and differs from what has come. `keeps_place`: the session has set
    something that must be found wherever a chain goes on.
    """

    request: KeptRequest
    lane: Lane
    state: LaneState
    now: float
    settings: LoopSettings
    where: Where
    signed: bool
    changed: bool
    keeps_place: bool


class Incoming(NamedTuple):
    """A request as it came: headers by name in lower case, and the whole body without its content encoding."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    dialect: Dialect
    content: bytes

    @property
    def target(self) -> str:
        """Path and query."""
        query = self.scope.get("query_string", b"")
        return f"{self.scope['path']}?{query.decode('latin-1')}" if query else str(self.scope["path"])

    def read(self, content: bytes) -> tuple[Request | None, Payload]:
        """The request with this body, None where it is none of the dialect, and what was parsed. Raises NotJSON."""
        payload = loads(content)
        return self.dialect.read_request(content, payload, self.target), payload


async def prepare(
    host: Host, scope: Scope, found: Mapping[bytes, bytes], body: RequestBody, dialect: Dialect
) -> Prepared | SyntheticReply | Unjudged | None:
    """Read a request and all that holds for it. `found` are its headers by name. Raises only what `receive` raises."""
    limit = host.settings.max_request_bytes
    length = found.get(b"content-length", b"0")
    fits = length.isdigit() and len(length) <= MOST_DIGITS and int(length) <= limit
    if fits:
        await body.read(limit)
    with host.fail_open.stage("in a request"):
        if body.content is None:
            host.unguarded("disconnect" if body.gone else "max_request_bytes")
            return None
        try:
            encoding = found.get(b"content-encoding", b"").decode("latin-1")
            content = decode(body.content, encoding, limit) if encoding else body.content
            return await _Preparation(host, Incoming(scope, found, dialect, content)).run()
        except NotJSON:
            host.unguarded("request not JSON")
        except UnreadableBodyError:
            host.unguarded("request encoding")
    return None


class _Preparation:
    """The steps from a body to `Prepared`."""

    __slots__ = ("_backend", "_host", "_incoming", "_is_ordinary", "_is_signed", "_own")

    def __init__(self, host: Host, incoming: Incoming) -> None:
        self._host = host
        self._incoming = incoming
        self._backend = (host.backend_of and host.backend_of(incoming.scope["path"])) or ""
        self._is_ordinary = are_ordinary_headers(incoming.headers)
        self._is_signed = not self._is_ordinary and headers.is_signed(incoming.headers)
        self._own = NO_OVERRIDES

    async def run(self) -> Prepared | SyntheticReply | Unjudged | None:
        """All steps."""
        host, incoming = self._host, self._incoming
        request, payload = incoming.read(incoming.content)
        if request is None:
            return None
        typed = host.commands.find(request, incoming.headers)
        if request.probe and not typed.any:
            return None
        if not self._is_ordinary:
            self._own = read_overrides(host, incoming.headers)
        query = incoming.scope.get("query_string", b"")
        lane = lane_of(incoming.headers, request, query, payload, ordinary=self._is_ordinary)
        now = host.clock()
        state, kept = await host.ledger.read(lane, now)
        kept = host.commands.without_pinned(kept)
        if typed.any and self._is_signed:
            host.unguarded("signed command")
        elif typed.any:
            session = Session(lane, state.session or lane.session, now)
            done = await self._carry_out(typed, request, session, kept)
            if not isinstance(done, tuple):
                return done
            request, kept = done
        return self._prepared(request, lane, state, kept, now)

    async def _carry_out(
        self, typed: FoundCommands, request: Request, session: Session, kept: SessionState
    ) -> tuple[Request, SessionState] | SyntheticReply | None:
        """Run commands: the request without them, and what its session has set then; or callfuse's own answer."""
        status = Status(self._host.settings, self._model(request), self._own)
        kept, answer = await self._host.commands.carry_out(typed, request, session, kept, status)
        if answer is not None:
            return SyntheticReply(answer)
        stripped, _ = self._incoming.read(apply(self._incoming.content, typed.edits))
        return None if stripped is None else (stripped, kept)  # no edit changes what a body is

    def _prepared(
        self, request: Request, lane: Lane, state: LaneState, kept: SessionState, now: float
    ) -> Prepared | Unjudged | None:
        """The request with the settings that hold for it; it is not judged where these say so."""
        host, incoming = self._host, self._incoming
        settings, keeps_place = host.settings, False
        chosen = kept.overrides if self._is_ordinary else merge_overrides(self._own, kept.overrides)
        if chosen or self._backend or settings.models:
            settings = settings.for_exchange(self._model(request), chosen)
            keeps_place = bool(kept.overrides) and request.continuing is not None
        changed = request.body != incoming.content
        if request.probe or not (settings.enabled or keeps_place):
            return Unjudged(host.app, request.body) if changed else None
        dialect = incoming.dialect
        return Prepared(
            KeptRequest(dialect, request, incoming.target),
            lane,
            state,
            now,
            settings,
            Where(
                state.session or lane.session,
                lane.source,
                lane.tag,
                request.model,
                self._backend or dialect.backend,
                dialect.name,
            ),
            signed=self._is_signed,
            changed=changed,
            keeps_place=keeps_place,
        )

    def _model(self, request: Request) -> str:
        """Backend and model as one text, as settings know models."""
        return f"{self._backend or self._incoming.dialect.backend}:{request.model}"


def read_overrides(host: Host, found: Mapping[bytes, bytes]) -> Overrides:
    """What the headers of a request set; each header that sets nothing is logged once."""
    for name, problem in overrides.find_unknown(found).items():
        if host.counts.add("ignored_headers", "unknown") == 1:  # any name may come from outside
            log.ignored_header(name, problem)
    if not host.settings.header_overrides:
        return NO_OVERRIDES
    own, wrong = overrides.read_overrides(found, has_other_model=host.settings.has_other_model)
    for name, problem in wrong.items():
        if host.counts.add("ignored_headers", name) == 1:
            log.ignored_header(name, problem)
    return own

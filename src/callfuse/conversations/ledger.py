"""What is kept of a lane between exchanges, and the memory store that keeps it.

Only what the requests do not say: when rounds were delivered, which calls were withheld and how far up the ladder, the
notes that surviving calls carry, and rounds that the client has dropped from its history. And of a session, what its
user has set for all of its lanes.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from callfuse.conversations.identity import Lane
from callfuse.dialects.base import AS_ONE, Continuation
from callfuse.model import NOWHERE, Delivery, PastCall, Round, ToolCall
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides

K = TypeVar("K")
V = TypeVar("V")

SessionKey = tuple[bytes, str]
"""A session: the credential's hash, and what logs call the session."""
CallKey = tuple[str, Signature, int]
"""A call in its history: id, signature, and how many of the same id and signature stand before it."""


def is_same_id(one: str, other: str) -> bool:
    """Whether two ids may be of one call. A missing one says nothing: some clients drop the ids that a vendor gives."""
    return one == other or not (one and other)


class KeptCall(NamedTuple):
    """A call of the past without its arguments. `step`: how far up the ladder it went, 0 where nothing was found."""

    id: str
    name: str
    signature: Signature
    outcome: Outcome | None = None
    delivery: Delivery = Delivery.DELIVERED
    step: int = 0
    namespace: str = ""

    @property
    def withheld(self) -> bool:
        """Whether it never reached the client."""
        return not self.delivery.reached_client

    def call(self) -> ToolCall:
        """The call itself, whose arguments are gone."""
        return ToolCall(self.id, self.name, "", namespace=self.namespace, signature=self.signature, has_arguments=False)

    def past(self) -> PastCall:
        """The call as detectors read it where the request does not hold it."""
        delivery = Delivery.DROPPED if self.delivery is Delivery.DELIVERED else self.delivery
        return PastCall(self.call(), outcome=self.outcome, delivery=delivery, step=self.step)


@dataclass(slots=True)
class KeptRound:
    """A round: where in the history it was delivered, when (seconds), after which user message (a digest).

    Never changed; to have Python see to that would cost each request more than all else that it keeps.
    """

    position: int
    time: float | None
    turn: bytes
    calls: tuple[KeptCall, ...]
    delivered: tuple[KeptCall, ...] = field(init=False)
    """Those of the calls that the client has."""
    blocked: bool = field(init=False)
    """Whether one of them was blocked."""

    def __post_init__(self) -> None:
        """Work out what each request asks of each round."""
        self.delivered = tuple([call for call in self.calls if not call.withheld])
        self.blocked = Delivery.BLOCKED in [call.delivery for call in self.calls]

    @property
    def has_outcomes(self) -> bool:
        """Whether a result of one of its calls has been read."""
        return any(call.outcome is not None for call in self.delivered)

    def past(self) -> Round:
        """The round as detectors read it where the request does not hold it."""
        return Round(tuple([call.past() for call in self.calls]), NOWHERE, self.time)


@dataclass(slots=True)
class LaneState:
    """All that is kept of one lane. Never changed, as `KeptRound`."""

    rounds: tuple[KeptRound, ...] = ()
    """The rounds since the last real user message, oldest first."""
    notes: Mapping[CallKey, str] = field(default_factory=dict)
    """The texts that results carry, by their calls; an empty one says that a result carries no warning."""
    length: int = 0
    """Messages in the last request."""
    continuation: Continuation = AS_ONE
    """What the vendor's memory of this conversation lacks, or has beyond the client's."""
    session: str = ""
    """What logs call the session, where the lane goes by the id of an answer."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """What a session has set for itself, and the turns whose commands have been run (digests, oldest first)."""

    overrides: Overrides = NO_OVERRIDES
    ran: tuple[bytes, ...] = ()


class Ledger(Protocol):
    """A store of lanes and sessions. An exchange reads once and writes once at most."""

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """The lane's state, an empty one where it is not known, and what its session has set, which is then kept for
        longer. The session's name is that which the state knows, else the lane's."""
        ...

    async def write(self, lanes: Mapping[Lane, LaneState], now: float) -> None:
        """Keep the states of an exchange's lanes, all of one credential."""
        ...

    async def write_session(self, session: SessionKey, state: SessionState, now: float) -> None:
        """Keep what a session has set."""
        ...


class KeptSession(NamedTuple):
    """What is kept of a session, and when it was last used (seconds)."""

    key: SessionKey
    state: SessionState
    used: float


@runtime_checkable
class SessionList(Protocol):
    """What a `Ledger` may be besides: one that knows which sessions it keeps."""

    async def sessions(self, now: float) -> list[KeptSession]:
        """Those that have set something, the last used one first. None of them is kept for longer by being listed."""
        ...


@runtime_checkable
class Connected(Protocol):
    """What a `Ledger` may be besides: one that has connections. It opens them when it is used."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class MemoryLedger:
    """Keeps lanes, and sessions that have set something, in this process: at most `max_lanes` of each, for `ttl_s`
    seconds after their last use."""

    def __init__(self, *, max_lanes: int, ttl_s: float) -> None:
        self._max_lanes = max_lanes
        self._ttl_s = ttl_s
        self._lanes: OrderedDict[Lane, tuple[float, LaneState]] = OrderedDict()
        self._sessions: OrderedDict[SessionKey, tuple[float, SessionState]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lanes)

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """The state of a lane and what its session has set; nothing of either that has not been used for too long."""
        used, state = self._lanes.get(lane, (now, _NOTHING_KEPT))
        if now - used > self._ttl_s:
            state = _NOTHING_KEPT
        if not self._sessions:  # in most processes nobody ever sets anything
            return state, _NOTHING_SET
        return state, self._session((lane.credential, state.session or lane.session), now)

    def _session(self, key: SessionKey, now: float) -> SessionState:
        used, state = self._sessions.get(key, (now, _NOTHING_SET))
        if state is _NOTHING_SET or now - used > self._ttl_s:
            return _NOTHING_SET
        self._sessions[key] = now, state
        self._sessions.move_to_end(key)
        return state

    async def write(self, lanes: Mapping[Lane, LaneState], now: float) -> None:
        """Keep the states of lanes; lanes out of time, and the longest unused beyond the limit, go."""
        for lane, state in lanes.items():
            self._keep(self._lanes, lane, state, now)

    async def write_session(self, session: SessionKey, state: SessionState, now: float) -> None:
        """Keep what a session has set; sessions go as lanes do."""
        self._keep(self._sessions, session, state, now)

    async def sessions(self, now: float) -> list[KeptSession]:
        """Those that have set something, the last used one first."""
        kept = reversed(self._sessions.items())
        return [
            KeptSession(key, state, used)
            for key, (used, state) in kept
            if state.overrides and now - used <= self._ttl_s
        ]

    def _keep(self, all_: OrderedDict[K, tuple[float, V]], key: K, value: V, now: float) -> None:
        all_[key] = now, value
        all_.move_to_end(key)
        while len(all_) > self._max_lanes or now - next(iter(all_.values()))[0] > self._ttl_s:
            all_.popitem(last=False)


_NOTHING_KEPT: Final = LaneState()
_NOTHING_SET: Final = SessionState()

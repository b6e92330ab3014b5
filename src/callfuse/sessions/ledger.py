"""What is kept of a lane between exchanges, and the memory store that keeps it.

Only what the requests do not say: when rounds were delivered, which calls were withheld and how far up the ladder, the
notes that surviving calls carry, and rounds that the client has dropped from its history.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Protocol

from callfuse.calls.outcomes import Outcome
from callfuse.calls.signature import Signature
from callfuse.dialects.base import Continuation
from callfuse.model import NOWHERE, Round, ToolCall
from callfuse.sessions.identity import Lane

CallKey = tuple[str, Signature, int]
"""A call in its history: id, signature, and how many of the same id and signature stand before it."""


def is_same_id(one: str, other: str) -> bool:
    """Whether two ids may be of one call. A missing one says nothing: some clients drop the ids that a vendor gives."""
    return one == other or not (one and other)


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call without its arguments."""

    id: str
    name: str
    signature: Signature
    outcome: Outcome | None = None
    withheld: bool = False
    blocked: bool = False
    place: int = 0

    def restored(self) -> ToolCall:
        """The call as detectors read it."""
        return ToolCall(
            self.id,
            self.name,
            "",
            signature=self.signature,
            outcome=self.outcome,
            withheld=self.withheld,
            blocked=self.blocked,
            place=self.place,
            dropped=True,
        )


@dataclass(frozen=True, slots=True)
class KeptRound:
    """A round: where in the history it was delivered, when (seconds), after which user message (a digest)."""

    position: int
    time: float | None
    turn: bytes
    calls: tuple[KeptCall, ...]

    @property
    def delivered(self) -> tuple[KeptCall, ...]:
        """The calls that the client has."""
        return tuple(call for call in self.calls if not call.withheld)

    def restored(self) -> Round:
        """The round as detectors read it: it stands nowhere in the request."""
        return Round(tuple(call.restored() for call in self.calls), NOWHERE, self.time)


@dataclass(slots=True)
class LaneState:
    """All that is kept of one lane; rounds oldest first."""

    rounds: list[KeptRound] = field(default_factory=list)
    notes: dict[CallKey, str] = field(default_factory=dict)
    length: int = 0
    """Messages in the last request."""
    used: float = 0.0
    """When the lane was last used, in seconds."""
    continuation: Continuation = field(default_factory=Continuation)
    """What the vendor's memory of this conversation lacks, or has beyond the client's."""
    session: str = ""
    """What logs call the session, where the lane goes by the id of an answer."""


class Ledger(Protocol):
    """A store of lanes."""

    async def read(self, lane: Lane, now: float) -> LaneState:
        """The lane's state; an empty one where it is not known."""
        ...

    async def write(self, lane: Lane, state: LaneState, now: float) -> None:
        """Keep the lane's state."""
        ...


class MemoryLedger:
    """Keeps lanes in this process: at most `max_lanes`, each for `ttl_s` seconds after its last use."""

    def __init__(self, *, max_lanes: int, ttl_s: float) -> None:
        self._max_lanes = max_lanes
        self._ttl_s = ttl_s
        self._lanes: OrderedDict[Lane, LaneState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lanes)

    async def read(self, lane: Lane, now: float) -> LaneState:
        """The lane's state; an empty one where it is not known or has not been used for too long."""
        state = self._lanes.get(lane)
        return state if state is not None and now - state.used <= self._ttl_s else LaneState()

    async def write(self, lane: Lane, state: LaneState, now: float) -> None:
        """Keep the lane's state; lanes out of time, and the longest unused beyond the limit, go."""
        state.used = now
        self._lanes[lane] = state
        self._lanes.move_to_end(lane)
        while self._lanes:
            oldest = next(iter(self._lanes.values()))
            if len(self._lanes) <= self._max_lanes and now - oldest.used <= self._ttl_s:
                return
            self._lanes.popitem(last=False)

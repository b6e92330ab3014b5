"""Define the state of lanes and sessions between exchanges, and the `Ledger` protocol.

A lane's state has only what requests do not contain: when rounds were delivered, which calls were withheld on which
step of the ladder, the notes in results, and rounds that the client has dropped from its history. A session's state has
the settings that apply to all of its lanes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, runtime_checkable

from callfuse.conversations.identity import Lane
from callfuse.dialects.stateful import NO_DIFFERENCE, Continuation
from callfuse.model import NOWHERE, Delivery, PastCall, Round, ToolCall
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature
from callfuse.model.spent import NOTHING_SPENT, Spent
from callfuse.policy.allowed import Allowance
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides

SessionKey = tuple[bytes, str]
"""A session: the hash of the credential, and its name, `Lane.owner`."""
TIMES_KEPT: Final = 10
"""Lanes, callers of tools and the histories of in-process agents are kept for this many times `ttl_seconds`."""
_DIGITS: Final = 8
_MOST_WRITES: Final = 16**_DIGITS - 1
_COUNTED: Final = re.compile(r"[0-9a-f]{24}")
CallKey = tuple[str, Signature, int]
"""Identifies a call in a history: id, signature, and the number of calls with the same id and signature before it."""


def is_same_id(one: str, other: str) -> bool:
    """Whether two ids may belong to the same call. An empty id fits any, because some clients drop vendors' ids."""
    return one == other or not (one and other)


class KeptCall(NamedTuple):
    """A call of the past without its arguments. `step`: its step on the ladder, 0 if nothing was found. `outcome`: for
    a blocked call, the outcome of its last execution. Id and names are bounded (`model/ids.py`)."""

    id: str
    name: str
    signature: Signature
    outcome: Outcome | None = None
    delivery: Delivery = Delivery.DELIVERED
    step: int = 0
    namespace: str = ""

    @property
    def withheld(self) -> bool:
        """Whether the call never reached the client."""
        return not self.delivery.reached_client

    def call(self, id_: str | None = None) -> ToolCall:
        """Return the call as a `ToolCall` without arguments. `id_`: its whole id, if known (None: use the kept id)."""
        id_ = self.id if id_ is None else id_
        return ToolCall(id_, self.name, "", namespace=self.namespace, signature=self.signature, has_arguments=False)

    def past(self) -> PastCall:
        """Return the call for detectors, if the request does not contain it; a delivered call counts as dropped."""
        delivery = Delivery.DROPPED if self.delivery is Delivery.DELIVERED else self.delivery
        outcome = None if self.withheld else self.outcome
        return PastCall(self.call(), outcome=outcome, delivery=delivery, step=self.step)


@dataclass(slots=True)
class KeptRound:
    """A round: position in the history, time of delivery (Unix seconds, None if unknown), digest of the user message.

    Must not be changed. Not frozen, because frozen dataclasses are slow to create, and each request creates many.
    """

    position: int
    time: float | None
    turn: bytes
    calls: tuple[KeptCall, ...]
    delivered: tuple[KeptCall, ...] = field(init=False)
    """The calls that the client has received."""
    blocked: bool = field(init=False)
    """Whether any of the calls was blocked."""
    size: int = field(init=False, default=0, compare=False, repr=False)
    """The round's size in bytes, cached once `conversations/size.py` has estimated it: each write needs all sizes."""

    def __post_init__(self) -> None:
        """Compute the derived fields once, because every request reads them."""
        self.delivered = tuple([call for call in self.calls if not call.withheld])
        self.blocked = Delivery.BLOCKED in [call.delivery for call in self.calls]

    @property
    def has_outcomes(self) -> bool:
        """Whether a result of one of the round's calls has been read."""
        return any(call.outcome is not None for call in self.delivered)

    def past(self) -> Round:
        """Return the round for detectors, if the request does not contain it."""
        return Round(tuple([call.past() for call in self.calls]), NOWHERE, self.time)


@dataclass(frozen=True, slots=True)
class BlockMemory:
    """A lane's memory of its blocks across user messages (`conversations/blocks.py`). Each tuple is bounded.

    `count`: blocks of the lane; `in_a_row`: blocks since a new call was last executed. `calls`: the calls blocked
    before the last user message, oldest first. `turns`: digests of the user messages of the row. `known`: signatures
    that do not count as new in the row. `time`: of the last change, in Unix seconds. `said`: the digest of the last
    user message, which later requests of a chain do not contain.
    """

    count: int = 0
    in_a_row: int = 0
    calls: tuple[KeptCall, ...] = ()
    turns: tuple[bytes, ...] = ()
    known: tuple[Signature, ...] = ()
    time: float = 0.0
    said: bytes = b""


NO_BLOCKS: Final = BlockMemory()


class Told(NamedTuple):
    """A finding that the model learned about by guidance or a warning (or would have, in a holdout), and whose effect
    is not known yet (`conversations/mending.py`).

    `position`: the position of its round (`KeptRound`). `arm`: the arm of the session. `rounds`: how many rounds have
    continued in the same way since. `is_open`: whether the last round did is only known once its results come.
    """

    finding_id: str
    kind: str
    signature: Signature
    position: int
    arm: str = ""
    rounds: int = 0
    is_open: bool = False


class StormEntry(NamedTuple):
    """An event that is counted to find storms (`conversations/storms.py`). `digest`: of the body of a request that the
    vendor has answered with an error, of a sub-agent's id, or of a summary; `time`: in Unix seconds."""

    digest: bytes
    time: float


class CutOff(NamedTuple):
    """A call that a limit has cut off (`conversations/cut_off.py`). `position`, `turn`, `time`: as in `KeptRound`.
    `begin`: a digest of the beginning of its arguments. `answers`: in how many consecutive answers it was cut off; 0
    once a later answer has ended the row. `note`: the text for its result. Id and tool are bounded."""

    position: int
    turn: bytes
    time: float
    id: str
    tool: str
    begin: bytes
    answers: int
    note: str = ""


@dataclass(slots=True)
class LaneState:
    """The state of one lane. Must not be changed, like `KeptRound`."""

    rounds: tuple[KeptRound, ...] = ()
    """The rounds since the last real user message, oldest first."""
    notes: Mapping[CallKey, str] = field(default_factory=dict)
    """The texts that callfuse adds to results, by call; an empty text means that the result gets no warning."""
    length: int = 0
    """The number of messages in the last request."""
    continuation: Continuation = NO_DIFFERENCE
    """How the conversation that the vendor has stored differs from that of the client."""
    session: str = ""
    """The session whose settings apply, for lanes that are identified by the id of an answer; else empty."""
    blocks: BlockMemory = NO_BLOCKS
    told: tuple[Told, ...] = ()
    """Findings that the model has learned about but not reacted to yet, oldest first."""
    storm: tuple[StormEntry, ...] = ()
    """The events counted to find storms, oldest first: requests of the lane that have failed since an answer with
    calls; sub-agents and summaries are counted under keys of their own."""
    cut_off: tuple[CutOff, ...] = ()
    """The calls that a limit has cut off, oldest first, if settings look for such calls."""
    spent: Spent = NOTHING_SPENT
    """The amount spent, for a budget: in a lane, for the turn; under the key of a session or a credential, in total."""
    last_used: float | None = None
    """When the lane was last written, in Unix seconds, if the ledger has dropped it and all else is empty. Rounds that
    its client still sends are at least as old. Not stored."""
    released: float = 0.0
    """When an operator has reset the session, in Unix seconds; rounds until then are not evidence. Not stored here."""
    revision: str = field(default="", compare=False)
    """Identifies this state among those that the lane has had; empty if it was never written."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """The settings of a session, and the turns whose commands have been run (digests, oldest first).

    `overrides` were set by commands or on the admin page, `by_code` by the host (`CallFuseMiddleware.set_session`).
    `reset`: when a command was last run or an operator has reset the session, in Unix seconds; earlier blocks no longer
    count in all of its lanes. `released`: when an operator has reset it; earlier rounds are not evidence. `allowed`:
    the calls that a person allows. `revision`: as in `LaneState`.
    """

    overrides: Overrides = NO_OVERRIDES
    ran: tuple[bytes, ...] = ()
    reset: float = 0.0
    by_code: Overrides = NO_OVERRIDES
    released: float = 0.0
    allowed: tuple[Allowance, ...] = ()
    revision: str = field(default="", compare=False)


class Read(NamedTuple):
    """The state of a lane and of its session, when an exchange read them."""

    lane: Lane
    state: LaneState
    session: SessionState

    @property
    def session_key(self) -> SessionKey:
        """The session that was read with the lane."""
        return self.lane.credential, self.state.session or self.lane.owner


def next_revision(before: str, unique: str) -> str:
    """Return a revision for a state that is about to replace the state with the revision `before`: the number of
    writes, then 16 unique hexadecimal digits."""
    return f"{min(writes_of(before) + 1, _MOST_WRITES):0{_DIGITS}x}{unique}"


def writes_of(revision: str) -> int:
    """Return how often a state has been written, by its revision; 0 if an earlier version of callfuse, which did not
    count, has written it."""
    return int(revision[:_DIGITS], 16) if _COUNTED.fullmatch(revision) else 0


def has_moved(there: LaneState | SessionState, read: LaneState | SessionState) -> bool:
    """Whether the state `there` was written by another exchange after the state `read` was read."""
    return there.revision not in ("", read.revision)


class StoreUnavailable(Exception):
    """Raised if a person's request needs a store that is down or refuses; the message says which, without secrets. An
    exchange never raises it, but continues without the store."""


class Ledger(Protocol):
    """A store of lanes and sessions. An exchange reads once and writes once. `now` is in Unix seconds.

    Nothing is lost if exchanges of a lane overlap: a writer passes the state that it has read. If another exchange has
    written since, under another revision, nothing is written; the writer gets the new state, merges its own into it,
    and tries again.
    """

    async def read(self, lane: Lane, now: float) -> tuple[LaneState, SessionState]:
        """Read the state of a lane and of its session, each empty if unknown. This extends the session's life.

        The session is that in the lane's state (`LaneState.session`), else the lane's `owner`.
        """
        ...

    async def write(self, lanes: Mapping[Lane, LaneState], now: float, read: Read | None = None) -> Read | None:
        """Write all lanes of an exchange, which have one credential and revision. If the lane or the session in `read`
        has moved (`has_moved`), write none of them and return the current state."""
        ...

    async def write_session(
        self, session: SessionKey, state: SessionState, now: float, read: SessionState | None = None
    ) -> SessionState | None:
        """Write a session's state; if it has moved since it was `read`, return the current state instead."""
        ...


class KeptSession(NamedTuple):
    """A session in a ledger, with the time of its last use (Unix seconds)."""

    key: SessionKey
    state: SessionState
    used: float


@runtime_checkable
class SessionList(Protocol):
    """A `Ledger` that can list its sessions. Optional: the admin page lists them if it can."""

    async def sessions(self, now: float) -> list[KeptSession]:
        """List the sessions with settings of their own, the last used one first. Listing does not extend their life.
        Raises StoreUnavailable."""
        ...


@runtime_checkable
class SessionSearch(Protocol):
    """A `Ledger` that can find its sessions by name. Optional: the admin page finds and resets them if it can."""

    async def find_sessions(self, name: str, now: float) -> list[KeptSession]:
        """Find the sessions of this name, one per client, with or without settings of their own, and those whose names
        add a dot and a fingerprint. Their life is not extended. Raises StoreUnavailable."""
        ...


@runtime_checkable
class SharedSessions(Protocol):
    """A `Ledger` whose sessions are shared with other processes. Optional: otherwise each process has its own."""

    def index_sessions(self) -> None:
        """Index the sessions of this process from now on, so that any process can find them by name."""
        ...

    async def write_sessions(
        self,
        states: Mapping[SessionKey, SessionState],
        now: float,
        read: Mapping[SessionKey, SessionState] | None = None,
    ) -> Mapping[SessionKey, SessionState]:
        """Write the states of sessions of one credential, all of them or none. If sessions have moved since they were
        `read`, return these. Raises StoreUnavailable."""
        ...


@runtime_checkable
class FindingStore(Protocol):
    """A `Ledger` in which processes share their findings for a day. Optional: otherwise each process has its own."""

    def share_finding(self, finding_id: str, value: bytes) -> None:
        """Send a finding to the store, in the background. It may be lost if the store is down."""
        ...

    async def shared_finding(self, finding_id: str) -> bytes | None:
        """Return the value that any process has sent for a finding; None if there is none. Raises StoreUnavailable."""
        ...

    async def swap_feedback(self, finding_id: str, said: str) -> str:
        """Keep feedback on a finding; return the feedback that was kept before, empty if there was none."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A `Ledger` with connections, which it opens when it is used. Optional."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@runtime_checkable
class Startable(Protocol):
    """A `Ledger` that can look for its server before an exchange needs it. Optional."""

    def start(self) -> None:
        """Look for the server in the background; problems are reported at once."""
        ...

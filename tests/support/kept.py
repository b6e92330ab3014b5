"""What a ledger keeps, small, and what an exchange would read of it."""

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptRound, LaneState, Ledger, SessionKey, SessionState
from callfuse.policy.tiers import Overrides

TTL = SessionState(Overrides({"ttl_seconds": 9.0}), (b"turn",))
"""A session that has set something."""


def lane(number: int) -> Lane:
    """A lane of its own."""
    return Lane(b"credential", f"session-{number}", b"", "x-callfuse-session-id")


def state(position: int = 1) -> LaneState:
    """A state that can be told from others."""
    return LaneState((KeptRound(position, 0.0, b"", ()),))


def session(number: int) -> SessionKey:
    """A session of its own."""
    return b"credential", f"session-{number}"


async def rounds_of(ledger: Ledger, lane: Lane, now: float) -> tuple[KeptRound, ...]:
    """What is kept of a lane."""
    return (await ledger.read(lane, now))[0].rounds


async def set_by(ledger: Ledger, session: SessionKey, now: float) -> SessionState:
    """What a session has set, as an exchange of a lane without state reads it."""
    credential, name = session
    return (await ledger.read(Lane(credential, name, b"", "x-callfuse-session-id"), now))[1]

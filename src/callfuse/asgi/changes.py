"""Changes states in the ledger that others may change at the same time: read, change, write where nothing has moved."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from secrets import token_hex
from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar

from callfuse.conversations.blocks import after_reset
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import (
    LaneState,
    Ledger,
    Read,
    SessionKey,
    SessionState,
    SharedSessions,
    next_revision,
)

MOST_TRIES: Final = 64
"""How often a write is tried. Each one that fails means that another one has come first."""
_TURNS: RunVar[WeakValueDictionary[Lane, anyio.Lock]] = RunVar("callfuse turns")
"""Of each lane that several exchanges of this event loop are writing to: whose turn it is."""


async def change_lanes(
    ledger: Ledger,
    read: Read,
    make: Callable[[LaneState | None], Awaitable[Mapping[Lane, LaneState]]],
    now: float,
) -> bool:
    """Write what an exchange adds to the state that it has `read`, or that others have written since. Returns False if
    others have always written first.

    Writers of one event loop whose first try failed wait for one another: otherwise each would fail once for each of
    the others.

    `make`: returns the lanes with what is added to the given state; None stands for the state that was `read`.
    """
    state: LaneState | None = None
    async with AsyncExitStack() as turn:
        for tries in range(MOST_TRIES):
            if tries == 1:
                await turn.enter_async_context(_turn_of(read.lane))
            revision = next_revision(read.state.revision, token_hex(8))
            lanes = {lane: replace(after, revision=revision) for lane, after in (await make(state)).items()}
            there = await ledger.write(lanes, now, read)
            if there is None:
                return True
            read, state = there, after_reset(there.state, there.session)
    return False


def _turn_of(lane: Lane) -> anyio.Lock:
    """Return the lock that writers to a lane hold one after another."""
    turns = _TURNS.get(None)
    if turns is None:
        turns = WeakValueDictionary[Lane, anyio.Lock]()
        _TURNS.set(turns)
    return turns.setdefault(lane, anyio.Lock())


async def change_session(
    ledger: Ledger,
    key: SessionKey,
    read: SessionState,
    change: Callable[[SessionState], SessionState],
    now: float,
) -> SessionState:
    """Change a session, as it was `read` or as others have changed it since; returns what was written.

    The last try overwrites what is there, because a person was told that the change is in effect.
    """
    for tries_left in range(MOST_TRIES, 0, -1):
        after = replace(change(read), revision=next_revision(read.revision, token_hex(8)))
        moved = await ledger.write_session(key, after, now, read if tries_left > 1 else None)
        if moved is None:
            break
        read = moved
    return after


async def change_sessions(
    ledger: Ledger,
    read: Mapping[SessionKey, SessionState],
    change: Callable[[SessionState], SessionState],
    now: float,
) -> list[tuple[SessionState, SessionState]]:
    """Change sessions of one credential alike, where processes share sessions all or none; returns each before and
    after. Raises StoreUnavailable, and what `change` raises; then nothing is changed."""
    before = dict(read)
    revision = next_revision(max((state.revision for state in before.values()), default=""), token_hex(8))
    after = {key: replace(change(state), revision=revision) for key, state in before.items()}
    if not isinstance(ledger, SharedSessions):
        return [(state, await change_session(ledger, key, state, change, now)) for key, state in before.items()]
    for tries_left in range(MOST_TRIES, 0, -1):
        moved = await ledger.write_sessions(after, now, before if tries_left > 1 else None)
        if not moved:
            break
        before |= moved
        after |= {key: replace(change(state), revision=revision) for key, state in moved.items()}
    return [(state, after[key]) for key, state in before.items()]

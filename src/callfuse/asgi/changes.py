"""Change states in the ledger that others may change, too: read, change, and write if unchanged meanwhile."""

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
"""How often a write is tried. Each failure means that another writer was faster."""
_TURNS: RunVar[WeakValueDictionary[Lane, anyio.Lock]] = RunVar("callfuse turns")
"""The locks of lanes that several exchanges of this event loop are writing to."""


async def change_lanes(
    ledger: Ledger,
    read: Read,
    make: Callable[[LaneState | None], Awaitable[Mapping[Lane, LaneState]]],
    now: float,
) -> bool:
    """Add an exchange's results to the state that it `read`, or that others have written since. Returns False if every
    try failed because others wrote first.

    After a failed first try, writers of one event loop take turns. Otherwise each would fail once for each other.

    `make`: returns the new states by lane, given the current state; None stands for the state that was `read`.
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
    """Return the lock for writers to a lane."""
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
    """Change a session's state, as it was `read` or as others have changed it since. Returns the written state.

    The last try overwrites the store's state, because a person reads that the change is in effect.
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
    """Apply a change to several sessions of one credential. Returns each state before and after. In a shared store, all
    or none are changed. Raises StoreUnavailable, and errors of `change`; then nothing is changed."""
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

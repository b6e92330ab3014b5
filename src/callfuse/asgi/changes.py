"""Changes states in the ledger that others may change at the same time: read, change, write where nothing has moved."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from callfuse.conversations.ledger import Ledger, SessionKey, SessionState, SharedSessions

MOST_TRIES: Final = 64
"""How often a write is tried. Each one that fails means that another one has come first."""


def new_revision() -> str:
    """A name for a state that is about to be written."""
    return secrets.token_hex(8)


async def change_session(
    ledger: Ledger,
    key: SessionKey,
    read: SessionState,
    change: Callable[[SessionState], SessionState],
    now: float,
) -> SessionState:
    """Change a session, as it was `read` or as others have changed it since; returns what was written.

    The last try writes over what is there: a person was told that it holds.
    """
    for tries_left in range(MOST_TRIES, 0, -1):
        after = replace(change(read), revision=new_revision())
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
    """Change sessions of one credential alike, where processes share them all or none; returns each as it was and as it
    is. Raises StoreUnavailable, and what `change` raises; then nothing is changed."""
    revision = new_revision()
    before = dict(read)
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

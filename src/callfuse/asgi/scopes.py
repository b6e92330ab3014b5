"""Give each call of the app a scope of its own, so that changes by one call do not reach the next one.

The first call gets the host's own `state`, which its middlewares read and write. Later calls get copies of the state
before the first one.
"""

from collections.abc import Mapping
from typing import Final

from callfuse.asgi.types import ASGIApp, Receive, Scope, Send

CACHES: Final = frozenset({"_ls_connection_state"})
"""Keys of `scope["state"]` under which frameworks cache a request's body and headers: Litestar's."""


def snapshot(scope: Scope) -> Scope:
    """Copy a scope and its `state`, without values that a framework cached there."""
    copy = dict(scope)
    state = copy.get("state")
    if isinstance(state, Mapping):
        copy["state"] = {key: value for key, value in state.items() if key not in CACHES}
    return copy


def hand_back(used: Scope, given: Scope) -> None:
    """Copy values that the app wrote into its scope (a route, path parameters) to the given one, because the host's
    outer middlewares read them there. The headers stay unchanged."""
    if used is not given:
        given.update((key, value) for key, value in used.items() if key != "headers")


async def call(app: ASGIApp, used: Scope, given: Scope, receive: Receive, send: Send) -> None:
    """Call the app with a copy of the given scope, and copy back what the app wrote there."""
    try:
        await app(used, receive, send)
    finally:
        hand_back(used, given)

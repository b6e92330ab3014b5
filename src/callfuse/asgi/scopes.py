"""Gives each call of the app a scope of its own, so that nothing that one call leaves there reaches the next one.

The first call has the host's own `state`, where its middlewares put things and look for others. Later calls get copies
of what there was before the first one.
"""

from collections.abc import Mapping
from typing import Final

from callfuse.asgi.types import ASGIApp, Receive, Scope, Send

CACHES: Final = frozenset({"_ls_connection_state"})
"""Keys of `scope["state"]` under which frameworks cache a request's body and headers: Litestar's."""


def snapshot(scope: Scope) -> Scope:
    """Copy a scope, with a `state` of its own, without what a framework has cached there."""
    copy = dict(scope)
    state = copy.get("state")
    if isinstance(state, Mapping):
        copy["state"] = {key: value for key, value in state.items() if key not in CACHES}
    return copy


def hand_back(used: Scope, given: Scope) -> None:
    """Put what the app wrote into its scope (a route, path parameters) into the given one, where the host's outer
    middlewares look for it. The headers stay as they came."""
    if used is not given:
        given.update((key, value) for key, value in used.items() if key != "headers")


async def call(app: ASGIApp, used: Scope, given: Scope, receive: Receive, send: Send) -> None:
    """Call the app with a copy of the given scope, and hand back what it wrote there."""
    try:
        await app(used, receive, send)
    finally:
        hand_back(used, given)

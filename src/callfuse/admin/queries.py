"""Read what the admin page shows: the settings in effect for a query, and the sessions that have set something."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from callfuse.admin.access import Access
from callfuse.asgi import CallFuseMiddleware
from callfuse.commands.run import closed_settings
from callfuse.config import model_problem
from callfuse.config.effective import Row, as_plain_masked, effective_rows
from callfuse.conversations.identity import session_name
from callfuse.conversations.ledger import KeptSession, SessionList, SessionSearch
from callfuse.observe.events import FuseReset
from callfuse.policy.nearest import suggest
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides

UNLISTED = "the store that is in use cannot list its sessions"
UNKNOWN = "this process has not heard of it, or not for a long time"


class BadQuery(ValueError):
    """Raised for a query that cannot be answered; the message says why, and what would be right. `status`: the HTTP
    status of the answer."""

    status = 400


class UnknownSession(BadQuery):
    """Raised for a session of which nothing is known."""

    status = 404


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of the page; each may be empty.

    `model` is backend and model as one text, `session` the id that a client uses or the name of a session in logs,
    `client` tells apart sessions of the same name.
    """

    model: str = ""
    tool: str = ""
    session: str = ""
    client: str = ""

    @classmethod
    def read(cls, query: Iterable[tuple[str, str]]) -> "Query":
        """Parse the names and values of a query string. Raises BadQuery for an unknown or repeated name."""
        found: dict[str, str] = {}
        for name, value in query:
            if name not in cls.__slots__:
                raise BadQuery(f"there is no parameter {name!r}; {suggest(name, cls.__slots__)}")
            if name in found:
                raise BadQuery(f"{name} is given twice; keep one")
            found[name] = value.strip()
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that has set something by command.

    `name` is its name in logs, `overrides` are its settings without locked ones, `used` is the time of its last use in
    Unix seconds.
    """

    name: str
    client: str
    overrides: Overrides
    used: float

    @property
    def time(self) -> str:
        """The time of its last use in UTC, to the second."""
        return datetime.fromtimestamp(self.used, UTC).isoformat(" ", "seconds")

    @property
    def set(self) -> dict[str, Any]:
        """What it has set, as plain values."""
        return _plain_values(self.overrides.values)

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """What it has set for single tools, as plain values by tool."""
        return {pattern: _plain_values(values) for pattern, values in self.overrides.tools.items()}

    def as_json(self) -> dict[str, Any]:
        """The session as an object for JSON."""
        own = {"session": self.name, "client": self.client, "last_used": self.time, "set": self.set}
        return {**own, "tools": self.tools} if self.overrides.tools else own


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: as_plain_masked(value) for key, value in values.items()}


async def sessions_of(middleware: CallFuseMiddleware, access: Access) -> list[Session] | None:
    """List the sessions with settings in effect, the last used one first; None if the store cannot list them."""
    if not isinstance(middleware.ledger, SessionList):
        return None
    closed = closed_settings(middleware.settings.commands)
    return [
        Session(kept.key[1], access.tag(kept.key[0]), overrides, kept.used)
        for kept in await middleware.ledger.sessions(time.time())
        if (overrides := kept.state.overrides.without(closed))
    ]


async def rows_of(middleware: CallFuseMiddleware, access: Access, query: Query) -> tuple[list[Row], bool]:
    """List every setting in effect for a query, and say whether its session is known (or none is named). Raises
    BadQuery."""
    resolved = middleware.resolved
    if query.model and (wrong := model_problem(query.model, resolved.config)):
        raise BadQuery(f"model {query.model!r}: {wrong}")
    found = await _find(middleware, access, query) if query.session else []
    closed = closed_settings(middleware.settings.commands)
    set_ = [one for one in found if one.state.overrides.without(closed)]
    _check_is_one_client(query, set_, access)
    overrides = set_[0].state.overrides.without(closed) if set_ else NO_OVERRIDES
    rows = list(effective_rows(resolved, query.model, query.tool or None, overrides))
    return rows, not query.session or bool(found)


async def reset(middleware: CallFuseMiddleware, access: Access, query: Query) -> list[str]:
    """Forget the blocks of a session in all of its lanes, so that its fuse holds again; returns its names. Raises
    BadQuery."""
    if not query.session:
        raise BadQuery("name the session that is to be reset: session=ID")
    found, now = await _find(middleware, access, query), time.time()
    if not found:
        raise UnknownSession(f"session {query.session!r} is unknown: {UNKNOWN}")
    _check_is_one_client(query, found, access)
    for one in found:
        await middleware.ledger.write_session(one.key, replace(one.state, reset=now), now)
    names = [one.key[1] for one in found]
    middleware.bus.emit(FuseReset(tuple(names)))
    return names


async def _find(middleware: CallFuseMiddleware, access: Access, query: Query) -> list[KeptSession]:
    """The sessions of a query, by the client's own id too, the last used one first: one for each client, or those whose
    names are made of the id. Raises BadQuery."""
    ledger, now = middleware.ledger, time.time()
    names = dict.fromkeys([query.session, session_name(query.session)])
    if isinstance(ledger, SessionSearch):
        found = [one for name in names for one in await ledger.find_sessions(name, now)]
    elif isinstance(ledger, SessionList):
        found = [one for one in await ledger.sessions(now) if one.key[1] in names]
    else:
        raise BadQuery(f"session {query.session!r}: {UNLISTED}")
    found = [one for one in found if query.client in ("", access.tag(one.key[0]))]
    return sorted(found, key=lambda one: one.used, reverse=True)


def _check_is_one_client(query: Query, found: Iterable[KeptSession], access: Access) -> None:
    """Raises BadQuery if sessions are of several clients."""
    clients = dict.fromkeys(access.tag(one.key[0]) for one in found)
    if len(clients) > 1:
        asked = " or ".join(clients)
        raise BadQuery(f"session {query.session!r}: several clients have one of this name; add client={asked}")

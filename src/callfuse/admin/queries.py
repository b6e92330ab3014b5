"""Read what the admin page shows: the settings in effect for a query, and the sessions that have set something."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from callfuse.admin.access import Access
from callfuse.asgi import CallFuseMiddleware
from callfuse.commands.run import closed_settings
from callfuse.config import model_problem
from callfuse.config.effective import Row, as_plain_masked, effective_rows
from callfuse.conversations.ledger import SessionList
from callfuse.policy.nearest import suggest
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides

UNLISTED = "the store that is in use cannot list its sessions"


class BadQuery(ValueError):
    """Raised for a query that cannot be answered; the message says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of the page; each may be empty.

    `model` is backend and model as one text, `session` the name of a session in logs, `client` tells apart sessions of
    the same name.
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


def rows_of(middleware: CallFuseMiddleware, query: Query, found: list[Session] | None) -> list[Row]:
    """List every setting in effect for a query; `found` are the results of `sessions_of`. Raises BadQuery."""
    resolved = middleware.resolved
    if query.model and (wrong := model_problem(query.model, resolved.config)):
        raise BadQuery(f"model {query.model!r}: {wrong}")
    return list(effective_rows(resolved, query.model, query.tool or None, _session_overrides(query, found)))


def _session_overrides(query: Query, found: list[Session] | None) -> Overrides:
    if not query.session:
        return NO_OVERRIDES
    if found is None:
        raise BadQuery(f"session {query.session!r}: {UNLISTED}")
    named = [one for one in found if one.name == query.session and query.client in ("", one.client)]
    if len(named) > 1:
        clients = " or ".join(one.client for one in named)
        raise BadQuery(f"session {query.session!r}: several clients have one of this name; add client={clients}")
    return named[0].overrides if named else NO_OVERRIDES

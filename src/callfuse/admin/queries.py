"""What is shown: the settings as they hold for what was asked about, and the sessions that have set something."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from callfuse.admin.access import Access
from callfuse.asgi import CallFuseMiddleware
from callfuse.commands.run import pinned
from callfuse.config import wrong_model
from callfuse.config.effective import Row, effective, shown_plain
from callfuse.conversations.ledger import SessionList
from callfuse.policy.nearest import meant
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides

UNLISTED = "the store that is in use cannot list its sessions"


class WrongError(ValueError):
    """What was asked cannot be answered; the text says why, and what would be right."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Backend and model as one text, a tool, a session as logs name it, and which client's, where several have one of
    this name; each may be empty."""

    model: str = ""
    tool: str = ""
    session: str = ""
    client: str = ""

    @classmethod
    def read(cls, query: Iterable[tuple[str, str]]) -> "Asked":
        """What a query says. Raises WrongError for an unknown name, and for one that is given twice."""
        found: dict[str, str] = {}
        for name, value in query:
            if name not in cls.__slots__:
                raise WrongError(f"there is no parameter {name!r}; {meant(name, cls.__slots__)}")
            if name in found:
                raise WrongError(f"{name} is given twice; keep one")
            found[name] = value.strip()
        return cls(**found)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that has set something by command: its name in logs, its client, what holds of it, and when it was last
    used (seconds)."""

    name: str
    client: str
    overrides: Overrides
    used: float

    @property
    def time(self) -> str:
        """When it was last used, in UTC."""
        return datetime.fromtimestamp(self.used, UTC).isoformat(" ", "seconds")

    @property
    def set(self) -> dict[str, Any]:
        """What it has set, as a file would write it."""
        return _plain(self.overrides.values)

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """What it has set for single tools."""
        return {pattern: _plain(values) for pattern, values in self.overrides.tools.items()}

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        own = {"session": self.name, "client": self.client, "last_used": self.time, "set": self.set}
        return {**own, "tools": self.tools} if self.overrides.tools else own


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: shown_plain(value) for key, value in values.items()}


async def sessions_of(middleware: CallFuseMiddleware, access: Access) -> list[Session] | None:
    """The sessions that have set something that holds, the last used one first; None where the store cannot say."""
    if not isinstance(middleware.ledger, SessionList):
        return None
    locked = pinned(middleware.settings.commands.locked)
    return [
        Session(kept.key[1], access.tag(kept.key[0]), overrides, kept.used)
        for kept in await middleware.ledger.sessions(time.time())
        if (overrides := kept.state.overrides.without(locked))
    ]


def rows_of(middleware: CallFuseMiddleware, asked: Asked, found: list[Session] | None) -> list[Row]:
    """Every setting as it holds for what was asked about, `found` being all sessions. Raises WrongError."""
    resolved = middleware.resolved
    if asked.model and (wrong := wrong_model(asked.model, resolved.config)):
        raise WrongError(f"model {asked.model!r}: {wrong}")
    return list(effective(resolved, asked.model, asked.tool or None, _set_by(asked, found)))


def _set_by(asked: Asked, found: list[Session] | None) -> Overrides:
    if not asked.session:
        return NO_OVERRIDES
    if found is None:
        raise WrongError(f"session {asked.session!r}: {UNLISTED}")
    named = [one for one in found if one.name == asked.session and asked.client in ("", one.client)]
    if len(named) > 1:
        clients = " or ".join(one.client for one in named)
        raise WrongError(f"session {asked.session!r}: several clients have one of this name; add client={clients}")
    return named[0].overrides if named else NO_OVERRIDES

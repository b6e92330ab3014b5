"""Read the data of the admin page: the settings in effect for a query, and the sessions with their own settings."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from callfuse.admin.access import Access
from callfuse.asgi import CallFuseMiddleware
from callfuse.asgi.changes import change_sessions
from callfuse.asgi.commands import merge_overrides, settings_change
from callfuse.commands import Command, run_commands
from callfuse.commands.run import ALLOWED, KEYS, closed_settings
from callfuse.config import model_problem
from callfuse.conversations.identity import session_name
from callfuse.conversations.ledger import (
    KeptSession,
    Ledger,
    SessionKey,
    SessionList,
    SessionSearch,
    SessionState,
    StoreUnavailable,
)
from callfuse.harness import MARKER
from callfuse.observe.events import FuseReset, SettingsChanged
from callfuse.policy.nearest import suggest
from callfuse.policy.settings import NO_OVERRIDES
from callfuse.policy.tiers import Overrides
from callfuse.reference.effective import DEFAULT, EffectiveSetting, as_plain_masked, as_text, effective_rows
from callfuse.wire.jsontext import loads

UNLISTED = "the store that is in use cannot list its sessions"
UNKNOWN = "callfuse has never seen it, or not for a long time"


class BadQuery(ValueError):
    """Raised for an invalid query. The message says why, and what is allowed. `status`: the HTTP status of the
    answer."""

    status = 400


class UnknownSession(BadQuery):
    """Raised for an unknown session."""

    status = 404


class NoStore(BadQuery):
    """Raised if the store with the sessions does not answer."""

    status = 503


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of the page; each may be empty.

    `model` is backend and model as one text, `session` is a client's session id or the name of a session in logs,
    `client` distinguishes sessions of the same name. `changed`, if not empty, leaves out defaults.
    """

    model: str = ""
    tool: str = ""
    session: str = ""
    client: str = ""
    changed: str = ""

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
class SessionSettings:
    """A session with its own settings, set by command, page or code.

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
        """Its own settings, as plain values."""
        return _plain_values(self.overrides.values)

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """Its own settings for single tools, as plain values by tool."""
        return {pattern: _plain_values(values) for pattern, values in self.overrides.tools.items()}

    def as_json(self) -> dict[str, Any]:
        """Return the session as an object for JSON."""
        own = {"session": self.name, "client": self.client, "last_used": self.time, "set": self.set}
        return {**own, "tools": self.tools} if self.overrides.tools else own


def with_all(set_: Iterable[SessionSettings], live: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return sessions as objects for JSON, the last used one first: those with their own settings, and all of the live
    page (`Activity.page`), with their counts."""
    found = [(one.used, one.as_json()) for one in set_]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for _, shown in found:
        name = shown["session"]
        for known in {name, name.rpartition(".")[0]}:
            by_name.setdefault(known, []).append(shown)
    for one in live:
        counts = {name: one["counts"].get(name, 0) for name in ("calls", "findings", "loops")}
        about = {"model": one["model"], "dialect": one["dialect"], **counts}
        if one["session"] not in by_name:
            last = datetime.fromtimestamp(one["used"], UTC).isoformat(" ", "seconds")
            found.append(
                (one["used"], {"session": one["session"], "client": "", "last_used": last, "set": {}, **about})
            )
        for shown in by_name.get(one["session"], ()):
            shown.update(about)
    return [shown for _, shown in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: as_plain_masked(value) for key, value in values.items()}


async def sessions_of(middleware: CallFuseMiddleware, access: Access) -> list[SessionSettings] | None:
    """List the sessions with settings in effect, the last used one first; None if the store cannot list them. Raises
    NoStore."""
    if not isinstance(middleware.ledger, SessionList):
        return None
    closed = closed_settings(middleware.settings.commands)
    try:
        listed = await middleware.ledger.sessions(time.time())
    except StoreUnavailable as down:
        raise NoStore(str(down)) from None
    return [
        SessionSettings(kept.key[1], access.tag(kept.key[0]), overrides, kept.used)
        for kept in listed
        if (overrides := _in_force(kept.state, closed))
    ]


def _in_force(state: SessionState, closed: frozenset[str]) -> Overrides:
    """Return the settings of a session that apply: those set by code, and those set by commands for permitted keys."""
    return merge_overrides(state.by_code, state.overrides.without(closed))


async def rows_of(middleware: CallFuseMiddleware, access: Access, query: Query) -> tuple[list[EffectiveSetting], bool]:
    """List the settings in effect for a query, and say whether its session is known (or none is named). Raises
    BadQuery."""
    resolved = middleware.resolved
    if query.model and (wrong := model_problem(query.model, resolved.config)):
        raise BadQuery(f"model {query.model!r}: {wrong}")
    found = await find_sessions(middleware, access, query) if query.session else []
    closed = closed_settings(middleware.settings.commands)
    set_ = [one for one in found if _in_force(one.state, closed)]
    _check_is_one_client(query, set_, access)
    overrides = _in_force(set_[0].state, closed) if set_ else NO_OVERRIDES
    every = effective_rows(resolved, query.model, query.tool or None, overrides)
    rows = [row for row in every if row.tier != DEFAULT or not query.changed]
    return rows, not query.session or bool(found)


async def reset(middleware: CallFuseMiddleware, access: Access, query: Query) -> list[str]:
    """Forget the blocks of a session in all of its lanes, which resets its fuse, and all evidence until now, so that a
    blocked request can continue. Returns its names. Raises BadQuery."""
    if not query.session:
        raise BadQuery("name the session to reset: session=ID")
    found, now = await find_to_change(middleware, access, query), time.time()

    def release(state: SessionState) -> SessionState:
        return replace(state, reset=max(state.reset, now), released=max(state.released, now))

    await change_states(middleware.ledger, {one.key: one.state for one in found}, release, now)
    names = [one.key[1] for one in found]
    middleware.bus.emit(FuseReset(tuple(names)))
    return names


def read_change(body: bytes) -> dict[str, str | None]:
    """Parse a change: an object of keys with texts, or with null to unset a key. Raises BadQuery."""
    try:
        values = loads(body)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(value is None or isinstance(value, str) for value in values.values()):
        raise BadQuery('send an object of keys with texts, or null to unset a key, as in {"tool-loop-mode": "warn"}')
    return values


async def change(
    middleware: CallFuseMiddleware, access: Access, query: Query, values: Mapping[str, str | None]
) -> list[str]:
    """Set settings of a session by their names in chat commands (`tool-loop-mode`), or unset them (None), with the
    checks and limits of commands. Returns the session's names. Raises BadQuery, and then changes nothing."""
    if not query.session:
        raise BadQuery("name the session to change: session=ID")
    if not values:
        raise BadQuery('name the keys to set, as in {"tool-loop-mode": "warn"}')
    found, now = await find_to_change(middleware, access, query), time.time()
    typed = [Command("unset" if value is None else "set", ((key, value),)) for key, value in values.items()]
    keys, locked = open_keys(middleware), middleware.settings.commands.locked

    def set_values(state: SessionState) -> SessionState:
        ran = run_commands(typed, state.overrides, keys=keys, locked=locked, status=lambda _: ())
        if ran.failed:
            raise BadQuery(ran.text.removeprefix(MARKER).strip())
        return replace(state, overrides=ran.overrides)

    changed: SettingsChanged | None = None
    name = session_name(query.session)
    for before, after in await change_states(middleware.ledger, {one.key: one.state for one in found}, set_values, now):
        changed = settings_change(name, before.overrides, after.overrides, by="page") or changed
    if changed is not None:
        middleware.bus.emit(changed)
    return [one.key[1] for one in found]


async def changeable(middleware: CallFuseMiddleware, access: Access, name: str) -> dict[str, Any]:
    """Describe the changeable settings of a session: its clients, and each permitted key with its use and its value.
    `problem`: why nothing can be changed. `keeps_exchanges`: whether exchanges with a finding are kept."""
    common = {"keeps_exchanges": middleware.exchanges.is_on}
    closed = closed_settings(middleware.settings.commands)
    try:
        found = await find_sessions(middleware, access, Query(session=name))
    except BadQuery as wrong:
        return {**common, "clients": [], "keys": [], "allowed": [], "problem": str(wrong)}
    own = found[0].state.overrides.without(closed).values if found else {}
    keys = [
        {"key": key, "use": ALLOWED[setting], "set": as_text(as_plain_masked(own[setting])) if setting in own else None}
        for key in open_keys(middleware)
        if (setting := KEYS[key]) not in closed
    ]
    allowed = [
        {"what": "call" if one.signature else "tool", "tool": one.tool, "lane": one.lane}
        for one in (found[0].state.allowed if found else ())
    ]
    clients = list(dict.fromkeys(access.tag(one.key[0]) for one in found))
    return {**common, "clients": clients, "keys": keys, "allowed": allowed, "problem": "" if found else UNKNOWN}


def open_keys(middleware: CallFuseMiddleware) -> list[str]:
    """List the keys that sessions may set. A value under any other key would have no effect."""
    commands = middleware.settings.commands
    return [key for key in KEYS if commands.enabled and key in commands.keys and key not in commands.locked]


async def find_sessions(middleware: CallFuseMiddleware, access: Access, query: Query) -> list[KeptSession]:
    """Find the sessions of a query by their name, or by the client's own id, the last used one first. Raises
    BadQuery."""
    ledger, now = middleware.ledger, time.time()
    names = dict.fromkeys([query.session, session_name(query.session)])
    try:
        if isinstance(ledger, SessionSearch):
            found = [one for name in names for one in await ledger.find_sessions(name, now)]
        elif isinstance(ledger, SessionList):
            found = [one for one in await ledger.sessions(now) if one.key[1] in names]
        else:
            raise BadQuery(f"session {query.session!r}: {UNLISTED}")
    except StoreUnavailable as down:
        raise NoStore(f"session {query.session!r}: {down}") from None
    found = [one for one in found if query.client in ("", access.tag(one.key[0]))]
    return sorted(found, key=lambda one: one.used, reverse=True)


async def find_to_change(middleware: CallFuseMiddleware, access: Access, query: Query) -> list[KeptSession]:
    """Find the sessions of a query, which must belong to one client. Raises BadQuery, also if there is none."""
    found = await find_sessions(middleware, access, query)
    if not found:
        raise UnknownSession(f"session {query.session!r} is unknown: {UNKNOWN}")
    _check_is_one_client(query, found, access)
    return found


async def change_states(
    ledger: Ledger,
    states: Mapping[SessionKey, SessionState],
    change_one: Callable[[SessionState], SessionState],
    now: float,
) -> list[tuple[SessionState, SessionState]]:
    """Change sessions of one client. Returns each session before and after the change. Raises NoStore."""
    try:
        return await change_sessions(ledger, states, change_one, now)
    except StoreUnavailable as down:
        raise NoStore(f"{down}; check whether the change was saved") from None


def _check_is_one_client(query: Query, found: Iterable[KeptSession], access: Access) -> None:
    """Raise BadQuery if sessions belong to several clients."""
    clients = dict.fromkeys(access.tag(one.key[0]) for one in found)
    if len(clients) > 1:
        asked = " or ".join(clients)
        raise BadQuery(f"session {query.session!r}: several clients have a session of this name; add client={asked}")

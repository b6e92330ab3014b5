"""Find in-chat commands in requests, run them on the session's overrides, and strip or answer them.

In a signed request, which must not be changed, commands stay, and are not run.
"""

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from callfuse.asgi import headers
from callfuse.asgi.body import RequestBody
from callfuse.asgi.changes import change_session
from callfuse.asgi.scopes import call
from callfuse.asgi.types import ASGIApp, Scope, Send
from callfuse.commands import FoundCommands, PrefixSearch, find_commands, run_commands
from callfuse.commands.run import KEYS, closed_settings
from callfuse.conversations.identity import Lane, chain_lane
from callfuse.conversations.ledger import LaneState, Ledger, SessionKey, SessionState
from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.dialects.typed import OwnAnswer
from callfuse.observe.bus import Bus
from callfuse.observe.events import CommandsRun, SettingsChanged
from callfuse.policy.presets import mode_name
from callfuse.policy.rungs import Rung
from callfuse.policy.sections import Commands
from callfuse.policy.settings import NO_OVERRIDES, LoopSettings
from callfuse.policy.tiers import Overrides, origin

ACTION: Final = b"command"
TURNS_KEPT: Final = 64
"""The most user messages per session that are remembered as run. One for each lane of the session is enough."""

NOTHING: Final = FoundCommands()
"""The result for a request without commands."""


class Session(NamedTuple):
    """The session of an exchange. `name`: the name under which its settings are kept. `now`: the time of the exchange,
    in seconds."""

    lane: Lane
    name: str
    now: float

    @property
    def key(self) -> SessionKey:
        """Return the key of the session's settings in the ledger."""
        return self.lane.credential, self.name


class ChatCommands:
    """Finds and runs the commands that a configuration permits."""

    def __init__(self, settings: Commands, ledger: Ledger, bus: Bus) -> None:
        self._ledger = ledger
        self._bus = bus
        self._enabled = settings.enabled
        self.search = PrefixSearch(settings.prefix)
        self._run = partial(run_commands, keys=settings.keys, locked=settings.locked, prefix=settings.prefix)
        self._closed = closed_settings(settings)
        self._prefix = settings.prefix

    def may_occur_in(self, body: bytes) -> bool:
        """Whether the prefix of commands occurs in a body, or in a part of a body that cuts no string."""
        return self._enabled and self.search.occurs_in(body)

    def find(self, request: Request, *, may_occur: bool = True) -> FoundCommands:
        """Return the commands of a request, and the edits that remove them. `may_occur`: whether its body has the
        prefix and its messages are from a user."""
        chain = request.chain
        found = NOTHING
        if may_occur:
            found = find_commands(request, self._prefix)
        if chain is not None and (edits := chain.detach_from_synthetic_reply()):
            found = found._replace(edits=(*found.edits, *edits))
        return found

    def without_closed(self, kept: SessionState) -> SessionState:
        """Return a session's state without overrides that the operator no longer permits."""
        if not (self._closed and kept.overrides):
            return kept
        return replace(kept, overrides=kept.overrides.without(self._closed))

    async def carry_out(
        self, found: FoundCommands, request: Request, session: Session, before: SessionState, status: "Status"
    ) -> tuple[SessionState, OwnAnswer | None]:
        """Run the commands of the last user message, only once, because agents send it again with each request.

        Returns the session's new state, and callfuse's own answer if the model must not be asked (the message has only
        commands, or a wrong one), else None.
        """
        if not found.commands:
            return before, None
        position, digest = request.last_user_message()
        turn = digest + digest_of((session.lane.fingerprint, str(position).encode()))
        has_run = turn in before.ran if found.fresh else any(one.startswith(digest) for one in before.ran)
        if has_run and not found.only:
            return before, None
        ran = self._run(found.commands, before.overrides, status=status)
        name = session.lane.session if session.lane.named else session.name
        self._bus.emit(CommandsRun(name, refused=ran.failed))
        after = before
        if not ran.failed:

            def change(kept: SessionState) -> SessionState:
                known = [one for one in kept.ran if one != turn]
                overrides = self._run(found.commands, kept.overrides, status=status).overrides
                reset = max(kept.reset, session.now)
                return replace(kept, overrides=overrides, ran=(*known[1 - TURNS_KEPT :], turn), reset=reset)

            after = await change_session(self._ledger, session.key, before, change, session.now)
            if (changed := settings_change(name, before.overrides, ran.overrides)) is not None:
                self._bus.emit(changed)
        if not (found.only or ran.failed):
            return after, None
        await self._keep_place(request, session)
        return after, request.synthetic_reply(ran.text)

    async def _keep_place(self, request: Request, session: Session) -> None:
        """Write the session's name to the lane of a chain that begins with callfuse's own answer, so that later
        requests find it."""
        chain = request.chain
        if chain is not None and chain.begins_chain and (opening := chain.after_synthetic_reply()):
            state = LaneState(session=session.name)
            await self._ledger.write({chain_lane(session.lane, opening): state}, session.now)


def settings_change(session: str, before: Overrides, after: Overrides, by: str = "command") -> SettingsChanged | None:
    """Return the event of settings that commands or the admin page changed, if any, because an operator must see when a
    guard is switched off."""
    names = [name for name, key in KEYS.items() if before.values.get(key) != after.values.get(key)]
    if not names:
        return None
    off = after.values.get("enabled") is False or set(after.values.get("mode", ())) == {Rung.OBSERVE}
    rows = [f"{name} = {_show(after.values[KEYS[name]])}" for name in names if KEYS[name] in after.values]
    return SettingsChanged(session, ", ".join(rows) or f"{', '.join(names)} unset", is_off=off, by=by)


class Status:
    """Lists the settings that commands can change, for `!/status`. `model`: backend and model as one text. `own`:
    overrides in the headers of the request; `by_code`: overrides by the host for the session."""

    def __init__(self, server: LoopSettings, model: str, own: Overrides, by_code: Overrides) -> None:
        self._server = server
        self._model = model
        self._own = own
        self._by_code = by_code

    def __call__(self, session: Overrides) -> list[tuple[str, str, str]]:
        """Return rows of name, value and tier, with the session's own settings applied."""
        both = merge_overrides(self._by_code, self._own, session)
        settings = self._server.for_exchange(self._model, both)
        tiers = self._server.tiers(self._model, both)
        rows = []
        for name, key in KEYS.items():
            tier = origin(key, tiers) or ("server" if key in self._server.model_fields_set else "default")
            if key in self._own.values and key not in session.values:
                tier = "header"
            rows.append((name, _show(getattr(settings, key)), tier))
        return rows


def merge_overrides(*tiers: Overrides) -> Overrides:
    """Merge overrides, the lowest precedence first: those of the host's code for a session, then those in the headers
    of a request, then those of users' commands."""
    merged = NO_OVERRIDES
    for tier in tiers:
        if merged is NO_OVERRIDES:
            merged = tier
        elif tier is not NO_OVERRIDES:
            merged = Overrides({**merged.values, **tier.values}, {**merged.tools, **tier.tools})
    return merged


def _show(value: object) -> str:
    """Format a value as users type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return mode_name(value) or ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class SyntheticReply:
    """An exchange that callfuse answers itself, without calling the app. `action`: the value of the header
    `x-callfuse-action`, followed by `detail`."""

    def __init__(self, answer: OwnAnswer, action: bytes = ACTION, detail: bytes = b"") -> None:
        self.action = action
        self._answer = answer
        self._detail = detail

    async def run(self, scope: Scope, body: RequestBody, send: Send) -> None:
        """Send the answer."""
        content_type, content = self._answer
        start = [
            (b"content-type", content_type),
            (b"content-length", str(len(content)).encode()),
            (b"x-callfuse-action", self.action + self._detail),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Unjudged:
    """An exchange whose request is sent without its commands, and whose answer is not read."""

    def __init__(self, app: ASGIApp, content: bytes) -> None:
        self._app = app
        self._content = content

    async def run(self, scope: Scope, body: RequestBody, send: Send) -> None:
        """Call the app with the stripped body."""
        used = headers.for_body(scope, self._content)
        await call(self._app, used, scope, body.replay(self._content), send)

    def close(self) -> None:
        """Drop the stripped body."""
        self._content = b""

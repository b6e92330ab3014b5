"""In-chat commands on their way: found in a request, run on the session's overrides, stripped or answered.

A request that callfuse must not change (it is signed) keeps its commands, and none of them is run.
"""

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from callfuse.asgi import headers
from callfuse.asgi.body import RequestBody
from callfuse.asgi.types import ASGIApp, Scope, Send
from callfuse.commands import FoundCommands, PrefixSearch, find_commands, run_commands
from callfuse.commands.run import KEYS, locked_settings
from callfuse.conversations.identity import Headers, Lane, chain_lane, is_sub_agent
from callfuse.conversations.ledger import LaneState, Ledger, SessionKey, SessionState
from callfuse.dialects.base import Request
from callfuse.dialects.history import digest_of
from callfuse.dialects.typed import OwnAnswer
from callfuse.observe.counts import Counts
from callfuse.policy.sections import Commands
from callfuse.policy.settings import MODES, LoopSettings
from callfuse.policy.tiers import Overrides, origin

ACTION: Final = b"command"
TURNS_KEPT: Final = 64
"""Turns of a session whose commands are known to have been run: the newest of each of its lanes is enough."""

NOTHING: Final = FoundCommands()
"""A request without commands."""


class Session(NamedTuple):
    """Where an exchange belongs, and when it is (seconds): `name` is what logs call the session."""

    lane: Lane
    name: str
    now: float

    @property
    def key(self) -> SessionKey:
        """Where the ledger keeps what the session has set."""
        return self.lane.credential, self.name


class ChatCommands:
    """The commands of one configuration."""

    def __init__(self, settings: Commands, ledger: Ledger, counts: Counts) -> None:
        self._ledger = ledger
        self._counts = counts
        self._enabled = settings.enabled
        self._mark = PrefixSearch(settings.prefix)
        self._run = partial(run_commands, keys=settings.keys, locked=settings.locked, prefix=settings.prefix)
        self._pinned = locked_settings(settings.locked)
        self._prefix = settings.prefix

    def find(self, request: Request, headers_: Headers) -> FoundCommands:
        """The commands of a request, and the edits without which a vendor would see them. What a sub-agent is asked
        has been written by a model."""
        body, chain = request.body, request.continuing
        found = NOTHING
        if self._enabled and self._mark.occurs_in(body) and not is_sub_agent(headers_):
            found = find_commands(request, self._prefix)
        if chain is not None and (edits := chain.from_aside()):
            found = found._replace(edits=(*found.edits, *edits))
        return found

    def without_pinned(self, kept: SessionState) -> SessionState:
        """A session's settings without those that operators have pinned since."""
        if not self._pinned:
            return kept
        return replace(kept, overrides=kept.overrides.without(self._pinned))

    async def carry_out(
        self, found: FoundCommands, request: Request, session: Session, before: SessionState, status: "Status"
    ) -> tuple[SessionState, OwnAnswer | None]:
        """Run the commands of the last user message; what the session has set then, and the answer where no model is
        to give one. Agents send the message with each of their requests: it is run once, wherever it then stands."""
        if not found.commands:
            return before, None
        position, digest = request.turn()
        turn = digest + digest_of((session.lane.fingerprint, str(position).encode()))
        has_run = turn in before.ran if found.fresh else any(one.startswith(digest) for one in before.ran)
        if has_run and not found.only:
            return before, None
        ran = self._run(found.commands, before.overrides, status=status)
        self._counts.add("commands", "refused" if ran.failed else "run")
        after = before
        if not ran.failed:
            known = [one for one in before.ran if one != turn]
            after = SessionState(ran.overrides, (*known[1 - TURNS_KEPT :], turn))
            await self._ledger.write_session(session.key, after, session.now)
        if not (found.only or ran.failed):
            return after, None
        await self._keep_place(request, session)
        return after, request.aside(ran.text)

    async def _keep_place(self, request: Request, session: Session) -> None:
        """Have a chain that begins with callfuse's own answer find its session."""
        chain = request.continuing
        if chain is not None and chain.begins_chain and (opening := chain.after_aside()):
            state = LaneState(session=session.name)
            await self._ledger.write({chain_lane(session.lane, opening): state}, session.now)


class Status:
    """The settings that commands can change, each with its value and the tier that it is from. `model` is backend and
    model as one text, `own` what the headers of the request set."""

    def __init__(self, server: LoopSettings, model: str, own: Overrides) -> None:
        self._server = server
        self._model = model
        self._own = own

    def __call__(self, session: Overrides) -> list[tuple[str, str, str]]:
        """With what the session has set."""
        both = merge_overrides(self._own, session)
        settings = self._server.for_exchange(self._model, both)
        tiers = self._server.tiers(self._model, both)
        told = []
        for name, key in KEYS.items():
            tier = origin(key, tiers) or ("server" if key in self._server.model_fields_set else "default")
            if key in self._own.values and key not in session.values:
                tier = "header"
            told.append((name, _show(getattr(settings, key)), tier))
        return told


def merge_overrides(headers_: Overrides, session: Overrides) -> Overrides:
    """What the headers of a request and its session set; what users have typed counts more."""
    if not headers_:
        return session
    return Overrides({**headers_.values, **session.values}, {**headers_.tools, **session.tools})


def _show(value: object) -> str:
    """A value as users type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        named = next((name for name, ladder in MODES.items() if ladder == value), None)
        return named or ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class SyntheticReply:
    """The answer of an exchange that callfuse gives by itself; the app is not called."""

    def __init__(self, answer: OwnAnswer) -> None:
        self._answer = answer

    async def run(self, scope: Scope, body: RequestBody, send: Send) -> None:
        """Send the answer."""
        content_type, content = self._answer
        start = [
            (b"content-type", content_type),
            (b"content-length", str(len(content)).encode()),
            (b"x-callfuse-action", ACTION),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await send({"type": "http.response.body", "body": content, "more_body": False})


class Unjudged:
    """An exchange whose answer is not looked at; its request has lost its commands."""

    def __init__(self, app: ASGIApp, content: bytes) -> None:
        self._app = app
        self._content = content

    async def run(self, scope: Scope, body: RequestBody, send: Send) -> None:
        """Have the app answer."""
        await self._app(headers.for_body(scope, self._content), body.replay(self._content), send)

"""Count the cost of the answers to one request, and earlier spending, by turn, session or credential, for a budget.

The spending of a turn is stored with its lane, in the same write. The spending of a session or a credential has its own
key, like a lane without rounds, so an exchange reads and writes once more. In both cases the costs of an exchange are
added to the current value (`asgi/changes.py`), which is never overwritten.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from callfuse.asgi.changes import change_lanes
from callfuse.asgi.evidence import ExchangeEvidence
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.meter import AnswerMeter, MeteredApp
from callfuse.asgi.prepare import Host, Prepared
from callfuse.asgi.types import ASGIApp
from callfuse.conversations.identity import NO_CREDENTIAL, Lane
from callfuse.conversations.ledger import LaneState, Read
from callfuse.model.spent import MICROS, NO_TOKENS, Spent, Tokens
from callfuse.observe.events import TokensSpent

SOURCE: Final = "budget"
"""Replaces the source of a session's name in keys of spending."""


Make = Callable[[LaneState | None], Awaitable[Mapping[Lane, LaneState]]]
BUSY: Final = "other exchanges of this lane wrote first each time"


async def open_spending(host: Host, prepared: Prepared) -> "Spending":
    """Read earlier spending, and return the spending of a request."""
    lane = _shared_lane(prepared) if prepared.settings.budget.is_on else None
    return Spending(host, prepared, None if lane is None else Read(lane, *await host.ledger.read(lane, prepared.now)))


def _shared_lane(prepared: Prepared) -> Lane | None:
    """Return the key for the spending of a request's session or credential; None for a turn. Clients without a
    credential do not share a budget."""
    by, (credential, session) = prepared.settings.budget.by, prepared.read.session_key
    if by == "turn":
        return None
    name = "" if by == "credential" and credential != NO_CREDENTIAL else session
    return Lane(credential, name, b"", SOURCE)


class Spending:
    """Adds up the spending of one exchange. `shared`: that of a session or a credential, as read; None for a turn.

    `stage`: catches errors of counting tokens. `last`: the cost of the last answer, as far as it is known.
    """

    __slots__ = ("_due", "_evidence", "_host", "_prepared", "_shared", "last", "stage")

    def __init__(self, host: Host, prepared: Prepared, shared: Read | None) -> None:
        self.stage = FailOpen(host.bus, prepared.where.session).stage("while counting")
        self.last = NO_TOKENS
        self._host = host
        self._prepared = prepared
        self._shared = shared
        self._due = NO_TOKENS
        self._evidence: ExchangeEvidence | None = None

    @property
    def state(self) -> LaneState:
        """The state of the request's lane, including spending."""
        state, shared = self._prepared.state, self._shared
        return state if shared is None else replace(state, spent=shared.state.spent.at(self._prepared.now))

    @property
    def is_kept(self) -> bool:
        """Whether spending counts towards a budget."""
        return self._prepared.settings.budget.is_on

    def begin(self, evidence: ExchangeEvidence) -> None:
        """Take the evidence of the request, once it has been read."""
        self._evidence = evidence

    def metered(self, app: ASGIApp) -> ASGIApp:
        """Wrap the app to count the cost of its answers, if enabled."""
        return MeteredApp(app, self) if self._prepared.settings.budget.reads_tokens else app

    def meter(self) -> AnswerMeter:
        """Return a meter for the next answer."""
        request = self._prepared.request
        return AnswerMeter(
            request.dialect.counts,
            request.stream_format,
            streamed=request.streamed,
            request=len(request.body),
            limit=self._prepared.settings.max_response_bytes,
            share=self._host.budget.open(),
        )

    def pay(self, used: Tokens | None) -> None:
        """Add the cost of an answer, and report it."""
        if used is None:
            return
        where = self._prepared.where
        self.last = used = self.priced(used)
        self._due = self._due.plus(used)
        self._host.bus.emit(
            TokensSpent(where, used.input, used.cached, used.output, used.estimated, used.money / MICROS)
        )

    def priced(self, used: Tokens) -> Tokens:
        """Return the tokens of an answer with their cost, if the model has a price."""
        prepared = self._prepared
        price = prepared.settings.budget.price_of(prepared.where.backend, prepared.request.model)
        return used if price is None else used._replace(money=price.of(used))

    def take(self, calls: int) -> Spent:
        """Return the spending that was not stored yet, with the number of `calls` that the client got."""
        due, self._due = self._due, NO_TOKENS
        evidence = self._evidence
        warned = evidence is not None and evidence.kept.spent.warned
        return Spent(self._prepared.now, calls, due.total, due.estimated, due.money, warned)

    async def share(self, spent: Spent) -> bool:
        """Add spending to the account of the session or the credential. Returns False for a turn."""
        shared = self._shared
        if shared is None:
            return False
        budget, now = self._prepared.settings.budget, self._host.clock()
        until = budget.end_of_period(now)
        if until != budget.end_of_period(spent.since):  # the period has ended meanwhile
            spent = spent._replace(since=now, warned=False)
        paid = spent._replace(until=until)

        async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
            state = shared.state if there is None else there
            return {shared.lane: LaneState(spent=state.spent.at(now).plus(paid))}

        await self._change(shared, make)
        return True

    async def settle_rest(self) -> None:
        """Store the cost of an answer that was not delivered completely."""
        evidence, prepared = self._evidence, self._prepared
        if self._due == NO_TOKENS or not self.is_kept or evidence is None:
            return
        with self.stage:
            spent = self.take(0)
            if await self.share(spent):
                return

            async def make(there: LaneState | None) -> Mapping[Lane, LaneState]:
                if there is not None:
                    evidence.reread(there, prepared.state)
                return {prepared.lane: evidence.after((), (), prepared.now, evidence.kept.told, spent)}

            await self._change(prepared.read, make)

    async def _change(self, read: Read, make: Make) -> None:
        if not await change_lanes(self._host.ledger, read, make, self._host.clock()):
            FailOpen(self._host.bus, self._prepared.where.session).report(BUSY)

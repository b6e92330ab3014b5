"""What happens, as values: the events behind logs, counts, metrics, traces, feed and callbacks.

Each is emitted once, at the place where it happens, to a `Bus` (`observe/bus.py`), which gives it to every sink. Texts
are as they came from outside: a sink bounds, escapes and stars what it shows (`observe/fields.py` does so for all).
Times are in seconds.
"""

import secrets
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature
from callfuse.policy.ladder import ALLOW, Verdict

__all__ = [
    "ActionTaken",
    "AskFailed",
    "AskedAgain",
    "CallSeen",
    "CallbackFailed",
    "CommandsRun",
    "CourseMended",
    "Decided",
    "DeliveryDropped",
    "DeliveryFailed",
    "Event",
    "ExchangeEnded",
    "FailedOpen",
    "FeedbackGiven",
    "FindingSeen",
    "FuseBlown",
    "FuseReset",
    "HeaderIgnored",
    "HoldBegan",
    "HoldEnded",
    "LedgerDropped",
    "LoopBegan",
    "NotAsked",
    "NotGuarded",
    "NotWatched",
    "Refused",
    "ResultSeen",
    "SettingsChanged",
    "StoreDown",
    "StoreFailed",
    "StoreSkipped",
    "StoreUp",
    "StoreWithoutLoop",
    "TokensSpent",
    "Where",
    "WorkerReplaced",
]

MODES: Final = ("guarded", "watched", "answered", "passed")
"""What callfuse did with an exchange: it could withhold calls of the answer; it read an answer without a call that
could be a loop; it answered by itself; the exchange passed it."""
ENDINGS: Final = ("complete", "broke off", "client gone", "error")
"""How exchanges end. `error`: the app, or the server's `send`, has raised. An answer that was not held is `complete`
wherever its app has returned."""

UPSTREAM_ERROR: Final = "upstream_error"
"""Of an exchange: the upstream answered with a status of 400 or more, so there were no calls to look at."""
FAILED: Final = 400
OUTCOMES: Final = {one: one.replace(" ", "_") for one in (*MODES, *ENDINGS) if one != "complete"}
"""Of an exchange: what callfuse did with it, or how it ended if not well; each as one word."""


class Where(NamedTuple):
    """Where an exchange belongs, as logs and callbacks name it. `source`: what named the session."""

    session: str
    source: str
    lane: str
    model: str
    backend: str
    dialect: str


FEEDBACK: Final = ("false_positive", "true_positive", "too_late")
"""What a finding can be said to have been: no loop; a loop; a loop that should have been found earlier."""
NOWHERE: Final = Where("-", "", "", "", "", "")
"""Where things happen before the session is known."""


def new_finding_id() -> str:
    """Return the id of one finding: 16 characters that nobody can guess, so that feedback comes from who has seen
    it."""
    return secrets.token_hex(8)


def action_of(verdict: Verdict) -> str:
    """Return the rung of a verdict as a word; `allow` without one."""
    return str(verdict.rung) if verdict.rung else ALLOW


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened. `name`: the kind, in one or two words joined by `_`. `on_demand`: only sinks that
    name the kind among their `kinds` get it; without one it is not even made."""

    name: ClassVar[str] = "event"
    on_demand: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ExchangeEnded(Event):
    """One POST to a path of a dialect is over, whatever became of it.

    `mode`: one of `MODES`, `ending`: one of `ENDINGS`. `cause`: why callfuse did not guard or watch it; empty if it
    did. `status`: of the client's answer; 0 if none began, or if nobody looked. `calls`: complete calls of the model,
    those that were withheld included. `action`: the last rung, `allow` for a callback's, `blown` or `command` for
    callfuse's own answers; empty if nothing was found. `seconds`: since the request came; `held_seconds`: of which
    bytes of the answer were held; `asked_seconds`: of these, while the model was asked again. `before_seconds`: from
    the end of the request's body to the call of the app. `first_byte_seconds`: from the start to the first bytes of the
    app's answer; 0 if there were none, or if nobody looked. `route`: the path of `serve.routes`, `/` for every other.
    """

    name: ClassVar[str] = "exchange"
    where: Where
    mode: str
    ending: str
    cause: str
    status: int
    calls: int
    action: str
    seconds: float
    held_seconds: float
    asked_seconds: float = 0.0
    before_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    route: str = "/"

    @property
    def guarded(self) -> bool:
        """Whether callfuse has looked for loops in it."""
        return not self.cause

    @property
    def outcome(self) -> str:
        """What became of it, in one word of `OUTCOMES`: its mode, or its ending if that is not well."""
        if self.ending != "complete":
            return OUTCOMES.get(self.ending, "other")
        if self.status >= FAILED and self.mode in ("guarded", "watched", "passed"):
            return UPSTREAM_ERROR
        return OUTCOMES.get(self.mode, "other")


@dataclass(frozen=True, slots=True)
class TokensSpent(Event):
    """An answer of the model is over, and has cost so many tokens; only where tokens are counted. `estimated_tokens`:
    those of them of which the vendor has told nothing. `cost`: in the currency of the settings; 0 without a price."""

    name: ClassVar[str] = "spent"
    where: Where
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    estimated_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class CallSeen(Event):
    """The model has made a complete call. `action`: what was done about it; `none` if nothing was found."""

    name: ClassVar[str] = "call"
    where: Where
    call: ToolCall
    action: str


@dataclass(frozen=True, slots=True)
class HoldBegan(Event):
    """From now on bytes of an answer wait for a verdict, or for another answer of the model."""

    name: ClassVar[str] = "hold_began"
    where: Where


@dataclass(frozen=True, slots=True)
class HoldEnded(Event):
    """A hold is over, `seconds` after its first byte came. `size`: the most bytes that waited in it at a time.

    `how`: `released` (nothing was found), `withheld` (calls were), `failed` (it went unjudged), `cut` (the answer broke
    off, or the client left).
    """

    name: ClassVar[str] = "hold"
    where: Where
    seconds: float
    size: int
    how: str


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """The calls of a guarded answer were judged, and what is to be done about them begun, after `seconds` seconds; a
    callback's time is among them."""

    name: ClassVar[str] = "decided"
    where: Where
    seconds: float


@dataclass(frozen=True, slots=True)
class FindingSeen(Event):
    """A call, or the results of a round, were found looping, and this is what was done about it.

    Once for each verdict: where a rung has failed and the next is taken, the same finding comes again (`again`).
    `blocks`: how often the lane was blocked, this time included, if the call is. `tokens`: of a withheld call, those of
    a request like its own and the answer (`observe/saved.py`), and their `price`; 0 if not known. `arm`: where a share
    of sessions is only observed, to measure what acting on findings does, `holdout` for those, `guarded` for others.
    `would`: the rung that it would have led to, where it was only observed (`observe/would.py`); else empty.
    """

    name: ClassVar[str] = "finding"
    where: Where
    verdict: Verdict
    blocks: int = 0
    again: bool = False
    arm: str = ""
    would: str = ""
    tokens: int = 0
    price: float = 0.0

    @property
    def finding_id(self) -> str:
        """The id by which feedback and other events name the finding."""
        return self.verdict.finding_id

    @property
    def action(self) -> str:
        """What was done: a rung, or `allow`."""
        return action_of(self.verdict)


@dataclass(frozen=True, slots=True)
class LoopBegan(Event):
    """A finding is the first of a streak: the rounds with a finding that follow it, each one after another, are one
    loop. `finding_id`: that finding, `found` its kind, `tool` its tool; `arm` as in `FindingSeen`."""

    name: ClassVar[str] = "loop"
    where: Where
    finding_id: str
    found: str
    tool: str
    arm: str = ""


@dataclass(frozen=True, slots=True)
class ActionTaken(Event):
    """A rung that does more than observe was taken. `first`: for the first time in the streak. `arm`: as in
    `FindingSeen`, never `holdout`. `told`: the text for the model, or for the client in place of the call; it may quote
    arguments and results, so `fields_of` leaves it out."""

    name: ClassVar[str] = "action"
    where: Where
    finding_id: str
    rung: str
    first: bool
    arm: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class ResultSeen(Event):
    """The client has sent the result of a call of the newest round, for the first time. `call_id` as the ledger keeps
    it (`model/ids.py`)."""

    name: ClassVar[str] = "result"
    on_demand: ClassVar[bool] = True
    where: Where
    call_id: str
    signature: Signature
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CourseMended(Event):
    """How the model reacted to a finding that it read about in guidance or a warning; in the arm `holdout`, to one that
    it would have read about. `result`: `changed`, `same`, `ended` or `user` (`conversations/mending.py`)."""

    name: ClassVar[str] = "mended"
    where: Where
    finding_id: str
    result: str
    arm: str = ""


@dataclass(frozen=True, slots=True)
class FailedOpen(Event):
    """Calls passed unjudged. `cause`: why; up to its first colon one of few texts."""

    name: ClassVar[str] = "fail_open"
    cause: str
    session: str = "-"

    @property
    def kind(self) -> str:
        """The cause without what is particular to this time."""
        return self.cause.partition(":")[0]


@dataclass(frozen=True, slots=True)
class NotGuarded(Event):
    """A request or an answer passed unguarded, although its path is guarded."""

    name: ClassVar[str] = "not_guarded"
    cause: str
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class NotWatched(Event):
    """A healthy answer was not read, so that its calls are not known."""

    name: ClassVar[str] = "not_watched"
    cause: str
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class NotAsked(Event):
    """The model could not be asked again because of this part of the answer or the path."""

    name: ClassVar[str] = "not_asked"
    part: str
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class AskedAgain(Event):
    """The model is asked again: its answer has lost its calls, or was cut off. `model`: the one that is asked; empty if
    it is the client's own."""

    name: ClassVar[str] = "asked"
    where: Where
    model: str = ""


@dataclass(frozen=True, slots=True)
class AskFailed(Event):
    """The model was asked again in vain, and the next rung is taken."""

    name: ClassVar[str] = "ask_failed"
    cause: str
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """callfuse has refused a request. `what`: `websocket`."""

    name: ClassVar[str] = "refused"
    what: str


@dataclass(frozen=True, slots=True)
class FuseBlown(Event):
    """callfuse has answered by itself, after `blocks` blocks in a row, without asking the model."""

    name: ClassVar[str] = "blown"
    where: Where
    blocks: int


@dataclass(frozen=True, slots=True)
class FuseReset(Event):
    """An operator has reset the fuse of sessions. `sessions`: their names in logs."""

    name: ClassVar[str] = "reset"
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommandsRun(Event):
    """The commands of a message were run. `refused`: one of them is wrong, so none was."""

    name: ClassVar[str] = "commands"
    session: str
    refused: bool


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A session's settings have changed. `what`: the new values in words. `is_off`: no call of it is withheld or warned
    of now. `by`: `command`, `page` or `code`."""

    name: ClassVar[str] = "settings"
    session: str
    what: str
    is_off: bool
    by: str = "command"


@dataclass(frozen=True, slots=True)
class HeaderIgnored(Event):
    """A header that should change a setting is unknown (`known` is false) or cannot be parsed."""

    name: ClassVar[str] = "header_ignored"
    header: str
    problem: str
    known: bool


@dataclass(frozen=True, slots=True)
class CallbackFailed(Event):
    """`on_loop` has raised, was too slow, or returned no rung."""

    name: ClassVar[str] = "callback_error"
    error: Exception


@dataclass(frozen=True, slots=True)
class FeedbackGiven(Event):
    """Somebody says of a finding what it was. `kind`: one of `FEEDBACK`. `found`: the kind of the finding, `tool` its
    tool."""

    name: ClassVar[str] = "feedback"
    finding_id: str
    kind: str
    found: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class LedgerDropped(Event):
    """A lane or a session was forgotten before its time. `limit`: which limit was reached."""

    name: ClassVar[str] = "ledger_dropped"
    limit: str


@dataclass(frozen=True, slots=True)
class DeliveryFailed(Event):
    """An event could not be sent to the webhook, and waits. `cause`: the status, `timeout`, or what failed."""

    name: ClassVar[str] = "webhook_failed"
    cause: str


@dataclass(frozen=True, slots=True)
class DeliveryDropped(Event):
    """An event will not be sent to the webhook. `why`: too many waited (`full`), `refused`, or the server `stopped`."""

    name: ClassVar[str] = "webhook_dropped"
    why: str


@dataclass(frozen=True, slots=True)
class StoreDown(Event):
    """The shared store is left alone from now on. `store`: its address without credentials."""

    name: ClassVar[str] = "store_down"
    store: str
    why: str


@dataclass(frozen=True, slots=True)
class StoreUp(Event):
    """The shared store answers again."""

    name: ClassVar[str] = "store_up"
    store: str


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """An operation of the shared store has failed: `read`, `write`, `probe`, `finding`; `value` for an unreadable
    value, `newer` for one of a newer version of callfuse."""

    name: ClassVar[str] = "store_failed"
    NEWER: ClassVar[str] = "newer"
    store: str
    operation: str


@dataclass(frozen=True, slots=True)
class StoreWithoutLoop(Event):
    """The app does not run under asyncio, which the store needs."""

    name: ClassVar[str] = "store_without_loop"
    store: str


@dataclass(frozen=True, slots=True)
class StoreSkipped(Event):
    """An operation was not tried, because the store is down."""

    name: ClassVar[str] = "store_skipped"
    store: str
    operation: str


@dataclass(frozen=True, slots=True)
class WorkerReplaced(Event):
    """This worker of `callfuse serve` stands in for one that has died."""

    name: ClassVar[str] = "worker_replaced"

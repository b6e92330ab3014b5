"""Define the events behind logs, counts, metrics, traces, feed and callbacks.

Each is emitted once, at the place where it happens, to a `Bus` (`observe/bus.py`), which gives it to every sink.
Foreign texts are unchanged: a sink must bound, escape and mask what it shows (`observe/fields.py` does this for all).
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
"""What callfuse did with an exchange. `guarded`: it could withhold calls of the answer. `watched`: it only read the
answer, because no call in it could be a loop. `answered`: it answered by itself. `passed`: it did nothing."""
ENDINGS: Final = ("complete", "broke off", "client gone", "error")
"""How exchanges end. `error`: the app, or the server's `send`, raised. An answer that was not held is `complete` once
its app has returned."""

UPSTREAM_ERROR: Final = "upstream_error"
"""The outcome of an exchange whose upstream answered with a status of 400 or more, so there were no calls."""
FAILED: Final = 400
OUTCOMES: Final = {one: one.replace(" ", "_") for one in (*MODES, *ENDINGS) if one != "complete"}
"""The outcomes of exchanges: what callfuse did, or how the exchange ended unless it was complete; each as one word."""


class Where(NamedTuple):
    """Session, lane, model and dialect of an exchange, as in logs. `source`: where the session id was found."""

    session: str
    source: str
    lane: str
    model: str
    backend: str
    dialect: str


FEEDBACK: Final = ("false_positive", "true_positive", "too_late")
"""The ratings of a finding: no loop; a loop; a loop that should have been found earlier."""
NOWHERE: Final = Where("-", "", "", "", "", "")
"""The place of events before the session is known."""


def new_finding_id() -> str:
    """Return a new id for a finding: 16 characters that cannot be guessed, so only its readers can rate it."""
    return secrets.token_hex(8)


def action_of(verdict: Verdict) -> str:
    """Return the rung of a verdict as a word; `allow` without one."""
    return str(verdict.rung) if verdict.rung else ALLOW


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened. `name`: the kind, in one or two words joined by `_`. `on_demand`: only sinks that
    list the kind in `kinds` get it; without such a sink it is not even built."""

    name: ClassVar[str] = "event"
    on_demand: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class ExchangeEnded(Event):
    """One POST to a path of a dialect is over, with any result.

    `mode`: one of `MODES`, `ending`: one of `ENDINGS`. `cause`: why callfuse did not guard or watch it; empty if it
    did. `status`: of the client's answer; 0 if no answer began, or if it was not read. `calls`: complete calls of the
    model, including withheld ones. `action`: the last rung, `allow` for a callback's, `blown` or `command` for
    callfuse's own answers; empty if nothing was found. `seconds`: since the request came; `held_seconds`: how long
    bytes of the answer were held; `asked_seconds`: the part of it in which the model was asked again. `before_seconds`:
    from the end of the request's body to the call of the app. `first_byte_seconds`: from the start to the first bytes
    of the app's answer; 0 if there were none, or if it was not read. `route`: its path, or `/`.
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
        """Whether callfuse looked for loops in the exchange."""
        return not self.cause

    @property
    def outcome(self) -> str:
        """Its outcome, one of `OUTCOMES` or `UPSTREAM_ERROR`: its ending, or its mode if it is complete."""
        if self.ending != "complete":
            return OUTCOMES.get(self.ending, "other")
        if self.status >= FAILED and self.mode in ("guarded", "watched", "passed"):
            return UPSTREAM_ERROR
        return OUTCOMES.get(self.mode, "other")


@dataclass(frozen=True, slots=True)
class TokensSpent(Event):
    """The token counts of a finished answer of the model; only if tokens are counted. `estimated_tokens`: the part that
    the vendor did not report. `cost`: in the currency of the settings; 0 without a price."""

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
    """The calls of a guarded answer were judged, and the action was begun, within `seconds`, including a callback's
    time."""

    name: ClassVar[str] = "decided"
    where: Where
    seconds: float


@dataclass(frozen=True, slots=True)
class FindingSeen(Event):
    """A call, or the results of a round, were found looping, with the action that followed.

    Emitted once for each verdict: if a rung fails and the next one follows, the same finding is emitted again
    (`again`). `blocks`: how often the lane was blocked, including this time if the call is blocked. `tokens`: for a
    withheld call, the tokens of a request like its own and of the answer (`observe/saved.py`), and their `price`; 0 if
    not known. `arm`: `holdout` for the share of sessions that is only observed, to measure the effect of acting on
    findings; `guarded` for the others. `would`: the rung that it would have led to if only observed
    (`observe/would.py`).
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
    """A finding is the first of a streak: consecutive rounds with a finding are one loop. `finding_id`: that finding,
    `found`: its kind, `tool`: its tool; `arm` as in `FindingSeen`."""

    name: ClassVar[str] = "loop"
    where: Where
    finding_id: str
    found: str
    tool: str
    arm: str = ""


@dataclass(frozen=True, slots=True)
class ActionTaken(Event):
    """callfuse acted on a finding, by a rung other than `observe`. `first`: for the first time in the streak. `arm`: as
    in `FindingSeen`, never `holdout`. `told`: the text for the model, or for the client in place of the call; it may
    quote arguments and results, so `fields_of` leaves it out."""

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
    """Calls passed unjudged. `cause`: why; the part before its first colon is from a fixed set."""

    name: ClassVar[str] = "fail_open"
    cause: str
    session: str = "-"

    @property
    def kind(self) -> str:
        """The cause up to its first colon."""
        return self.cause.partition(":")[0]


@dataclass(frozen=True, slots=True)
class NotGuarded(Event):
    """A request or an answer passed unguarded, although its path is guarded."""

    name: ClassVar[str] = "not_guarded"
    cause: str
    where: Where = NOWHERE


@dataclass(frozen=True, slots=True)
class NotWatched(Event):
    """A healthy answer was not read, so its calls are not known."""

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
    """The model is asked again because its answer lost its calls, or was cut off. `model`: the model that is asked;
    empty for the client's own."""

    name: ClassVar[str] = "asked"
    where: Where
    model: str = ""


@dataclass(frozen=True, slots=True)
class AskFailed(Event):
    """Asking the model again failed, so the next rung follows."""

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
    """The commands of a message were handled. `refused`: one of them is wrong, so none was run."""

    name: ClassVar[str] = "commands"
    session: str
    refused: bool


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A session's settings have changed. `what`: the new values in words. `is_off`: no calls of the session are
    withheld or warned about from now on. `by`: `command`, `page` or `code`."""

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
    """Somebody rated a finding. `kind`: one of `FEEDBACK`. `found`: the kind of the finding, `tool` its tool."""

    name: ClassVar[str] = "feedback"
    finding_id: str
    kind: str
    found: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class LedgerDropped(Event):
    """A lane or a session was dropped before it expired. `limit`: which limit was reached."""

    name: ClassVar[str] = "ledger_dropped"
    limit: str


@dataclass(frozen=True, slots=True)
class DeliveryFailed(Event):
    """An event could not be sent to the webhook yet. `cause`: the status, `timeout`, or what failed."""

    name: ClassVar[str] = "webhook_failed"
    cause: str


@dataclass(frozen=True, slots=True)
class DeliveryDropped(Event):
    """An event will not be sent to the webhook. `why`: too many waited (`full`), `refused`, or the server `stopped`."""

    name: ClassVar[str] = "webhook_dropped"
    why: str


@dataclass(frozen=True, slots=True)
class StoreDown(Event):
    """The shared store is down: it is not used from now on. `store`: its address without credentials."""

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
    value, `newer` for a value of a newer version of callfuse."""

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
    """This worker of `callfuse serve` replaces one that died."""

    name: ClassVar[str] = "worker_replaced"

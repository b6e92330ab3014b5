"""The rounds of one agent run since its last real user message: what requests and ledger are to the wire.

Bounded: so many rounds, arguments cut beyond a length once their signature is known, of long results only the outcome,
and the newest few as they came.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from callfuse.inprocess.detection import PreviousResult
from callfuse.inprocess.values import as_text, plain
from callfuse.model import NOWHERE, PastCall, Result, Round, Timeline, ToolCall
from callfuse.model.signature import Signature

ARGUMENTS_KEPT: Final = 20_000
"""Characters of a call's arguments; more than any detector looks at."""
RESULTS_KEPT: Final = 32
"""Results that are kept to be given back: the last of a call, of the calls that came last."""
RESULT_KEPT: Final = 20_000
"""Characters of the longest result that is kept at all."""
UNRECORDED_KEPT: Final = 256
"""Calls of earlier rounds whose results may still come."""


class History:
    """At most `max_rounds` rounds, oldest first, the calls in them with their outcomes."""

    def __init__(self, max_rounds: int) -> None:
        self._rounds: deque[Round] = deque(maxlen=max_rounds)
        self._waiting: dict[PastCall, None] = {}
        self._results: OrderedDict[Signature, tuple[PastCall, Any]] = OrderedDict()
        self._has_blocks = False

    def timeline(self, now: float, declares: Callable[[str], bool] | None) -> Timeline:
        """The rounds as detectors read them."""
        return Timeline([*reversed(self._rounds)], now, has_blocks=self._has_blocks, declares=declares)

    def refused(self) -> set[Signature]:
        """What was withheld in the newest rounds of which nothing ran: the model has been asked again, and a new call
        beside it does not free it."""
        refused: set[Signature] = set()
        for round_ in reversed(self._rounds):
            if not all(call.withheld for call in round_.calls):
                break
            refused |= round_.signatures
        return refused

    def add(self, calls: Sequence[PastCall], now: float) -> None:
        """Add a round: its calls with what becomes of them."""
        for past in calls:
            past.call = _shorten(past.call)
        self._rounds.append(Round(tuple(calls), NOWHERE, now))
        older = list(self._waiting)[-UNRECORDED_KEPT:]
        self._waiting = dict.fromkeys([*older, *(call for call in calls if not call.withheld)])
        self._has_blocks |= any(call.blocked for call in calls)

    @property
    def newest(self) -> tuple[PastCall, ...]:
        """The calls of the newest round."""
        return self._rounds[-1].calls if self._rounds else ()

    def waiting(self, asked: ToolCall | None = None) -> PastCall | None:
        """The call whose result has come: the newest that is the asked one, or the next in order of the newest round.

        None where none waits. An asked call without an id is known by its arguments.
        """
        if asked is None:
            return next((call for call in self.newest if call in self._waiting), None)
        alike = (call for call in reversed(self._waiting) if call.signature == asked.signature)
        return next((call for call in alike if asked.id in ("", call.id)), None)

    def take(self, call: PastCall, content: Any, *, is_error: bool | None) -> None:
        """A call's result has come."""
        del self._waiting[call]
        call.result = Result(plain(content), is_error)
        for round_ in self._rounds:
            if call in round_.calls:
                round_.forget()
        self._results.pop(call.signature, None)
        if len(as_text(content)) <= RESULT_KEPT:
            self._results[call.signature] = call, content
        else:
            _ = call.outcome  # read now, and the result let go
        if len(self._results) > RESULTS_KEPT:
            self._results.popitem(last=False)

    def previous(self, call: ToolCall) -> PreviousResult | None:
        """What the same call brought last, where it is kept."""
        if call.signature not in self._results:
            return None
        before, content = self._results[call.signature]
        return PreviousResult(content, before.outcome.kind if before.outcome else None)


def _shorten(call: ToolCall) -> ToolCall:
    """A call to keep: of long arguments the beginning, under the signature of all of them."""
    if len(call.arguments) <= ARGUMENTS_KEPT:
        return call
    arguments = f"{call.arguments[:ARGUMENTS_KEPT]}..."
    return ToolCall(call.id, call.name, arguments, call.namespace, ignore=call.ignore, signature=call.signature)

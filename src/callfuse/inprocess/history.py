"""Keep the rounds of one agent run since its last user message, as requests and ledger do for the middleware, and
earlier blocks.

Memory is bounded: the number of rounds, the length of arguments (cut after their signature is computed), and the
results (only the newest are kept whole, all others as outcomes).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from callfuse.conversations.blocks import after_round, earlier_blocks, remember, with_last_outcomes
from callfuse.conversations.ledger import NO_BLOCKS, BlockMemory, KeptRound
from callfuse.conversations.timeline import keep_round
from callfuse.inprocess.detection import PreviousResult
from callfuse.inprocess.values import as_text, plain
from callfuse.model import NOWHERE, PastCall, Result, Round, Timeline, ToolCall
from callfuse.model.signature import Signature

ARGUMENTS_KEPT: Final = 20_000
"""Characters of a call's arguments that are kept; more than any detector reads."""
RESULTS_KEPT: Final = 32
"""Results that are kept whole, for `previous`: the last result of each of the newest calls."""
RESULT_KEPT: Final = 20_000
"""The most characters of a result that is kept whole."""
UNRECORDED_KEPT: Final = 256
"""Calls of earlier rounds whose results are still awaited."""


class RoundHistory:
    """At most `max_rounds` rounds, oldest first, with the outcomes of their calls. `window`: rounds in which a call
    counts as known. `blocks`: blocks in earlier turns."""

    def __init__(self, max_rounds: int, window: int, blocks: BlockMemory = NO_BLOCKS) -> None:
        self._window = window
        self._blocks = blocks
        self._blocked: deque[KeptRound] = deque(maxlen=max_rounds)
        self._rounds: deque[Round] = deque(maxlen=max_rounds)
        self._waiting: dict[PastCall, None] = {}
        self._results: OrderedDict[Signature, tuple[PastCall, Any]] = OrderedDict()

    def timeline(self, now: float, declares: Callable[[str], bool] | None) -> Timeline:
        """Return the rounds as a timeline. `now`: seconds. `declares`: tells whether a tool exists; None if unknown."""
        rounds, earlier = [*reversed(self._rounds)], earlier_blocks(self._blocks)
        return Timeline(rounds, now, has_blocks=bool(self._blocked), declares=declares, earlier_blocks=earlier)

    def blocks(self) -> BlockMemory:
        """Return the blocks of this turn and earlier ones, for the next turn."""
        return remember(self._blocks, self._blocked)

    def refused(self) -> set[Signature]:
        """Signatures withheld in the newest rounds without a call that ran. The model was asked again after these, so a
        new call beside them does not clear them."""
        refused: set[Signature] = set()
        for round_ in reversed(self._rounds):
            if not all(call.withheld for call in round_.calls):
                break
            refused |= round_.signatures
        return refused

    def add(self, calls: Sequence[PastCall], now: float) -> None:
        """Add a round: its calls with their delivery. `now`: seconds."""
        for past in calls:
            past.call = _shorten(past.call)
        self._count_blocks(calls, now)
        self._rounds.append(Round(tuple(calls), NOWHERE, now))
        older = list(self._waiting)[-UNRECORDED_KEPT:]
        self._waiting = dict.fromkeys([*older, *(call for call in calls if not call.withheld)])

    def is_older(self, than: float) -> bool:
        """Whether the last round, or the last block of an earlier turn, is older than this time."""
        last = self._rounds[-1].time if self._rounds else self._blocks.time
        return last is not None and last < than

    def forget(self) -> None:
        """Keep only the calls that ran, and their results, as a client's conversation would show."""
        self._blocks = NO_BLOCKS
        self._blocked.clear()
        for _ in range(len(self._rounds)):
            round_ = self._rounds.popleft()
            ran = tuple([call for call in round_.calls if not call.withheld])
            for call in ran:
                call.step = 0
            if ran:
                self._rounds.append(Round(ran, NOWHERE, round_.time))

    def _count_blocks(self, calls: Sequence[PastCall], now: float) -> None:
        is_blocked = any(call.blocked for call in calls)
        if not (is_blocked or self._blocks.in_a_row):
            return
        kept, past = keep_round(calls, NOWHERE, now, b""), self.timeline(now, None)
        if is_blocked:
            kept = with_last_outcomes(kept, past, self._blocks)
            self._blocked.append(kept)
        self._blocks = after_round(self._blocks, kept, past.window(self._window) if is_blocked else (), (), now)

    @property
    def newest(self) -> tuple[PastCall, ...]:
        """The calls of the newest round."""
        return self._rounds[-1].calls if self._rounds else ()

    def waiting(self, asked: ToolCall | None = None) -> PastCall | None:
        """Return the call that a result belongs to: the newest one equal to `asked`, or the next one of the newest
        round.

        None if none waits. An `asked` call without an id is matched by its arguments.
        """
        if asked is None:
            return next((call for call in self.newest if call in self._waiting), None)
        alike = (call for call in reversed(self._waiting) if call.signature == asked.signature)
        return next((call for call in alike if asked.id in ("", call.id)), None)

    def take(self, call: PastCall, content: Any, *, is_error: bool | None) -> None:
        """Take the result of a call."""
        del self._waiting[call]
        call.result = Result(plain(content), is_error)
        for round_ in self._rounds:
            if call in round_.calls:
                round_.forget()
        self._results.pop(call.signature, None)
        if len(as_text(content)) <= RESULT_KEPT:
            self._results[call.signature] = call, content
        else:
            _ = call.outcome  # computing it drops the result
        if len(self._results) > RESULTS_KEPT:
            self._results.popitem(last=False)

    def previous(self, call: ToolCall) -> PreviousResult | None:
        """Return the last result of the same call; None if it is not kept."""
        if call.signature not in self._results:
            return None
        before, content = self._results[call.signature]
        return PreviousResult(content, before.outcome.kind if before.outcome else None)


def _shorten(call: ToolCall) -> ToolCall:
    """Return the call with long arguments cut, but with the signature of all of them."""
    if len(call.arguments) <= ARGUMENTS_KEPT:
        return call
    arguments = f"{call.arguments[:ARGUMENTS_KEPT]}..."
    return ToolCall(call.id, call.name, arguments, call.namespace, ignore=call.ignore, signature=call.signature)

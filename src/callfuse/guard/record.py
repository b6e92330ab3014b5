"""Collect the calls, verdicts and failures of one exchange for the ledger, the log and the counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from callfuse.dialects.stateful import StoredAnswer
from callfuse.guard.growing_texts import FoundText
from callfuse.model import Delivery, PastCall, ToolCall
from callfuse.policy.ladder import Verdict


@dataclass(slots=True)
class ExchangeRecord:
    """The calls, verdicts and failures of one exchange; filled by its guard.

    `calls`: all complete calls, to be logged. `rounds`: the calls of each answer with their delivery. `notes`: texts
    for the results of delivered calls, about their withheld siblings. `verdicts`: the verdicts carried out, in order.
    `fail_open`: causes for which calls were not judged, each with its place among the verdicts (`verdicts_before`).
    `unasked`: parts because of which the model was not asked again. `answers`: the answers that a stateful vendor may
    have stored, in order. `texts`: texts that run away and have no verdict yet. `cut_off`: the calls that a limit has
    cut off. `is_incomplete`: the model's last actions are unknown, because its answer broke or was cut off.

    An answer with several `choices` adds no round and no note, because it is unknown which choice the client uses.
    """

    choices: int = 1
    calls: list[ToolCall] = field(default_factory=list)
    rounds: list[tuple[PastCall, ...]] = field(default_factory=list)
    notes: list[tuple[ToolCall, str]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    fail_open: list[str] = field(default_factory=list)
    verdicts_before: list[int] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    answers: list[StoredAnswer] = field(default_factory=list)
    texts: list[FoundText] = field(default_factory=list)
    cut_off: list[ToolCall] = field(default_factory=list)
    is_incomplete: bool = False

    def keep(self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Append a round: its calls, which of them had a verdict, and which the client did not get."""
        self.calls += calls
        self.verdicts += verdicts
        if self.choices == 1:
            self.rounds.append(past_round(calls, verdicts))

    def observe(self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Record the findings in calls that are not part of a round, because a limit has cut them off."""
        if self.choices == 1:
            self.cut_off += calls
        self.calls += [one.call for one in verdicts]
        self.verdicts += verdicts

    def fail(self, cause: str) -> None:
        """Record a cause for which calls are not judged."""
        self.fail_open.append(cause)
        self.verdicts_before.append(len(self.verdicts))

    def note(self, survivor: ToolCall, said: Sequence[str]) -> None:
        """Attach texts about withheld calls to the result of a delivered one, the `survivor`."""
        if self.choices == 1:
            self.notes += [(survivor, text) for text in said]

    def clear_reported(self) -> None:
        """Drop what has been logged and counted, so that it is reported only once."""
        self.calls.clear()
        self.verdicts.clear()
        self.fail_open.clear()
        self.verdicts_before.clear()
        self.unasked.clear()

    def replace_last(self, verdicts: Sequence[Verdict]) -> None:
        """Replace the verdicts on the last round, because their rung failed and the next one applies."""
        self.verdicts += verdicts
        if self.rounds:
            changed = _by_call(verdicts)
            self.rounds[-1] = tuple(
                [_past_call(one.call, changed) if one.call in changed else one for one in self.rounds[-1]]
            )


def past_round(calls: Sequence[ToolCall], verdicts: Iterable[Verdict]) -> tuple[PastCall, ...]:
    """Return the calls of an answer, each with its delivery and ladder step by these verdicts."""
    by_call = _by_call(verdicts)
    return tuple([_past_call(call, by_call) for call in calls])


def _by_call(verdicts: Iterable[Verdict]) -> Mapping[ToolCall, Verdict]:
    return {verdict.call: verdict for verdict in verdicts}


def _past_call(call: ToolCall, verdicts: Mapping[ToolCall, Verdict]) -> PastCall:
    verdict = verdicts.get(call)
    if verdict is None:
        return PastCall(call)
    delivery = Delivery.WITHHELD if verdict.withholds else Delivery.DELIVERED
    if verdict.blocks and not verdict.finding.in_answer:  # a call too many in its answer may come in the next
        delivery = Delivery.BLOCKED
    return PastCall(call, delivery=delivery, step=verdict.kept_step)

"""What an exchange leaves behind for the ledger, the log and the counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from callfuse.dialects.base import Remembered
from callfuse.model import Delivery, PastCall, ToolCall
from callfuse.policy.ladder import Verdict


@dataclass(slots=True)
class Record:
    """Filled by a guard as its answer goes on.

    `rounds` are the calls of each answer of the exchange with what became of them; `notes` are the texts that surviving
    calls carry for their withheld siblings; `verdicts` what was done, in order; `fail_open` the causes for which calls
    went unjudged; `unasked` the parts for which the model could not be asked again; `answers` those that the vendor may
    remember, in order.

    Of an answer with several choices nobody knows which one the client takes: no round and no note is kept of it.
    """

    choices: int = 1
    rounds: list[tuple[PastCall, ...]] = field(default_factory=list)
    notes: list[tuple[ToolCall, str]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    fail_open: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    answers: list[Remembered] = field(default_factory=list)

    def keep(self, calls: Sequence[ToolCall], verdicts: Sequence[Verdict]) -> None:
        """Keep a round: which of its calls were found, and which the client never saw."""
        self.verdicts += verdicts
        if self.choices == 1:
            self.rounds.append(past_round(calls, verdicts))

    def note(self, survivor: ToolCall, said: Sequence[str]) -> None:
        """The survivor's result will carry what is to be said of its withheld siblings."""
        if self.choices == 1:
            self.notes += [(survivor, text) for text in said]

    def told(self) -> None:
        """What there was to tell has been told."""
        self.verdicts.clear()
        self.fail_open.clear()
        self.unasked.clear()

    def replace_last(self, verdicts: Sequence[Verdict]) -> None:
        """The rung taken for the last round has failed, and the next one was taken."""
        self.verdicts += verdicts
        if self.rounds:
            changed = _by_call(verdicts)
            self.rounds[-1] = tuple(
                [_past(one.call, changed) if one.call in changed else one for one in self.rounds[-1]]
            )


def past_round(calls: Sequence[ToolCall], verdicts: Iterable[Verdict]) -> tuple[PastCall, ...]:
    """The calls of an answer with what became of each by the verdicts over them."""
    by_call = _by_call(verdicts)
    return tuple([_past(call, by_call) for call in calls])


def _by_call(verdicts: Iterable[Verdict]) -> Mapping[ToolCall, Verdict]:
    return {verdict.call: verdict for verdict in verdicts}


def _past(call: ToolCall, verdicts: Mapping[ToolCall, Verdict]) -> PastCall:
    verdict = verdicts.get(call)
    if verdict is None:
        return PastCall(call)
    delivery = Delivery.WITHHELD if verdict.withholds else Delivery.DELIVERED
    if verdict.blocks:
        delivery = Delivery.BLOCKED
    return PastCall(call, delivery=delivery, step=verdict.place)

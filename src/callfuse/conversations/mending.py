"""Measure how a model reacts to guidance or a warning about a finding: each such action gets a result.

The answers after the action decide, at most two rounds of calls:

- `changed`: a round has other calls, and no finding;
- `same`: two rounds continue in the same way; or one does that is blocked, or that is the second answer to guidance
  within the same exchange;
- `ended`: the model has answered in text;
- `user`: a person has written before any of these.

A round continues in the same way if it has a finding, or if it has only the call of the finding. A finding in results
(`same_error`) is decided when the results of the round have come.

In a holdout, findings that the model would have learned about are measured in the same way.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from callfuse.conversations.ledger import Told
from callfuse.detect.registry import HINDSIGHTS
from callfuse.model import Delivery, PastCall
from callfuse.policy.ladder import Verdict

CHANGED: Final = "changed"
SAME: Final = "same"
ENDED: Final = "ended"
USER: Final = "user"
RESULTS: Final = (CHANGED, SAME, ENDED, USER)
"""The possible results of an action, as explained above."""
ROUNDS: Final = 2
"""The number of rounds within which a model may change its behaviour."""
MOST: Final = 16
"""The most actions of a lane that wait for their result, the newest ones; a round with more is measured only in
part."""

_LATE: Final = frozenset(one.kind.name for one in HINDSIGHTS)
"""The kinds that are found in the results of calls."""

Made = Sequence[PastCall]
"""The calls of one answer of the model."""


class Decided(NamedTuple):
    """An action with its result."""

    told: Told
    result: str


def taught(verdict: Verdict, arm: str, position: int = 0) -> Told:
    """Return the record of a verdict that the model learns about. `position`: the position of its round."""
    found = verdict.finding
    return Told(verdict.finding_id, str(found.kind), found.signature, position, arm)


class Course:
    """Follows actions until each has a result. `waiting`: those without one, oldest first. `decided`: those with one.

    `asked`: findings for which the model was asked again, so that its next round decides. `is_text`: the last answer
    has no calls; an answer whose calls were all withheld was followed by such an answer.
    """

    def __init__(self, waiting: Iterable[Told]) -> None:
        self.is_text = True
        self.asked: list[Told] = []
        self.waiting = [*waiting]
        self.decided: list[Decided] = []

    def take_decided(self) -> list[Decided]:
        """Return the actions that were decided since the last time, and remove them."""
        decided, self.decided = self.decided, []
        return decided

    def add(self, told: Iterable[Told]) -> None:
        """Add findings that the model has now learned about."""
        self.waiting = [*self.waiting, *told][-MOST:]

    def speak(self) -> None:
        """Decide all waiting actions, because a person has written."""
        self._decide(self.waiting, USER)

    def end(self) -> None:
        """Decide all waiting actions, because the model has answered in text."""
        self._decide(self.waiting, ENDED)

    def see_results(self, found: str) -> None:
        """Apply the results of the newest round, in which a loop of the kind `found` is (empty: no loop)."""
        for told in [one for one in self.waiting if one.is_open]:
            if told.kind == found:
                self._go_on(told, is_last=False)
            else:
                self._decide([told], CHANGED)

    def follow(self, rounds: Iterable[Made], told_with: Callable[[Made], list[Told]]) -> None:
        """Apply these rounds of the model. `told_with` returns the findings that the model learns with a round."""
        for calls in rounds:
            self._take(calls)
            told = told_with(calls)
            self.add(told)
            self.is_text = all(one.delivery is Delivery.WITHHELD for one in calls)
            self.asked = told if self.is_text else []

    def _take(self, calls: Made) -> None:
        """Apply one round of calls of the model."""
        is_found = any(one.step for one in calls)
        is_blocked = any(one.delivery is Delivery.BLOCKED for one in calls)
        ids = {one.finding_id for one in self.asked}
        for told in self.waiting:
            if is_found or all(call.signature == told.signature for call in calls):
                self._go_on(told, is_last=is_blocked or told.finding_id in ids)
            elif told.kind in _LATE:
                self._replace(told, told._replace(is_open=True))
            else:
                self._decide([told], CHANGED)

    def _go_on(self, told: Told, *, is_last: bool) -> None:
        """Count a round that has continued in the same way."""
        if is_last or told.rounds + 1 >= ROUNDS:
            self._decide([told], SAME)
        else:
            self._replace(told, told._replace(rounds=told.rounds + 1, is_open=False))

    def _replace(self, told: Told, after: Told) -> None:
        self.waiting = [after if one is told else one for one in self.waiting]

    def _decide(self, told: Sequence[Told], result: str) -> None:
        self.decided += [Decided(one, result) for one in told]
        gone = {one.finding_id for one in told}
        self.waiting = [one for one in self.waiting if one.finding_id not in gone]

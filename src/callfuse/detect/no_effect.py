"""`no_effect`: the same call returns the same result after each of several changes. Off by default.

For example, a program is edited and run, and fails as before, six times: perhaps the edited file is not the one that
runs. Judged when results are known, and reported with the last of them. Results within `WITHIN` calls are compared
including their numbers (for errors, those in the kept text). A change is a successful call that changes something
(`effect_of`), other than the judged call; at least half of the results must follow one. Empty results, calls that wait
and reads do not count: what is read may have nothing to do with the change.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.effects import Effect, effect_of
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.pollers import polls
from callfuse.detect.settings import Settings
from callfuse.detect.streak import oldest_first
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import OutcomeKind
from callfuse.model.signature import Signature

WITHIN: Final = 40
"""The equal results must be within so many calls."""


class NoEffect(Hindsight):
    """Finds a call that returns the same result, whatever is changed before it."""

    kind = Kind(
        "no_effect",
        seen="result {count} of the same call that is equal to those before, whatever was changed in between",
        suggestion="The changes have no effect on it. Check first that the program that runs is the one you changed.",
        limit=SoftLimit(
            "calls",
            6,
            "Equal results of one call within 40 calls, with changes before at least half of them. Warns at most. Off "
            "by default.",
            on=False,
        ),
        most="warn",
    )
    needs = facts.OFTEN

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield the equal results up to each round that adds one; one walk serves all rounds."""
        walk = _EqualResults(settings)
        return reversed([walk.take(*one) for one in oldest_first(timeline, settings)])


class _OneResult(NamedTuple):
    """A call with its result, its number among all calls, and whether anything changed since the one before."""

    number: int
    call: PastCall
    is_changed: bool


class _EqualResults:
    """Takes the rounds of a timeline, oldest first, and keeps the equal results of each call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._calls = 0
        self._changed_at = 0
        """The number of the last call that has changed something."""
        self._changed_by: Signature = b""
        self._equal: dict[Signature, list[_OneResult]] = {}
        """By call, its newest results that are equal, oldest first."""

    def take(self, round_: Round, paused: bool) -> Evidence | None:
        """Return the evidence that a round completes. `paused`: a pause follows the round."""
        executed = [one for one in round_.distinct if not one.withheld]
        found = [evidence for one in executed if (evidence := self._add(one))]
        for one in executed:
            if one.failed is False and effect_of(one.call, self._settings) is Effect.CHANGES:
                self._changed_at, self._changed_by = self._calls, one.signature
        if paused:
            self._equal.clear()
        return max(found, key=lambda one: one.count, default=None)

    def _add(self, call: PastCall) -> Evidence | None:
        """Add a call with its result; return the evidence that the call completes."""
        self._calls += 1
        if not self._tells(call):
            return None
        equal = self._equal.setdefault(call.signature, [])
        is_changed = bool(equal) and self._changed_at >= equal[-1].number and self._changed_by != call.signature
        if equal and _raw(equal[-1].call) != _raw(call):
            equal.clear()
        equal.append(_OneResult(self._calls, call, is_changed))
        while equal[0].number <= self._calls - WITHIN:
            del equal[0]
        limit = self._settings.for_tool(call.full_name).settings.limit_of(NoEffect.kind.name)
        changes = sum([one.is_changed for one in equal[1:]])
        if not limit or len(equal) < limit or 2 * changes < len(equal) - 1:
            return None
        return Evidence(len(equal), tuple([one.call for one in equal[: -NAMED - 1 : -1]]))

    def _tells(self, call: PastCall) -> bool:
        """Whether a result can show the effect of a change."""
        outcome = None if polls(call.call, self._settings) else call.outcome
        if outcome is None or outcome.pending or outcome.transient or outcome.kind is OutcomeKind.NO_DATA:
            return False
        return outcome.kind is OutcomeKind.ERROR or effect_of(call.call, self._settings) is not Effect.READS


def _raw(call: PastCall) -> tuple[bytes, str] | None:
    """Return what is kept of the result: its digest (for errors, without numbers), and its unchanged beginning."""
    return (call.outcome.digest, call.outcome.text) if call.outcome else None

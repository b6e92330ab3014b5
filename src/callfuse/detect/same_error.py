"""`same_error`: rounds of one tool end in the same error, whatever the arguments, with nothing new in between.

Judged when the last result is known; unknown results are left out. The finding is reported with that result. Errors are
the same if they have the same complaint (`Outcome.error`), whatever names they repeat. A guess at another name is some
progress: if most errors name something that no earlier error named, twice as many are needed. A different error in
between does not count, and does not end the streak. Nor does a success of any tool, if the same call had this result
before: read, fail to edit, read again, fail to edit again.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.facts import succeeded
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import changes_of, pauses
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import Outcome
from callfuse.model.signature import Signature


class SameError(Hindsight):
    """Finds the same error again and again, in rounds of one tool."""

    kind = Kind(
        "same_error",
        seen="round {count} in which {tool} fails with the same error, with nothing new in between",
        suggestion="Read the error and fix its cause first, or use another tool.",
        limit=SoftLimit(
            "rounds",
            4,
            "Rounds of one tool that end in the same error, whatever the arguments, with nothing new in between. Warns "
            "at most, unless `same_error_most` is set.",
        ),
        most="warn",
    )
    needs = facts.FAILURES

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield for each round the evidence of the rounds up to it with its error; None if there are too few, or if its
        result is unknown.

        One walk serves all rounds of a streak: the failures up to a round are also among those of the next round.
        """
        history, at = _History(timeline, settings), 0
        while at < len(timeline.rounds):
            streaks = history.streaks(at)
            yield from streaks or (None,)
            at += len(streaks) or 1


@dataclass(slots=True)
class _Same:
    """One error's occurrences: in how many rounds, in which calls, and with which names (`named`)."""

    rounds: int = 0
    calls: list[PastCall] = field(default_factory=list)
    named: set[bytes] = field(default_factory=set)

    def evidence(self, unknown: int, limit: int) -> Evidence | None:
        """Return the evidence of these rounds together with the `unknown` ones; None if they are too few."""
        count = self.rounds + unknown
        is_guessing = len(self.named) > 1 and 2 * len(self.named) > len(self.calls)
        if count < (2 * limit if is_guessing else limit):
            return None
        return Evidence(count, tuple(self.calls[: -NAMED - 1 : -1]), factor=2 if is_guessing else 1)


class _Failures(NamedTuple):
    """The failures with known results in a round. A round with only stale successes does not count."""

    known: Sequence[tuple[PastCall, Outcome]]
    counts: bool


class _History:
    """The rounds of a timeline, and which of their successes returned nothing new."""

    def __init__(self, timeline: Timeline, settings: Settings) -> None:
        self._timeline = timeline
        self._rounds = timeline.rounds
        self._settings = settings
        self._equal: dict[Signature, list[PastCall]] | None = None
        self._stale: dict[Signature, set[PastCall]] = {}

    def streaks(self, at: int) -> list[Evidence | None]:
        """Return the evidence, newest first, of the streak of one tool's failures that ends in round `at` (0 is the
        newest). Empty if no tool has such a streak."""
        failed = [one for one in self._rounds[at].calls if not succeeded(one)]
        tool = failed[0].full_name if failed else ""
        settings = self._settings.for_tool(tool).settings if failed else self._settings
        limit = settings.limit_of(SameError.kind.name)
        if not (tool and settings.enabled and limit):
            return []
        if too_few := self._too_few(at, tool, limit):
            return [None] * too_few
        rounds: list[_Failures] = []
        while (failures := self._failures(at + len(rounds), tool, settings)) is not None:
            rounds.append(failures)
        return _evidence_of(rounds, limit)

    def _too_few(self, at: int, tool: str, limit: int) -> int:
        """Return how many rounds from `at` back cannot reach the limit: only this tool may have failed in them, nothing
        new came, and too few have such a failure. 0 if they might reach it. Costs less than reading outcomes."""
        count = 0
        for walked in range(len(self._rounds) - at):
            round_ = self._rounds[at + walked]
            failed = [one for one in round_.calls if not succeeded(one)]
            if not _all_of(tool, failed) or (len(failed) < len(round_.calls) and self._is_new(round_)):
                return walked
            count += bool(failed)
            if count == limit:
                return 0
        return len(self._rounds) - at

    def _is_new(self, round_: Round) -> bool:
        """Whether a call that succeeded was the first with its signature."""
        return True in [succeeded(one) and self._of(one.signature)[0] is one for one in round_.distinct]

    def _failures(self, at: int, tool: str, settings: Settings) -> _Failures | None:
        """Return the failures of a round; None if one is another tool's or names no error, or if something new came."""
        if at >= len(self._rounds) or at in pauses(self._timeline, settings):
            return None
        round_ = self._rounds[at]
        if settings.has_state_changing and changes_of(round_, settings):
            return None
        failed = [one for one in round_.calls if not succeeded(one)]
        if len(failed) < len(round_.calls) and self._has_news(round_):
            return None
        known = _complaints(failed) if _all_of(tool, failed) else None
        return None if known is None else _Failures(known, counts=bool(failed))

    def _has_news(self, round_: Round) -> bool:
        """Whether a call succeeded with a result that it had not returned before."""
        return True in [succeeded(one) and one not in self._stale_of(one.signature) for one in round_.distinct]

    def _stale_of(self, signature: Signature) -> set[PastCall]:
        """Return the calls with this signature that returned the same as an earlier one."""
        stale = self._stale.get(signature)
        if stale is None:
            stale = self._stale[signature] = set()
            brought = set[object]()
            for one in self._of(signature):
                if one.brought in brought:
                    stale.add(one)
                elif one.brought:
                    brought.add(one.brought)
        return stale

    def _of(self, signature: Signature) -> list[PastCall]:
        """Return all calls with this signature, one of each round, oldest first."""
        if self._equal is None:
            self._equal = {}
            for round_ in reversed(self._rounds):
                for one in round_.distinct:
                    self._equal.setdefault(one.signature, []).append(one)
        return self._equal[signature]


def _evidence_of(rounds: Sequence[_Failures], limit: int) -> list[Evidence | None]:
    """Return the evidence of each round of a streak, newest first."""
    errors: defaultdict[bytes, _Same] = defaultdict(_Same)
    unknown = 0
    found: list[Evidence | None] = []
    for failures in reversed(rounds):
        unknown += failures.counts and not failures.known
        brought: dict[bytes, _Same] = {}
        for call, outcome in failures.known:
            same = brought[outcome.error] = errors[outcome.error]
            same.calls.append(call)
            same.named.add(outcome.digest)
        for same in brought.values():
            same.rounds += 1
        streaks = [one for same in brought.values() if (one := same.evidence(unknown, limit))]
        found.append(max(streaks, key=lambda one: one.count, default=None))
    return found[::-1]


def _complaints(failed: Sequence[PastCall]) -> list[tuple[PastCall, Outcome]] | None:
    """Return the calls whose results are known; None if a result does not say what failed, or is transient."""
    known = [(one, outcome) for one in failed if not one.withheld and (outcome := one.outcome)]
    return known if False not in [bool(one.error) for _, one in known] else None


def _all_of(tool: str, calls: Sequence[PastCall]) -> bool:
    return False not in [one.full_name == tool for one in calls]

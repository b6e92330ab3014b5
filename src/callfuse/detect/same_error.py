"""`same_error`: rounds of one tool end in the same error, whatever the arguments, with nothing but failures in between.

Judged when the last result is known; results that are not known are left out. The finding is reported with that result.
Errors are the same if they complain of the same (`Outcome.error`), whatever names they repeat. But a guess at another
name is news of a kind: where most errors name something that none before has named, it takes twice as many. To fail in
another way in between is no way out: such a round does not count, and it ends nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from callfuse.detect.detector import ANY_TOOL, NAMED, Evidence, Hindsight
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import changes_of, is_pause
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import Outcome


class SameError(Hindsight):
    """The same error again and again."""

    kind = Kind(
        "same_error",
        seen="round {count} in which {tool} fails with the same error, with no success in between",
        suggestion="Read the error and fix its cause first, or use another tool.",
        limit=SoftLimit(
            "rounds",
            4,
            "Rounds of one tool that end in the same error, whatever the arguments, no success in between. Warns at "
            "most, unless `same_error_most` says otherwise.",
        ),
        most="warn",
    )
    any_arguments = True

    def may_fire(self, rounds: Sequence[Round], settings: Settings) -> bool:
        """Whether one tool has failed for long enough.

        One round in as many as the limit is looked at, where as many rounds around it are of its tool: no streak is so
        short that it fits between two of them.
        """
        loosest = settings.for_tool(ANY_TOOL).settings
        shortest = _limit(loosest) if loosest.enabled else 0
        if not shortest:
            return False
        tools = [round_.calls[0].call.name for round_ in rounds]
        if "" in tools:  # such calls are no evidence, and may stand within a streak
            return True
        for at in range(shortest - 1, len(tools), shortest):
            around = tools[at - shortest + 1 : at + shortest]
            if around.count(tools[at]) >= shortest and _failed(rounds[at]):
                return True
        return False

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """The rounds up to each that failed as it did; None where there are too few, or its own result is not known.

        The failures up to a round are those up to the round after it, but one: all rounds together cost one walk.
        """
        at = 0
        while at < len(timeline.rounds):
            streaks = _streaks(timeline, at, settings)
            yield from streaks or (None,)
            at += len(streaks) or 1


def _limit(settings: Settings) -> int:
    return settings.limit_of(SameError.kind.name)


@dataclass(slots=True)
class _Same:
    """An error as often as it has come: in how many rounds, of which calls, and with what names in it."""

    rounds: int = 0
    calls: list[PastCall] = field(default_factory=list)
    named: set[bytes] = field(default_factory=set)

    def evidence(self, unknown: int, limit: int) -> Evidence | None:
        """What it adds up to, with the rounds of which nothing is known; None where they are too few."""
        count = self.rounds + unknown
        is_guessing = len(self.named) > 1 and 2 * len(self.named) > len(self.calls)
        if count < (2 * limit if is_guessing else limit):
            return None
        return Evidence(count, tuple(self.calls[: -NAMED - 1 : -1]), factor=2 if is_guessing else 1)


def _streaks(timeline: Timeline, at: int, settings: Settings) -> list[Evidence | None]:
    """For each of one tool's failed rounds from round `at` back (0 is the newest): the evidence, newest first."""
    tool = timeline.rounds[at].calls[0].full_name
    own = settings.for_tool(tool).settings
    if not _may_be(timeline, at, tool, own):
        return []
    rounds: list[list[tuple[PastCall, Outcome]]] = []
    while (failures := _failures(timeline, at + len(rounds), tool, own)) is not None:
        rounds.append(failures)
    errors: defaultdict[bytes, _Same] = defaultdict(_Same)
    unknown, limit = 0, _limit(own)
    found: list[Evidence | None] = []
    for failures in reversed(rounds):
        unknown += not failures
        brought: dict[bytes, _Same] = {}
        for call, outcome in failures:
            same = brought[outcome.error] = errors[outcome.error]
            same.calls.append(call)
            same.named.add(outcome.digest)
        for same in brought.values():
            same.rounds += 1
        streaks = [one for same in brought.values() if (one := same.evidence(unknown, limit))]
        found.append(max(streaks, key=lambda one: one.count, default=None))
    return found[::-1]


def _may_be(timeline: Timeline, at: int, tool: str, settings: Settings) -> bool:
    """Whether enough rounds from here on call one tool and never with success: what costs less than outcomes."""
    limit = _limit(settings)
    if not (tool and settings.enabled and limit):
        return False
    rounds = timeline.rounds[at : at + limit]
    return len(rounds) == limit and all(_calls_only(tool, round_) and _failed(round_) for round_ in rounds)


def _calls_only(tool: str, round_: Round) -> bool:
    return False not in [one.full_name == tool for one in round_.calls]


def _failed(round_: Round) -> bool:
    """Whether no call of a round is known to have succeeded."""
    if len(round_.calls) == 1:
        return round_.calls[0].withheld or round_.calls[0].failed is not False
    return all(one.withheld or not one.call.name or one.failed is not False for one in round_.calls)


def _failures(timeline: Timeline, at: int, tool: str, settings: Settings) -> list[tuple[PastCall, Outcome]] | None:
    """The calls of a round whose results are known, where all are of this tool and say what failed; else None."""
    if at >= len(timeline.rounds):
        return None
    round_ = timeline.rounds[at]
    if not _calls_only(tool, round_):
        return None
    later = timeline.rounds[at - 1].time if at else timeline.now
    if is_pause(round_.time, later, settings.ttl_seconds):
        return None
    known = [(one, outcome) for one in round_.calls if not one.withheld and (outcome := one.outcome)]
    if True in [not outcome.error for _, outcome in known]:
        return None
    if settings.has_state_changing and changes_of(round_, settings):
        return None
    return known

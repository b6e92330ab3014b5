"""`error_rate`: most of the last results are errors, of any kind and any tool. Off by default.

Judged when results are known, and reported with the last of them. Transient errors, a person's refusals, unknown
results and withheld calls do not count. A pause resets the count.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from callfuse.detect import facts
from callfuse.detect.detector import Evidence, Hindsight
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import oldest_first
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import OutcomeKind

SPARED: Final = 4
"""One result that is not an error is allowed for every four errors."""


class ErrorRate(Hindsight):
    """Finds that most of the last results are errors."""

    kind = Kind(
        "error_rate",
        seen="one of {count} recent calls that failed, with hardly a success among them",
        suggestion="Stop and find out what these errors have in common before the next call.",
        limit=SoftLimit(
            "errors",
            8,
            "Errors of any kind, among a quarter more results: 8 errors in 10 results. Warns at most. Off by default.",
            on=False,
        ),
        most="warn",
    )
    needs = facts.ERRORS

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield the errors among the last results, for each round that returned one."""
        found: list[Evidence | None] = []
        last: deque[PastCall] = deque()
        for round_, paused in oldest_first(timeline, settings):
            evidence = _take(round_, last, settings)
            if paused:
                last.clear()
                evidence = None
            found.append(evidence)
        return reversed(found)


def _take(round_: Round, last: deque[PastCall], settings: Settings) -> Evidence | None:
    """Add a round's results to the last ones; return the evidence that they complete."""
    new = sorted([one for one in round_.distinct if _counts(one)], key=lambda one: (_has_failed(one), one.signature))
    last += new
    if not new or not _has_failed(new[-1]):
        return None
    own = settings.for_tool(new[-1].full_name).settings
    limit = own.limit_of(ErrorRate.kind.name)
    if not (limit and own.enabled):
        return None
    while len(last) > limit + limit // SPARED:
        last.popleft()
    failed = [one for one in reversed(last) if _has_failed(one)]
    return Evidence(len(failed), tuple(failed)) if limit <= len(failed) else None


def _counts(call: PastCall) -> bool:
    outcome = None if call.withheld else call.outcome
    if outcome is None or outcome.transient:
        return False
    return bool(outcome.error) or outcome.kind is not OutcomeKind.ERROR


def _has_failed(call: PastCall) -> bool:
    return call.outcome is not None and call.outcome.kind is OutcomeKind.ERROR

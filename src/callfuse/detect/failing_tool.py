"""`failing_tool`: a tool fails in the same way each time it is called, even if other tools succeed in between.

For example, every edit fails while the shell works. Judged when results are known, and reported with the last of them.
The tool's successes end the streak, and so do its other failures, pauses, and any change: a test that fails after each
edit is not a broken tool (`no_effect` judges its results). Shells are left out: there the command fails, not the tool.
Errors are compared as in `same_error`; if most of them are short and name something new, twice as many are needed (long
errors are not checked for new names).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.effects import Effect, effect_of, runs_commands
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import oldest_first
from callfuse.model import PastCall, Round, Timeline
from callfuse.model.outcomes import SHORT_TEXT


class FailingTool(Hindsight):
    """Finds a tool that keeps failing in the same way among its own calls."""

    kind = Kind(
        "failing_tool",
        seen="round {count} in which {tool} fails with the same error, and has not succeeded in between",
        suggestion="What was done in between has not mended it: read the error, or do without {tool}.",
        limit=SoftLimit(
            "rounds",
            5,
            "Rounds in which one tool (not a shell) fails with the same error, without a success of that tool or any "
            "change in between. Warns at most.",
        ),
        most="warn",
    )
    needs = facts.FAILING

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield, for each round, a tool's failures up to that round; one walk serves all rounds."""
        walk = _FailuresByTool(settings)
        return reversed([walk.take(*one) for one in oldest_first(timeline, settings)])


class _FailuresByTool:
    """Takes the rounds of a timeline, oldest first, and keeps the failures of each tool since its last success, or
    since the last change by any tool."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failures: dict[str, list[PastCall]] = {}
        """The failed calls by tool, oldest first, one for each round, all with the same error."""

    def take(self, round_: Round, paused: bool) -> Evidence | None:
        """Return the evidence that a round completes. `paused`: a pause follows the round."""
        own: defaultdict[str, list[PastCall]] = defaultdict(list)
        for one in round_.distinct:
            if not one.withheld and not runs_commands(one.call):
                own[one.full_name].append(one)
        found = [evidence for name, calls in own.items() if (evidence := self._add(name, calls))]
        if paused or True in [self._is_change(one) for one in round_.distinct]:
            self._failures.clear()
        return max(found, key=lambda one: one.count, default=None)

    def _is_change(self, call: PastCall) -> bool:
        """Whether a call may have changed something."""
        return not (call.failed or call.withheld) and effect_of(call.call, self._settings) is Effect.CHANGES

    def _add(self, name: str, calls: list[PastCall]) -> Evidence | None:
        """Add one tool's calls of a round; return the evidence that they complete."""
        if False in [one.failed for one in calls]:
            self._failures.pop(name, None)
            return None
        limit = self._settings.for_tool(name).settings.limit_of(FailingTool.kind.name)
        failed = sorted([one for one in calls if _error_of(one)], key=_order)
        if not (failed and limit):
            return None
        failures = self._failures.setdefault(name, [])
        known = _error_of(failures[0]) if failures else b""
        newest = next((one for one in failed if _error_of(one) == known), None)
        if newest is None:
            failures.clear()
        failures.append(newest or failed[0])
        factor = 2 if _is_guessing(failures[-2 * limit :]) else 1
        if len(failures) < factor * limit:
            return None
        return Evidence(len(failures), tuple(failures[: -NAMED - 1 : -1]), factor=factor)


def _is_guessing(failures: Sequence[PastCall]) -> bool:
    """Whether most of these errors are short and name something that no earlier error named."""
    said = [outcome for one in failures if (outcome := one.outcome) and len(outcome.text) < SHORT_TEXT]
    named = {outcome.digest for outcome in said}
    return len(named) > 1 and 2 * len(named) > len(failures)


def _order(call: PastCall) -> tuple[bytes, ...]:
    """Return a sort key for the failed calls of one round, so that the model's order does not matter."""
    return _error_of(call), call.outcome.digest if call.outcome else b"", call.signature


def _error_of(call: PastCall) -> bytes:
    return call.outcome.error if call.outcome else b""

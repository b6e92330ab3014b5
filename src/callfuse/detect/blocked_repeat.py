"""Find a blocked call that comes back: a `repeat` that continues after its block, even with other calls in between.

The call is refused until a new call has been executed. Then it may run once; if it returns the blocked streak's outcome
again, the next attempt is refused at once. A new user message counts as a new call, but not from a lane's third block
on, because harnesses answer a block with a user message of their own.
"""

from collections.abc import Iterable, Sequence

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence, twice
from callfuse.detect.repeat import Repeat
from callfuse.detect.settings import ForTool, Settings
from callfuse.model import EarlierBlocks, PastCall, Timeline, ToolCall
from callfuse.model.outcomes import same_outcome
from callfuse.model.signature import Signature


class BlockedRepeat(Detector):
    """Finds a call that was already blocked, in this timeline or before its user message."""

    kind = Repeat.kind
    needs = facts.BLOCKED

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return `max_repeats` and twice that; nothing is found if `max_repeats` is off."""
        return twice(tool.settings.max_repeats)

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls that were blocked."""
        here = timeline.memoized(_blocked, settings).values() if timeline.has_blocks else ()
        earlier = timeline.earlier_blocks.calls.values() if timeline.earlier_blocks else ()
        return [*(one.call for _, one in here), *(one.call for one in earlier)]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return all earlier equal calls, if one of them was blocked and nothing has changed since."""
        earlier = timeline.earlier_blocks
        if earlier is None and not timeline.has_blocks:
            return None
        before = earlier.calls.get(call.signature) if earlier else None
        at, _ = timeline.memoized(_blocked, settings).get(call.signature, (None, None))
        if at is None and before is None:
            return None
        found = [(index, one) for index, round_ in enumerate(timeline) if (one := round_.find(call.signature))]
        calls = tuple([one for _, one in found])
        if at is None:
            is_refused = _must_wait(earlier, calls)
            at = len(timeline.rounds)
        else:
            is_refused = not _has_news(timeline, at, settings)
        if not (is_refused or _is_same_again(found, at, before)):
            return None
        if before is None:
            return Evidence(1 + len(calls), calls, returned=not _are_in_a_row(found))
        # It also ran, and was blocked, before the user message; that count is not kept.
        count = max(2 + len(calls), settings.for_tool(call.full_name).settings.max_repeats)
        return Evidence(count, (*calls, before), returned=True)


def _are_in_a_row(found: Sequence[tuple[int, PastCall]]) -> bool:
    """Whether the call was in each of the newest rounds, and always returned the same outcome."""
    brought = {one.outcome.digest for _, one in found if not one.withheld and one.outcome}
    return [index for index, _ in found] == [*range(len(found))] and len(brought) < 2


def _must_wait(earlier: EarlierBlocks | None, calls: Sequence[PastCall]) -> bool:
    """Whether a call that was blocked before the last user message must not run yet. `calls`: equal calls since."""
    return earlier is not None and earlier.must_wait and all(one.withheld for one in calls)


def _is_same_again(found: Sequence[tuple[int, PastCall]], at: int, earlier: PastCall | None) -> bool:
    """Whether the call was executed after its block in round `at`, and had the same outcome as before the block.
    `found`: the call in these rounds. `earlier`: the call as it ran before the last user message."""
    executed = [(index, one) for index, one in found if not one.withheld]
    since = next((one for index, one in executed if index < at), None)
    outcomes = [one.outcome for index, one in executed if index > at] + [earlier.outcome if earlier else None]
    return since is not None and same_outcome(since.outcome, next(filter(None, outcomes), None))


def _blocked(timeline: Timeline, settings: Settings) -> dict[Signature, tuple[int, PastCall]]:
    """Return the blocked calls of the timeline, each with the newest round in which it was blocked."""
    found: dict[Signature, tuple[int, PastCall]] = {}
    for index, round_ in enumerate(timeline):
        for call in round_.calls:
            if call.blocked:
                found.setdefault(call.signature, (index, call))
    return found


def _has_news(timeline: Timeline, rounds: int, settings: Settings) -> bool:
    """Whether a new call has been executed in the newest rounds."""
    for index, round_ in zip(range(rounds), timeline, strict=False):
        new = timeline.news(index, settings.window)
        if new and any(call.signature in new and not call.withheld for call in round_.calls):
            return True
    return False

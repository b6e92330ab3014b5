"""A blocked call that comes back: a `repeat` that goes on after its block, though other calls may stand in between.

It is refused until a new call has been executed; then it may run once, and if that brings the blocked streak's outcome
again the next one is refused at once.
"""

from collections.abc import Iterable, Sequence

from callfuse.detect.detector import Detector, Evidence, twice
from callfuse.detect.repeat import Repeat
from callfuse.detect.settings import ForTool, Settings
from callfuse.model import PastCall, Timeline, ToolCall
from callfuse.model.outcomes import same_outcome
from callfuse.model.signature import Signature


class BlockedRepeat(Detector):
    """A call that has been blocked in this timeline."""

    kind = Repeat.kind
    names_calls = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """`max_repeats`, and nothing is found where that is off."""
        return twice(tool.settings.max_repeats)

    def may_fire(self, timeline: Timeline, at: int, settings: Settings) -> bool:
        """Only after a block."""
        return timeline.has_blocks

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """The blocked calls."""
        if not timeline.has_blocks:
            return ()
        return [one.call for _, one in timeline.memoized(_blocked, settings).values()]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """All earlier calls that are the same, where one was blocked and nothing has changed since."""
        if not timeline.has_blocks:
            return None
        at, _ = timeline.memoized(_blocked, settings).get(call.signature, (None, None))
        if at is None:
            return None
        found = [(index, one) for index, round_ in enumerate(timeline) if (one := round_.find(call.signature))]
        if _is_same_again(found, at) or not _has_news(timeline, at, settings):
            return Evidence(1 + len(found), tuple([one for _, one in found]), certain=True)
        return None


def _is_same_again(found: Sequence[tuple[int, PastCall]], at: int) -> bool:
    """Whether the call, found in these rounds, was executed after its block in round `at` and brought the outcome from
    before it."""
    executed = [(index, one) for index, one in found if not one.withheld]
    since = next((one for index, one in executed if index < at), None)
    before = next((one.outcome for index, one in executed if index > at and one.outcome), None)
    return since is not None and same_outcome(since.outcome, before)


def _blocked(timeline: Timeline, settings: Settings) -> dict[Signature, tuple[int, PastCall]]:
    """The blocked calls of the timeline, each where it was blocked last."""
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

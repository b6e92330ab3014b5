"""Find where a streak of any kind ends: at a pause, or at a successful change of state."""

from collections.abc import Callable, Iterator, Sequence, Set

from callfuse.detect.settings import Settings
from callfuse.model import PastCall, Round, Timeline, ToolCall

COUNTED = 250
"""Rounds of a streak are counted up to this number, or to the highest limit: a higher count changes nothing."""


def most_counted(settings: Settings) -> int:
    """Return how many rounds of a streak are counted at most."""
    return max(COUNTED, settings.highest_limit)


def recent(timeline: Timeline, settings: Settings, own: Callable[[PastCall], bool] | None = None) -> Sequence[Round]:
    """Return the newest rounds of the timeline, back to a pause or a successful call that has changed something.

    A change of state ends every streak except the changing call's own (`own`: whether a call belongs to the streak). It
    also ends its own streak if the tool is declared as progress (`ForTool.is_progress`).
    """
    rounds = timeline.memoized(unbroken, settings)
    if not settings.has_state_changing:
        return rounds
    for index, changes in enumerate(timeline.memoized(_changes, settings)):
        if not all(own is not None and own(call) and not _is_progress(call, settings) for call in changes):
            return rounds[:index]
    return rounds


def newest_calls(timeline: Timeline) -> list[ToolCall]:
    """Return the distinct calls of the newest round; empty if there is no round."""
    newest = timeline.newest
    return [one.call for one in newest.distinct] if newest else []


def pauses(timeline: Timeline, settings: Settings) -> Set[int]:
    """Return the indices of rounds followed by a pause too long for one streak; unknown times count as recent."""
    return timeline.memoized(_pauses, settings)


def _pauses(timeline: Timeline, settings: Settings) -> Set[int]:
    limit_s = settings.ttl_seconds
    times = [one.time for one in timeline.rounds] if timeline.timed else ()
    known = [time for time in times if time is not None]
    if not known or max(timeline.now, *known) - min(known) <= limit_s:
        return frozenset()
    behind = enumerate(zip(times, (timeline.now, *times), strict=False))
    return {at for at, (time, later) in behind if time is not None and later is not None and later - time > limit_s}


def unbroken(timeline: Timeline, settings: Settings) -> Sequence[Round]:
    """Return the newest rounds back to a pause, at most `most_counted`."""
    most = most_counted(settings)
    return timeline.rounds[: min(pauses(timeline, settings), default=most)][:most]


def _changes(timeline: Timeline, settings: Settings) -> list[list[PastCall]]:
    return [changes_of(round_, settings) for round_ in timeline.memoized(unbroken, settings)]


def _is_progress(call: PastCall, settings: Settings) -> bool:
    return settings.for_tool(call.full_name).is_progress


def oldest_first(timeline: Timeline, settings: Settings) -> Iterator[tuple[Round, bool]]:
    """Yield each round, oldest first, and whether a pause follows it."""
    paused = pauses(timeline, settings)
    return ((round_, at in paused) for at, round_ in reversed([*enumerate(timeline.rounds)]))


def changes_of(round_: Round, settings: Settings) -> list[PastCall]:
    """Return the calls of tools declared state-changing that are not known to have failed."""
    calls = [call for call in round_.calls if settings.for_tool(call.full_name).changes_state and not call.withheld]
    return [call for call in calls if not call.failed]

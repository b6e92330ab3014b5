"""What ends a streak, whatever it is of: a pause, a successful change of state, an outcome that is another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile, tee
from operator import attrgetter, eq
from typing import Final

from callfuse.model import InBlocks, Round, Timeline, ToolCall
from callfuse.model.outcomes import OutcomeKind
from callfuse.policy.settings import LoopSettings

Own = Callable[[ToolCall], bool]
"""Whether a call is of the streak itself."""

COUNTED = 250
"""Rounds of a streak are counted this far, or as far as a limit reaches: a higher count says nothing more."""

_SAID: Final = attrgetter("said")


def recent(timeline: Timeline, settings: LoopSettings, own: Own | None = None) -> Iterable[Round]:
    """The rounds of the timeline, newest first, up to a pause or a successful call that has changed something.

    A change of state ends every streak but its `own`.
    """
    known = timeline.unbroken
    if known is None or known[0] is not settings:
        known = timeline.unbroken = settings, _unbroken(timeline, settings)
    rounds = known[1]
    return InBlocks(_unchanged(timeline, settings, rounds, own)) if settings.has_state_changing else rounds


def said_again(timeline: Timeline, settings: LoopSettings, length: int) -> int:
    """How many of the newest rounds say just what the one says that is so many rounds before: most of a loop at a
    glance. Outcomes are read as far as that goes."""
    return timeline.remembered(_said_again, settings, length)


def _said_again(timeline: Timeline, settings: LoopSettings, length: int) -> int:
    later, earlier = tee(map(_SAID, recent(timeline, settings)))
    return sum(takewhile(bool, map(eq, later, islice(earlier, length, None))))


def _unbroken(timeline: Timeline, settings: LoopSettings) -> Iterable[Round]:
    most = max(COUNTED, settings.highest_limit)
    if timeline.is_read:
        rounds = timeline.slice(0, most)
        return rounds[: _before_pause(rounds, timeline.now, settings)]
    return InBlocks(_without_pause(timeline, settings, most))


def _without_pause(timeline: Timeline, settings: LoopSettings, left: int) -> Iterator[list[Round]]:
    later: float | None = timeline.now
    for block in timeline.blocks():
        count = _before_pause(block[:left], later, settings)
        yield block[:count]
        left -= len(block)
        later = block[-1].time
        if count < len(block):
            return


def _before_pause(rounds: Sequence[Round], later: float | None, settings: LoopSettings) -> int:
    """How many of the rounds, newest first, come before a pause; `later` is the time of the round after them."""
    limit_s = settings.ttl_seconds
    times = [time for round_ in rounds if (time := round_.time) is not None]
    if not times or max(later or 0.0, *times) - min(times) <= limit_s:  # what most are at a glance
        return len(rounds)
    for index, round_ in enumerate(rounds):
        time = round_.time
        if time is not None and is_pause(time, later, limit_s):
            return index
        later = time
    return len(rounds)


def _unchanged(
    timeline: Timeline, settings: LoopSettings, rounds: Iterable[Round], own: Own | None
) -> Iterator[list[Round]]:
    for index, round_ in enumerate(rounds):
        changes = timeline.remembered(_changes, settings, index)
        if any(not (own and own(call)) for call in changes):
            return
        yield [round_]


def is_pause(time: float | None, later: float | None, limit_s: float) -> bool:
    """Whether the pause between two rounds is too long for one streak; unknown times count as recent."""
    return time is not None and later is not None and later - time > limit_s


def changes_of(round_: Round, settings: LoopSettings) -> list[ToolCall]:
    """The calls of tools declared state-changing that were not in vain, as far as is known."""
    calls = [call for call in round_.calls if settings.for_tool(call.full_name).changes_state and not call.withheld]
    return [call for call in calls if not _failed(call)]


def _changes(timeline: Timeline, settings: LoopSettings, index: int) -> list[ToolCall]:
    round_ = timeline.at(index)
    return changes_of(round_, settings) if round_ else []


def _failed(call: ToolCall) -> bool:
    outcome = call.outcome
    return outcome is not None and outcome.kind is OutcomeKind.ERROR


def is_unread(call: ToolCall) -> bool:
    """Whether a call was executed, but the client has dropped its result and nobody read it in time.

    Of a live streak someone has: an outcome that is unknown for this reason equals none.
    """
    return call.dropped and not call.withheld and call.outcome is None

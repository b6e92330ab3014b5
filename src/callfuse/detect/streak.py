"""What ends a streak, whatever it is of: a pause, a successful change of state."""

from collections.abc import Iterator

from callfuse.calls.outcomes import OutcomeKind
from callfuse.calls.signature import Signature
from callfuse.model import Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

COUNTED = 250
"""Rounds of a streak are counted this far: beyond, a higher count says nothing more."""


def recent(timeline: Timeline, settings: LoopSettings, own: Signature | None = None) -> Iterator[Round]:
    """The rounds of the timeline, newest first, up to a pause or a successful call that has changed something.

    A change of state ends every streak but its `own`.
    """
    later: float | None = timeline.now
    for index, round_ in enumerate(timeline):
        if index >= COUNTED or is_pause(round_.time, later, settings.ttl_seconds):
            return
        if has_changed_state(round_, settings, own):
            return
        yield round_
        later = round_.time


def is_pause(time: float | None, later: float | None, limit_s: float) -> bool:
    """Whether the pause between two rounds is too long for one streak; unknown times count as recent."""
    return time is not None and later is not None and later - time > limit_s


def has_changed_state(round_: Round, settings: LoopSettings, own: Signature | None = None) -> bool:
    """Whether a tool declared state-changing has been called with success."""
    return any(
        settings.for_tool(call.full_name).changes_state
        and not call.withheld
        and call.signature != own
        and not _failed(call)
        for call in round_.calls
    )


def _failed(call: ToolCall) -> bool:
    outcome = call.outcome
    return outcome is not None and outcome.kind is OutcomeKind.ERROR


def names(timeline: Timeline, rounds: int) -> set[str]:
    """The tools of the newest rounds."""
    found: set[str] = set()
    for index in range(rounds):
        round_ = timeline.at(index)
        if round_ is None:
            break
        found.update(call.name for call in round_.calls)
    return found

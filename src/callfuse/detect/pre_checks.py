"""Cheap pre-checks, before any call arrives: which detectors are on, and which could find something in a timeline.

When a check says that nothing can be found, that is certain; otherwise the engine judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from callfuse.detect import registry
from callfuse.detect.budget import weight
from callfuse.detect.detector import ANY_TOOL, Detector, Hindsight, RoundDetector, on_screen
from callfuse.detect.facts import OTHERS
from callfuse.detect.runaway_call import RunawayCall, is_long
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.siblings import Room
from callfuse.model import Round, Timeline
from callfuse.model.spent import NOTHING_SPENT


class Limits(NamedTuple):
    """A detector's soft and hard limits for one tool, and that tool's settings."""

    soft: int
    hard: int
    settings: Settings


def can_fire(timeline: Timeline, settings: Settings, at: int = 0, round_: Round | None = None) -> bool:
    """Cheap pre-check, like `Engine.can_fire`: whether any call right after round `at` (0 is the newest) could be a
    loop, or any call of `round_`. False is certain."""
    in_force = settings.late if settings.no_repeats_after else settings
    if next(awake_detectors(timeline, in_force, at), None) is not None:
        return True
    calls = () if round_ is None else round_.calls
    return exceeds_room(timeline, in_force, len(calls)) or True in [is_long(one.call) for one in calls]


def hindsight_can_fire(timeline: Timeline, settings: Settings) -> bool:
    """Cheap pre-check of `Engine.hindsights`: whether any results in a timeline could show a loop. False is certain."""
    return next(awake_hindsights(timeline.evidence(), settings), None) is not None


def awake_detectors(timeline: Timeline, settings: Settings, at: int) -> Iterator[Detector]:
    """Yield the detectors that could find something right after round `at` (0 is the newest)."""
    knows_more = timeline.earlier_blocks is not None or timeline.spent != NOTHING_SPENT or timeline.cut_off
    if at >= len(timeline.rounds) and not knows_more:
        return
    reach = settings.reach
    for detector, (soft, _, _) in enabled_detectors(settings, ANY_TOOL).items():
        if detector.needs.may_reach(timeline, at, soft, reach):
            yield detector


def awake_hindsights(timeline: Timeline, settings: Settings, *, newest: bool = False) -> Iterator[Hindsight]:
    """Yield the detectors that could find something in results; `newest`: in those of the newest round."""
    for hindsight, least in _limits_of_results(settings):
        if hindsight.needs.may_show(timeline, least, newest=newest):
            yield hindsight


def exceeds_room(timeline: Timeline, settings: Settings, calls: int) -> bool:
    """Whether the number of calls in a round could cause a finding that no call has alone."""
    return calls > 1 and calls > min(room_of(timeline, settings))


def room_of(timeline: Timeline, settings: Settings) -> Room:
    """Return how many calls the next round may have before their number could cause a finding."""
    loosest = settings.for_tool(ANY_TOOL).settings
    room = Room()
    for one in enabled_detectors(settings, ANY_TOOL):
        if isinstance(one, RoundDetector):
            own = one.room(timeline, loosest)
            room = Room(min(room.calls, own.calls), min(room.equal, own.equal))
    return room


def finds_runaways(settings: Settings) -> bool:
    """Whether the detector of runaway arguments is on for any tool."""
    return settings.for_tool(ANY_TOOL).settings.detectors.finds(RunawayCall.kind.name)


def enabled_detectors(settings: Settings, name: str) -> Mapping[Detector, Limits]:
    """Return the detectors that are on for a tool, with their limits."""
    tool = settings.for_tool(name)
    known: Mapping[Detector, Limits] | None = tool.limits.get(Detector)
    if known is None:
        known = {one: own for one in registry.DETECTORS if (own := _limits_of(one, tool))}
        tool.limits[Detector] = known
    return known


def _limits_of(detector: Detector, tool: ForTool) -> Limits | None:
    soft, hard = detector.limits(tool)
    is_on = soft and tool.settings.enabled and tool.settings.detectors.finds(detector.kind.name)
    return Limits(soft, hard, tool.settings) if is_on else None


def _limits_of_results(settings: Settings) -> Sequence[tuple[Hindsight, int]]:
    """Return the detectors that judge results and are on for any tool, with their limits."""
    tool = settings.for_tool(ANY_TOOL)
    known: Sequence[tuple[Hindsight, int]] | None = tool.limits.get(Hindsight)
    if known is None:
        own = tool.settings
        limits = [(one, own.limit_of(one.kind.name)) for one in registry.HINDSIGHTS if own.enabled]
        known = tool.limits[Hindsight] = [(one, limit) for one, limit in limits if limit]
    return known


def settings_in_force(timeline: Timeline, settings: Settings) -> Settings:
    """Return the settings for a timeline; `late` if its weight exceeds `no_repeats_after`."""
    is_late = settings.no_repeats_after and weight(timeline, settings) > settings.no_repeats_after
    return settings.late if is_late else settings


def least_lowered(settings: Settings, to: int) -> int:
    """Return the least number of consecutive rounds (see `Facts.again`) after which a cap could lower a finding to this
    hardness; 0 if unknown. Valid only for rounds of a single call."""
    least: list[int] = []
    for detector, (soft, hard, _) in enabled_detectors(settings, ANY_TOOL).items():
        if detector.needs is OTHERS:
            continue
        name, degrees = detector.kind.name, (True,) if soft == hard else (False, True)
        if any(one.hardest(name, hard=is_hard, waits=False) <= to for one in settings.caps for is_hard in degrees):
            least.append(soft - 1 if detector.needs.in_a_row else 0)
        elif detector.kind.spares_pollers and not detector.needs.certain:
            lowered = min(soft * settings.poll_factor, on_screen(soft))
            least.append(lowered - 1 if detector.needs.in_a_row else 0)
    return max(0, min(least, default=0))

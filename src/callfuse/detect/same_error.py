"""`same_error`: consecutive rounds of one tool end in the same error, whatever the arguments.

Judged when the last result is known; results that are not known are left out. What is found is told with that result.
Errors are the same if they complain of the same (`Outcome.error`), whatever names they repeat. But a guess at another
name is news of a kind: where most errors name something that none before has named, it takes twice as many.
"""

from collections.abc import Iterator, Sequence

from callfuse.detect.detector import ANY_TOOL, NAMED, Evidence
from callfuse.detect.streak import changes_of, is_pause
from callfuse.model import Replayed, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


def same_errors(timeline: Timeline, settings: LoopSettings) -> Iterator[Evidence | None]:
    """For each round, newest first, the rounds up to it that failed alike; None where there is no such streak, or the
    round's own result is not known.

    The streak of a round is that of the round after it, one shorter: all rounds together cost one walk.
    """
    at = 0
    while timeline.at(at) is not None:
        streak = _streak(timeline, at, settings)
        yield from streak or (None,)
        at += len(streak) or 1


def may_end(rounds: Timeline | Replayed[Round], settings: LoopSettings) -> bool:
    """Whether a streak may end with the newest round: False is sure, and what most timelines are at a glance."""
    newest = rounds.at(0)
    if newest is None:
        return False
    tool = newest.calls[0].full_name
    return _may_be(rounds, 0, tool, settings.for_tool(tool).settings)


def may_be_among(rounds: Sequence[Round], settings: LoopSettings) -> bool:
    """Whether a streak may be among these rounds of one timeline: False is sure.

    One round in `same_error` is looked at; no streak is so short that it fits between two of them.
    """
    loosest = settings.for_tool(ANY_TOOL).settings
    limit = loosest.detectors.same_error
    return bool(limit and loosest.enabled) and any(_may_have_failed(round_) for round_ in rounds[limit - 1 :: limit])


def _streak(timeline: Timeline, at: int, settings: LoopSettings) -> list[Evidence | None]:
    """What the longest streak up to the newest round but `at` adds up to in each of its rounds, newest first."""
    newest = timeline.at(at)
    tool = newest.calls[0].full_name if newest else ""
    own = settings.for_tool(tool).settings
    limit = own.detectors.same_error
    if newest is None or not _may_be(timeline, at, tool, own) or not (error := _error(newest)):
        return []
    rounds: list[list[ToolCall]] = []
    while (known := _failed_alike(timeline, at + len(rounds), tool, error, own)) is not None:
        rounds.append(known)
    calls: list[ToolCall] = []
    named: set[bytes] = set()
    found: list[Evidence | None] = []
    for count, known in enumerate(reversed(rounds), 1):
        calls += known
        named.update(outcome.digest for call in known if (outcome := call.outcome))
        is_guessing = len(named) > 1 and 2 * len(named) > len(calls) and count < 2 * limit
        found.append(Evidence(count, tuple(calls[: -NAMED - 1 : -1])) if known and not is_guessing else None)
    return found[::-1]


def _may_be(past: Timeline | Replayed[Round], at: int, tool: str, settings: LoopSettings) -> bool:
    """Whether enough rounds from here on call one tool and never with success: what costs less than outcomes."""
    if not (tool and settings.enabled and settings.detectors.same_error):
        return False
    limit = settings.detectors.same_error
    if past.at(at + limit - 1) is None:
        return False
    rounds = [round_ for index in range(at, at + limit) if (round_ := past.at(index))]
    for round_ in rounds:
        for one in round_.calls:
            if one.full_name != tool:
                return False
    return all(map(_may_have_failed, rounds))


def _may_have_failed(round_: Round) -> bool:
    return all(one.withheld or one.failed is not False for one in round_.calls)


def _failed_alike(
    timeline: Timeline, at: int, tool: str, error: bytes, settings: LoopSettings
) -> list[ToolCall] | None:
    """The calls of a round whose results are known, where all are of this tool and these errors; else None."""
    round_ = timeline.at(at)
    if round_ is None or any(one.full_name != tool for one in round_.calls):
        return None
    later = timeline.at(at - 1) if at else None
    if is_pause(round_.time, later.time if later else timeline.now, settings.ttl_seconds):
        return None
    known = [one for one in round_.calls if not one.withheld and one.outcome is not None]
    if any(_error_of(one) != error for one in known) or changes_of(round_, settings):
        return None
    return known


def _error(round_: Round) -> bytes:
    """The error of a round, empty where it has none."""
    return next((error for call in round_.calls if (error := _error_of(call))), b"")


def _error_of(call: ToolCall) -> bytes:
    outcome = None if call.withheld else call.outcome
    return b"" if outcome is None or outcome.transient else outcome.error

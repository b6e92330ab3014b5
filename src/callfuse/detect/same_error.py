"""`same_error`: consecutive rounds of one tool end in the same error, whatever the arguments.

Judged when the last result is known; results that are not known are left out. What is found is told with that result.
"""

from callfuse.calls.outcomes import Outcome
from callfuse.detect.detector import Evidence
from callfuse.detect.streak import recent
from callfuse.model import Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


def same_error(timeline: Timeline, settings: LoopSettings) -> Evidence | None:
    """The rounds up to the newest one that failed alike; None where its result is not known or no error."""
    newest = timeline.at(0)
    if newest is None or not _calls_one_tool(timeline, settings.detectors.same_error):
        return None
    if not (error := _error(newest)):
        return None
    name = newest.calls[0].name
    failed: list[ToolCall] = []
    count = 0
    for round_ in recent(timeline, settings):
        known = [one for one in round_.calls if _known(one)]
        if any(one.name != name for one in round_.calls) or any(_error_of(one) != error for one in known):
            break
        count += 1
        failed += known
    return Evidence(count, tuple(failed))


def _calls_one_tool(timeline: Timeline, rounds: int) -> bool:
    """Whether the newest rounds call nothing but one tool: what costs nothing to know."""
    found = [round_ for index in range(rounds) if (round_ := timeline.at(index))]
    return len(found) == rounds and len({call.name for round_ in found for call in round_.calls}) == 1


def _error(round_: Round) -> bytes:
    """The error of a round, empty where it has none."""
    return next((error for call in round_.calls if (error := _error_of(call))), b"")


def _error_of(call: ToolCall) -> bytes:
    outcome = _known(call)
    return b"" if outcome is None or outcome.transient else outcome.error


def _known(call: ToolCall) -> Outcome | None:
    return None if call.withheld else call.outcome

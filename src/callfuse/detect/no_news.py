"""`no_news`: consecutive rounds have only known calls with known outcomes, in any order.

Each call of such a round, with its outcome, is in the window before the round. The pending round counts once, and only
its signatures need to be known. A shell command that writes and prints nothing (`>`, `sed -i`, `rm`) is never known:
its empty result does not show what has changed, and later reads may bring something new.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from callfuse.detect import facts
from callfuse.detect.detector import Detector, Evidence, distinct_calls
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.shell import writes
from callfuse.detect.streak import recent
from callfuse.model import PastCall, Round, Timeline, ToolCall
from callfuse.model.outcomes import OutcomeKind, same_outcome

_AT_ONCE: Final = 10
"""How many rounds beyond a window have their outcomes read together with it."""


class NoNews(Detector):
    """Finds rounds in which nothing new is called, and nothing new comes back."""

    kind = Kind(
        "no_news",
        seen="round {count} in a row that only repeats known calls, with the results that they had before",
        seen_uncompared="round {count} in a row that only repeats known calls",
        suggestion="Use what these calls have returned, or do something that has not been done yet.",
        limit=SoftLimit("rounds", 4, "Rounds in a row that contain only known calls with known outcomes."),
        spares_pollers=True,
    )
    needs = facts.RETURNS

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls of the window; none if the newest round has a new call."""
        if timeline.news(0, settings.window):
            return ()
        return [past.call for past in timeline.window(settings.window).values()]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the rounds without news up to the pending round, if the pending call is known."""
        if not timeline.knows(call.signature, settings.window):
            return None
        return timeline.memoized(_streak, settings)


def _streak(timeline: Timeline, settings: Settings) -> Evidence:
    """Return the evidence of the newest rounds without news; it is the same for every pending call."""
    past = recent(timeline, settings)
    size = settings.window
    brought: list[object] = []
    telling = set[object]()  # calls and outcomes of rounds without a silent write
    count = 0
    for round_ in past:
        if count > 1:  # most streaks end earlier, and need no further outcomes
            if len(brought) <= count + size:
                brought += [one.brought for one in timeline.rounds[len(brought) : count + size + _AT_ONCE]]
            try:  # an earlier round of the window with the same calls and outcomes
                brought.index(brought[count], count + 1, count + 1 + size)
            except ValueError:
                pass
            else:
                if brought[count] not in telling:
                    if True in map(_has_silently_written, round_.distinct):
                        break
                    telling.add(brought[count])
                count += 1
                continue
        if True in map(_has_silently_written, round_.distinct):
            break
        if False in [_is_known(timeline, count, call, size) for call in round_.distinct]:
            break
        count += 1
    return Evidence(1 + count, distinct_calls(past[:count]))


def _has_silently_written(call: PastCall) -> bool:
    """Whether a call is a shell command that has written something and returned an empty result."""
    outcome = None if call.withheld else call.outcome
    return outcome is not None and outcome.kind is OutcomeKind.NO_DATA and writes(call.call)


def _is_known(timeline: Timeline, index: int, call: PastCall, size: int) -> bool:
    """Whether a call of round `index` (0 is the newest) is in the window before the round, with the same outcome."""
    # A window has at least `size` rounds, and a loop is mostly among the newest of them.
    if _is_among(call, timeline.rounds[index + 1 : index + 1 + size]):
        return True
    return _is_among(call, timeline.rounds_of_window(size, before=index + 1)[size:])


def _is_among(call: PastCall, rounds: Sequence[Round]) -> bool:
    """Whether some rounds have an equal call with an equal outcome.

    A withheld call has no outcome to compare; an unknown outcome equals any.
    """
    signature = call.signature
    for round_ in rounds:
        earlier = round_.find(signature)
        if earlier is None:
            continue
        if call.withheld or (not earlier.withheld and same_outcome(earlier.outcome, call.outcome)):
            return True
    return False

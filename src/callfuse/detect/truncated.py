"""`truncated`: round after round the same call is cut off in its arguments, by the limit to the answer's length. Off by
default.

Told by the history: the arguments of a call end before they are complete, and begin as those of the round before. Where
a vendor's format has arguments as values, no such end can be seen.
"""

from collections.abc import Iterator
from typing import Final

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Evidence, Hindsight
from callfuse.detect.facts import is_cut_off
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import oldest_first
from callfuse.model import PastCall, Round, Timeline

BEGINNING: Final = 40
"""Characters of the arguments by which a call is the same."""

Streaks = dict[tuple[str, str], list[PastCall]]
"""By tool and beginning, one call of each round in a row that was cut off."""


class Truncated(Hindsight):
    """A call that is too long for an answer, again and again."""

    kind = Kind(
        "truncated",
        seen="round {count} in a row in which a call of {tool} is cut off before its arguments are complete",
        suggestion="An answer cannot hold all of it: write less at once, in several calls.",
        limit=SoftLimit(
            "rounds",
            3,
            "Rounds in a row with a call of one tool whose arguments begin alike and are cut off. Warns at most. Off "
            "by default.",
            on=False,
        ),
        most="warn",
    )
    needs = facts.CUT_OFF

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """The rounds in a row up to each whose call was cut off, and has a result."""
        found: list[Evidence | None] = []
        streaks: Streaks = {}
        for round_, paused in oldest_first(timeline, settings):
            streaks = _longer(streaks, round_)
            evidence = _evidence_of(streaks, settings) if round_.executed else None
            if paused:
                streaks, evidence = {}, None
            found.append(evidence)
        return reversed(found)


def _limit(settings: Settings) -> int:
    return settings.limit_of(Truncated.kind.name)


def _longer(streaks: Streaks, round_: Round) -> Streaks:
    """The streaks that a round goes on with, or begins: one call of each."""
    cut = {(one.full_name, one.call.arguments[:BEGINNING]): one for one in round_.distinct if is_cut_off(one)}
    if not cut and not round_.executed:
        return streaks
    longer = {key: streaks.get(key, []) for key in cut}
    for key, one in cut.items():
        longer[key].append(one)
    return longer


def _evidence_of(streaks: Streaks, settings: Settings) -> Evidence | None:
    """The longest of the streaks whose last result is known, if it is long enough for its tool."""
    longest: list[PastCall] = []
    for calls in streaks.values():
        own = settings.for_tool(calls[-1].full_name).settings
        if own.enabled and 0 < _limit(own) <= len(calls) and calls[-1].outcome is not None:
            longest = max(longest, calls, key=len)
    return Evidence(len(longest), tuple(longest[: -NAMED - 1 : -1])) if longest else None

"""`truncated`: round after round the same call is cut off in its arguments, by the limit to the answer's length. Off by
default.

Told by the history: the arguments of a call end before they are complete, and begin as those of the round before. Where
a vendor's format has arguments as values, no such end can be seen.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from callfuse.detect.detector import ANY_TOOL, NAMED, Evidence, Hindsight
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import is_pause, oldest_first
from callfuse.memo import remembered
from callfuse.model import PastCall, Round, Timeline

_REMEMBERED_LENGTH: Final = 16 * 1024
"""Characters of arguments; what an answer's limit cuts off is long."""
BEGINNING: Final = 40
"""Characters of the arguments by which a call is the same."""

Streaks = dict[tuple[str, str], list[PastCall]]
"""By tool and beginning, one call of each round in a row that was cut off."""

_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("|\\?\Z)', re.DOTALL)


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

    def may_fire(self, rounds: Sequence[Round], settings: Settings) -> bool:
        """Whether so many calls were cut off."""
        loosest = settings.for_tool(ANY_TOOL).settings
        limit = _limit(loosest)
        if not (limit and loosest.enabled):
            return False
        return limit <= sum([_is_cut_off(one) for round_ in rounds for one in round_.calls])

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """The rounds in a row up to each whose call was cut off, and has a result."""
        if not self.may_fire(timeline.rounds, settings):
            return repeat(None, len(timeline.rounds))
        found: list[Evidence | None] = []
        streaks: Streaks = {}
        for round_, after in oldest_first(timeline):
            streaks = _longer(streaks, round_)
            evidence = _evidence_of(streaks, settings) if round_.executed else None
            if is_pause(round_.time, after, settings.ttl_seconds):
                streaks, evidence = {}, None
            found.append(evidence)
        return reversed(found)


def _limit(settings: Settings) -> int:
    return settings.limit_of(Truncated.kind.name)


def _longer(streaks: Streaks, round_: Round) -> Streaks:
    """The streaks that a round goes on with, or begins: one call of each."""
    cut = {(one.full_name, one.call.arguments[:BEGINNING]): one for one in round_.distinct if _is_cut_off(one)}
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


def _is_cut_off(call: PastCall) -> bool:
    """Whether a call was executed with arguments that end before they are complete."""
    arguments = call.call.arguments
    return isinstance(arguments, str) and not call.withheld and bool(call.name) and _ends_early(arguments)


@remembered(entries=64, longest=_REMEMBERED_LENGTH)
def _ends_early(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    is_open = False

    def nothing(string: re.Match[str]) -> str:
        nonlocal is_open
        is_open = string[1] != '"'
        return ""

    rest = _STRING.sub(nothing, text)
    return is_open or rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]")

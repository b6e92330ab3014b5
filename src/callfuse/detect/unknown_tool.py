"""`unknown_tool`: calls in a row of tools that do not exist, whatever their arguments.

If the request lists all its tools, every other tool is unknown. If it does not, a tool is unknown if a result says so
("Unknown tool: x") and none of its calls has succeeded. A pending call of such a tool counts at once; for other tools
only the result shows that they do not exist, and the finding comes with it. Equal calls of one round count once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from callfuse.detect import facts
from callfuse.detect.detector import NAMED, Detector, Evidence, Hindsight, any_call
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import changes_of, most_counted, oldest_first, recent
from callfuse.model import PastCall, Round, Timeline, ToolCall


class UnknownTool(Detector):
    """Finds pending calls of tools that do not exist."""

    kind = Kind(
        "unknown_tool",
        seen="call {count} in a row of a tool that does not exist, here {tool}",
        suggestion="Call one of the tools that are declared, or answer in plain text.",
        limit=SoftLimit(
            "calls",
            3,
            "Calls in a row of tools that the request does not declare. If it does not list its tools: calls of "
            "tools that do not exist according to their results.",
            in_records=False,
        ),
    )
    needs = facts.UNDECLARED

    def recurring(self, timeline: Timeline, settings: Settings) -> list[ToolCall] | None:
        """Return a call for each tool that results have reported as missing; None if the request lists its tools."""
        return None if timeline.lists_tools else [any_call(name) for name in timeline.missing]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Count the calls of unknown tools in a row, if this call's tool is unknown too."""
        return timeline.memoized(_streak, settings) if timeline.lacks(call.name) else None


def _streak(timeline: Timeline, settings: Settings) -> Evidence:
    """Return the calls of unknown tools in the newest rounds that each have one; the same for every pending call."""
    streak: list[PastCall] = []
    for round_ in recent(timeline, settings):
        unknown = [one for one in round_.distinct if timeline.lacked(one)]
        if not unknown:
            break
        streak += reversed(unknown)
    return Evidence(1 + len(streak), tuple(streak))


class UnknownToolResults(Hindsight):
    """Finds results in a row that name unknown tools, if the request does not list its tools."""

    kind = UnknownTool.kind
    needs = facts.UNKNOWN

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield the calls up to each round whose results name an unknown tool, if there are enough calls."""
        rounds = timeline.rounds
        if timeline.lists_tools or not any(_tells(one) for round_ in rounds for one in round_.calls):
            return iter([None] * len(rounds))
        telling = _Telling(settings)
        return reversed([telling.take(*one) for one in oldest_first(timeline, settings)])


def _tells(call: PastCall) -> bool:
    """Whether the result of a call is known, and says that there is no such tool."""
    return call.failed is True and call.outcome is not None and call.outcome.unknown_tool


@dataclass(slots=True)
class _Telling:
    """Takes rounds, oldest first, and keeps the streak of rounds with unknown tools; one walk serves all rounds."""

    settings: Settings
    streak: list[list[PastCall]] = field(default_factory=list)
    existing: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)

    def take(self, round_: Round, paused: bool) -> Evidence | None:
        """Return the evidence that the next round's results complete. `paused`: a pause follows the round."""
        found = self._add(round_)
        if paused:
            self.streak.clear()
        return found

    def _add(self, round_: Round) -> Evidence | None:
        self._learn({one.name for one in round_.calls if not one.withheld and one.failed is False})
        calls = [one for one in round_.distinct if one.name not in self.existing]
        telling = [*filter(_tells, calls)]
        self.told.update([one.name for one in telling])
        unknown = [one for one in calls if one.withheld and one.name in self.told] + telling
        changes = self.settings.has_state_changing and changes_of(round_, self.settings)
        if changes or not unknown:
            self.streak.clear()
            return None
        self.streak.append(unknown)
        del self.streak[: -most_counted(self.settings)]
        return self._evidence() if telling else None

    def _learn(self, succeeded: set[str]) -> None:
        """Remove tools that have succeeded from the streak; a round without any other tool ends the streak."""
        if succeeded <= self.existing:
            return
        self.existing |= succeeded
        for at in reversed(range(len(self.streak))):
            self.streak[at] = [one for one in self.streak[at] if one.name not in succeeded]
            if not self.streak[at]:
                del self.streak[: at + 1]
                return

    def _evidence(self) -> Evidence | None:
        count = sum(map(len, self.streak))
        calls = [one for unknown in reversed(self.streak[-NAMED:]) for one in reversed(unknown)]
        own = self.settings.for_tool(calls[0].full_name).settings
        limit = own.limit_of(UnknownTool.kind.name) if own.enabled else 0
        return Evidence(count, tuple(calls[:NAMED])) if 0 < limit <= count else None

"""`budget`, of what was spent: calls, tokens, seconds or money of a turn, a session or a credential. Off by default.

What was spent is known before any call comes: from the limit on, every call is one too many, and hard at once. Where a
limit is near, `near_limit` tells so for a warning.
"""

from functools import partial
from typing import ClassVar, NamedTuple

from callfuse.detect.budget import Budget
from callfuse.detect.detector import Evidence
from callfuse.detect.facts import Fact, Finds
from callfuse.detect.settings import BudgetLimits, ForTool, Settings
from callfuse.detect.siblings import NEVER, Counted, Room
from callfuse.model import Timeline, ToolCall
from callfuse.model.spent import Spent, Unit


class Near(NamedTuple):
    """A limit that is near: how much of a unit is spent of it. `label`: the unit in words."""

    label: str
    spent: int
    limit: int


def _is_spent(unit: Unit, timeline: Timeline, at: int, least: int, reach: int) -> bool:
    """Whether a call would be one too many, by the limit of a unit."""
    return _with_pending(timeline.spent, unit, timeline.now) >= least


class SpentTokens(Budget):
    """The tokens of requests and answers; base of the other units."""

    _unit: ClassVar[Unit] = Unit.TOKENS
    needs: ClassVar[Fact] = Fact(partial(_is_spent, Unit.TOKENS), Finds.ANY)

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """The limit, of calls the first one beyond; hard at once."""
        limit = tool.settings.budget.limit(self._unit)
        first = limit + (self._unit is Unit.CALLS)
        return (first, first) if limit else (0, 0)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Any number: what other calls of the answer cost is known behind it."""
        return Room(NEVER)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """How much is spent."""
        spent = timeline.spent
        return Evidence(_with_pending(spent, self._unit, timeline.now), unit=_label(self._unit, spent))

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """The same."""
        return self.evidence(timeline, call, settings)


class SpentSeconds(SpentTokens):
    """The time since the first request."""

    _unit = Unit.SECONDS
    needs = Fact(partial(_is_spent, Unit.SECONDS), Finds.ANY)


class SpentMoney(SpentTokens):
    """What the tokens cost."""

    _unit = Unit.MONEY
    needs = Fact(partial(_is_spent, Unit.MONEY), Finds.ANY)


class SpentCalls(SpentTokens):
    """The calls that clients were given."""

    _unit = Unit.CALLS
    needs = Fact(partial(_is_spent, Unit.CALLS), Finds.ANY)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """The calls that are left."""
        limit = settings.budget.limit(self._unit)
        return Room(max(0, limit - timeline.spent.calls))

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """How many calls there have been with those before it."""
        spent = timeline.spent
        return Evidence(1 + spent.calls + counted.calls, unit=_label(self._unit, spent))


def near_limit(spent: Spent, limits: BudgetLimits, now: float) -> Near | None:
    """The limit of which the model is to be warned, if it was not; None if there is none. `now`: Unix seconds."""
    if spent.warned or not limits.warn_at:
        return None
    for unit in Unit:
        limit, amount = limits.limit(unit), spent.amount(unit, now)
        if limit and amount >= limit * limits.warn_at:
            return Near(_label(unit, spent), amount, limit)
    return None


def _with_pending(spent: Spent, unit: Unit, now: float) -> int:
    """How much is spent once the pending call is there; what that costs is not known, but that it is one."""
    return spent.amount(unit, now) + (unit is Unit.CALLS)


def _label(unit: Unit, spent: Spent) -> str:
    """The unit in words; whether some of it is an estimate."""
    return f"{unit} (estimate)" if spent.estimated and unit in (Unit.TOKENS, Unit.MONEY) else unit.value

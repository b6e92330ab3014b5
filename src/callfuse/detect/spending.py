"""`budget` for spending: calls, tokens, seconds or money of a turn, a session or a credential. Off by default.

The amount spent is known before any call arrives: once the limit is reached, every call is one too many, and hard at
once. `near_limit` returns a limit that is nearly reached, for a warning.
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
    """A limit that is nearly reached, and the amount spent. `label`: the unit in words."""

    label: str
    spent: int
    limit: int


def _is_spent(unit: Unit, timeline: Timeline, at: int, least: int, reach: int) -> bool:
    """Whether the next call would reach `least`, the limit of a unit."""
    return _with_pending(timeline.spent, unit, timeline.now) >= least


class SpentTokens(Budget):
    """Counts the tokens of requests and answers; base of the other units."""

    _unit: ClassVar[Unit] = Unit.TOKENS
    needs: ClassVar[Fact] = Fact(partial(_is_spent, Unit.TOKENS), Finds.ANY)

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the limit as both soft and hard limit; for calls, the count of the first call beyond it."""
        limit = tool.settings.budget.limit(self._unit)
        first = limit + (self._unit is Unit.CALLS)
        return (first, first) if limit else (0, 0)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return no bound: the cost of an answer's calls is only known after the answer."""
        return Room(NEVER)

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return how much is spent."""
        spent = timeline.spent
        return Evidence(_with_pending(spent, self._unit, timeline.now), unit=_label(self._unit, spent))

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Return how much is spent; other calls of the answer add nothing yet."""
        return self.evidence(timeline, call, settings)


class SpentSeconds(SpentTokens):
    """Counts the time since the first request."""

    _unit = Unit.SECONDS
    needs = Fact(partial(_is_spent, Unit.SECONDS), Finds.ANY)


class SpentMoney(SpentTokens):
    """Counts the cost of the tokens."""

    _unit = Unit.MONEY
    needs = Fact(partial(_is_spent, Unit.MONEY), Finds.ANY)


class SpentCalls(SpentTokens):
    """Counts the calls that clients have received."""

    _unit = Unit.CALLS
    needs = Fact(partial(_is_spent, Unit.CALLS), Finds.ANY)

    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Return how many calls are left."""
        limit = settings.budget.limit(self._unit)
        return Room(max(0, limit - timeline.spent.calls))

    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Count the calls so far, with the earlier calls of the pending round."""
        spent = timeline.spent
        return Evidence(1 + spent.calls + counted.calls, unit=_label(self._unit, spent))


def near_limit(spent: Spent, limits: BudgetLimits, now: float) -> Near | None:
    """Return the limit to warn the model of; None if no limit is near or it was already warned. `now`: Unix seconds."""
    if spent.warned or not limits.warn_at:
        return None
    for unit in Unit:
        limit, amount = limits.limit(unit), spent.amount(unit, now)
        if limit and amount >= limit * limits.warn_at:
            return Near(_label(unit, spent), amount, limit)
    return None


def _with_pending(spent: Spent, unit: Unit, now: float) -> int:
    """Return how much is spent with the pending call, which adds one to calls; its other costs are unknown yet."""
    return spent.amount(unit, now) + (unit is Unit.CALLS)


def _label(unit: Unit, spent: Spent) -> str:
    """Return the unit in words, marked if some of the amount is an estimate."""
    return f"{unit} (estimate)" if spent.estimated and unit in (Unit.TOKENS, Unit.MONEY) else unit.value

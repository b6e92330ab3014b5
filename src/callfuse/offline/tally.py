"""What fired in many runs, as figures a source and a rule.

Success is the task's, where the record tells it: None where it does not. What would have been saved is counted in
failed runs only: the calls from the first one on that would have been withheld, itself included, to the end of the run;
and, as `later_calls`, those from the first finding on, warnings too, had each got the model out.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from callfuse.offline.judging import Judged
from callfuse.offline.run import Run

ANY: Final = "any rule"
"""The name of the row for all rules together."""

Outcomes = Counter[bool | None]
"""How many, by the success of their runs."""


@dataclass(slots=True)
class Fired:
    """One rule in one source: runs in which it fired, and fired hard; findings; what it would have saved."""

    runs: Outcomes = field(default_factory=Counter)
    hard_runs: Outcomes = field(default_factory=Counter)
    soft: int = 0
    hard: int = 0
    later_calls: int = 0
    saved_calls: int = 0
    saved_tokens: int = 0

    def take(self, outcome: bool | None, count: int, mine: Sequence[tuple[int, Judged]], costs: Sequence[int]) -> None:
        """Add one run of so many calls; `mine` are those of which the rule has found something, with their places."""
        hard = sum([one.finding is not None and one.finding.hard for _, one in mine])
        self.runs[outcome] += 1
        if hard:
            self.hard_runs[outcome] += 1
        self.soft += len(mine) - hard
        self.hard += hard
        if outcome is False:
            first = next((at for at, one in mine if one.verdict is not None and one.verdict.withholds), count)
            self.saved_calls += count - first
            self.later_calls += count - mine[0][0]
            self.saved_tokens += sum(costs[first:])

    def add(self, other: "Fired") -> None:
        """Add another's figures."""
        self.runs += other.runs
        self.hard_runs += other.hard_runs
        self.soft += other.soft
        self.hard += other.hard
        self.later_calls += other.later_calls
        self.saved_calls += other.saved_calls
        self.saved_tokens += other.saved_tokens


@dataclass(slots=True)
class Figures:
    """One source: runs and calls, what was suspect or held among the calls, and what fired by rule.

    `failed_tokens` are the estimated tokens of the failed runs' calls. `quiet` are the calls of successful runs without
    a finding, `quiet_suspect` and `quiet_held` those among them.
    """

    runs: Outcomes = field(default_factory=Counter)
    calls: Outcomes = field(default_factory=Counter)
    suspect: Outcomes = field(default_factory=Counter)
    held: Outcomes = field(default_factory=Counter)
    quiet: int = 0
    quiet_suspect: int = 0
    quiet_held: int = 0
    failed_tokens: int = 0
    fired: dict[str, Fired] = field(default_factory=lambda: {ANY: Fired()})

    def take(self, run: Run, calls: Sequence[Judged], costs: Sequence[int], rules: Collection[str]) -> bool:
        """Add a run, with the estimated tokens of its calls where it failed; whether anything fired in it."""
        outcome = run.success
        suspect = sum([one.suspect for one in calls])
        held = sum([one.held for one in calls])
        self.runs[outcome] += 1
        self.calls[outcome] += len(calls)
        self.suspect[outcome] += suspect
        self.held[outcome] += held
        self.failed_tokens += sum(costs)
        told = [(at, one) for at, one in enumerate(calls) if one.finding is not None]
        found = {str(kind) for _, one in told for kind in one.kinds() if kind in rules}
        if outcome and not found:
            self.quiet += len(calls)
            self.quiet_suspect += suspect
            self.quiet_held += held
        for rule in (ANY, *found) if found else ():
            mine = [(at, one) for at, one in told if one.is_of(found if rule is ANY else {rule})]
            if rule not in self.fired:
                self.fired[rule] = Fired()
            self.fired[rule].take(outcome, len(calls), mine, costs)
        return bool(found)

    def add(self, other: "Figures") -> None:
        """Add another's figures."""
        self.runs += other.runs
        self.calls += other.calls
        self.suspect += other.suspect
        self.held += other.held
        self.quiet += other.quiet
        self.quiet_suspect += other.quiet_suspect
        self.quiet_held += other.quiet_held
        self.failed_tokens += other.failed_tokens
        for rule, fired in other.fired.items():
            self.fired.setdefault(rule, Fired()).add(fired)


def total(figures: Iterable[Figures]) -> Figures:
    """The figures of several sources together."""
    whole = Figures()
    for one in figures:
        whole.add(one)
    return whole


def rules_of(figures: Mapping[str, Figures]) -> list[str]:
    """Every rule that fired anywhere, all of them together first."""
    return [ANY, *sorted({rule for one in figures.values() for rule in one.fired} - {ANY})]

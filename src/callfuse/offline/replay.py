"""Judge recorded runs under given settings, and count which rules would have fired, by source and rule.

Success means that of the task, from the record; None if unknown. Savings are counted only in failed runs: the calls
from the first one that would have been withheld, inclusive, to the end of the run; and, as `later_calls`, those from
the first finding on, as if every finding, even a warning, had ended the loop.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from callfuse.offline.excerpts import FindingExcerpt, Picture, RunFindings, draw_run, findings_of, first_findings
from callfuse.offline.judging import Judged, judge_run, judge_texts
from callfuse.offline.runs import RecordedRun, Unreadable, estimate_tokens
from callfuse.policy.settings import LoopSettings

ANY: Final = "any rule"
"""The name of the row for all rules together."""

MAX_FAULTS: Final = 20
"""The most faults that are kept for reports; all are counted."""

Outcomes = Counter[bool | None]
"""Counts by the success of the runs: True, False, None for unknown."""


@dataclass(slots=True)
class Fired:
    """One rule in one source: runs in which it fired, withheld a call, fired hard; findings; calls and tokens saved."""

    runs: Outcomes = field(default_factory=Counter)
    acting_runs: Outcomes = field(default_factory=Counter)
    hard_runs: Outcomes = field(default_factory=Counter)
    soft: int = 0
    hard: int = 0
    later_calls: int = 0
    saved_calls: int = 0
    saved_tokens: int = 0

    def take(self, outcome: bool | None, count: int, mine: Sequence[tuple[int, Judged]], costs: Sequence[int]) -> None:
        """Add one run of `count` calls. `mine`: those with a finding of the rule, each with its index in the run."""
        hard = sum([one.finding is not None and one.finding.hard for _, one in mine])
        first = next((at for at, one in mine if one.verdict is not None and one.verdict.withholds), count)
        self.runs[outcome] += 1
        if first < count:
            self.acting_runs[outcome] += 1
        if hard:
            self.hard_runs[outcome] += 1
        self.soft += len(mine) - hard
        self.hard += hard
        if outcome is False:
            self.saved_calls += count - first
            self.later_calls += count - mine[0][0]
            self.saved_tokens += sum(costs[first:])

    def add(self, other: "Fired") -> None:
        """Add the figures of another `Fired`."""
        self.runs += other.runs
        self.acting_runs += other.acting_runs
        self.hard_runs += other.hard_runs
        self.soft += other.soft
        self.hard += other.hard
        self.later_calls += other.later_calls
        self.saved_calls += other.saved_calls
        self.saved_tokens += other.saved_tokens


@dataclass(slots=True)
class Figures:
    """One source: its runs and calls, the numbers of suspect and held calls, and the figures by rule.

    `failed_tokens`: the estimated tokens of the calls of failed runs. `quiet`: the number of calls of successful runs
    without a finding; `quiet_suspect`, `quiet_held`: the suspect and the held ones among them.
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

    def take(self, run: RecordedRun, calls: Sequence[Judged], costs: Sequence[int], rules: Collection[str]) -> bool:
        """Add a run, with the estimated tokens of its calls if it failed. Returns whether anything fired in it."""
        outcome = run.success
        suspect = sum([one.suspect for one in calls])
        held = sum([one.held for one in calls])
        self.runs[outcome] += 1
        self.calls[outcome] += len(calls)
        self.suspect[outcome] += suspect
        self.held[outcome] += held
        self.failed_tokens += sum(costs)
        with_finding = [(at, one) for at, one in enumerate(calls) if one.finding is not None]
        found = {str(kind) for _, one in with_finding for kind in one.kinds() if kind in rules}
        if outcome and not found:
            self.quiet += len(calls)
            self.quiet_suspect += suspect
            self.quiet_held += held
        for rule in (ANY, *found) if found else ():
            mine = [(at, one) for at, one in with_finding if one.is_of(found if rule is ANY else {rule})]
            if rule not in self.fired:
                self.fired[rule] = Fired()
            self.fired[rule].take(outcome, len(calls), mine, costs)
        return bool(found)

    def add(self, other: "Figures") -> None:
        """Add the figures of another `Figures`."""
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
    """Add up the figures of several sources."""
    whole = Figures()
    for one in figures:
        whole.add(one)
    return whole


def rules_of(figures: Mapping[str, Figures]) -> list[str]:
    """Return every rule that fired in any source, by name, after `ANY`."""
    return [ANY, *sorted({rule for one in figures.values() for rule in one.fired} - {ANY})]


class Replay:
    """Takes runs, and collects what given settings would have found in them.

    `rules`: the kinds of findings that count. `show`: the number of findings to keep for printing; `draw`: for each
    source, the number of runs with a finding to keep as pictures. `keep_runs`: keep the findings run by run, in memory
    that grows with them.
    """

    def __init__(
        self,
        settings: LoopSettings,
        rules: Collection[str],
        *,
        show: int = 0,
        draw: int = 0,
        keep_runs: bool = False,
    ) -> None:
        self.settings = settings
        self.rules = frozenset(rules)
        self.figures: dict[str, Figures] = {}
        """Figures by source, in the order of appearance."""
        self.findings: list[FindingExcerpt] = []
        self.runs: list[RunFindings] = []
        """The runs with a finding, if they are kept."""
        self.pictures: dict[str, list[Picture]] = {}
        """Pictures by source."""
        self.faults: list[Unreadable] = []
        self.fault_count = 0
        self.empty = 0
        """The number of runs without a call, which count nowhere else."""
        self._show = show
        self._draw = draw
        self._keep_runs = keep_runs

    def take(self, one: RecordedRun | Unreadable, costs: Sequence[int] | None = None) -> None:
        """Judge a run, or keep a fault. `costs`: the result of `costs_of` for this run, if it was called before."""
        if isinstance(one, Unreadable):
            self.fault_count += 1
            self.faults += [one] if len(self.faults) < MAX_FAULTS else []
            return
        costs = costs_of(one) if costs is None else costs
        calls = [*judge_run(one, self.settings), *judge_texts(one, self.settings)]
        if not calls:
            self.empty += 1
            return
        fired = self.figures.setdefault(one.source, Figures()).take(one, calls, costs, self.rules)
        if not fired:
            return
        if len(self.findings) < self._show:
            self.findings += first_findings(one, calls, self.rules)[: self._show - len(self.findings)]
        if self._keep_runs:
            self.runs.append(findings_of(one, calls, self.rules))
        drawn = self.pictures.setdefault(one.source, [])
        if len(drawn) < self._draw:
            drawn.append(draw_run(one, calls, self.rules))


def costs_of(one: RecordedRun | Unreadable) -> list[int]:
    """Estimate the tokens of each call of a failed run; empty for any other run, which needs no estimate."""
    if isinstance(one, Unreadable) or one.success is not False:
        return []
    return [estimate_tokens(call) for call in one.calls()]

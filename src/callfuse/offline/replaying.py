"""A replay: runs and faults are taken as they come; figures are kept, and findings and pictures up to a number."""

from collections.abc import Collection, Sequence
from typing import Final

from callfuse.offline.judging import judged
from callfuse.offline.picture import Picture, picture_of
from callfuse.offline.run import Fault, Run, tokens
from callfuse.offline.showing import ShownFinding, first_findings
from callfuse.offline.tally import Figures
from callfuse.policy.settings import LoopSettings

MAX_FAULTS: Final = 20
"""Faults that are kept to be named; all are counted."""


class Replay:
    """What some settings would have found. `rules` are the kinds that count; `show` findings are kept to be shown, and
    of each source `draw` runs in which something fired to be drawn."""

    def __init__(self, settings: LoopSettings, rules: Collection[str], *, show: int = 0, draw: int = 0) -> None:
        self.settings = settings
        self.rules = frozenset(rules)
        self.figures: dict[str, Figures] = {}
        """By source, in order of appearance."""
        self.findings: list[ShownFinding] = []
        self.pictures: dict[str, list[Picture]] = {}
        """By source."""
        self.faults: list[Fault] = []
        self.fault_count = 0
        self.empty = 0
        """Runs without a call, which count nowhere else."""
        self._show = show
        self._draw = draw

    def take(self, one: Run | Fault, costs: Sequence[int] | None = None) -> None:
        """Judge a run, or note a fault. `costs` are those of the run, where another replay has taken it before."""
        if isinstance(one, Fault):
            self.fault_count += 1
            self.faults += [one] if len(self.faults) < MAX_FAULTS else []
            return
        costs = costs_of(one) if costs is None else costs
        calls = list(judged(one, self.settings))
        if not calls:
            self.empty += 1
            return
        fired = self.figures.setdefault(one.source, Figures()).take(one, calls, costs, self.rules)
        if not fired:
            return
        if len(self.findings) < self._show:
            self.findings += first_findings(one, calls, self.rules)[: self._show - len(self.findings)]
        drawn = self.pictures.setdefault(one.source, [])
        if len(drawn) < self._draw:
            drawn.append(picture_of(one, calls, self.rules))


def costs_of(one: Run | Fault) -> list[int]:
    """The estimated tokens of each call of a run that failed; what others cost is not asked for."""
    if isinstance(one, Fault) or one.success is not False:
        return []
    return [tokens(call) for call in one.calls()]

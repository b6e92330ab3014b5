"""What tuning keeps of recorded runs: of each a few numbers, by source."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from callfuse.offline.replaying import MAX_FAULTS
from callfuse.offline.run import Fault, Run
from callfuse.offline.tuning.scale import Scale, Score, Step
from callfuse.policy.settings import LoopSettings


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that failed: the scores that it reached, in order, and all its calls."""

    steps: Sequence[Step]
    calls: int

    def saved(self, line: Score) -> int:
        """Its calls from the first one on that would have been acted on."""
        at = bisect_right(self.steps, line, key=lambda step: step.score)
        return self.calls - self.steps[at].calls if at < len(self.steps) else 0


@dataclass(slots=True)
class Source:
    """The runs of one source that have calls: of the successful ones the score and the number of calls."""

    good: list[Score] = field(default_factory=list)
    good_calls: list[int] = field(default_factory=list)
    failed: list[FailedRun] = field(default_factory=list)
    unlabelled: int = 0

    def saved(self, line: Score) -> int:
        """The calls of failed runs that settings at a line would have saved."""
        return sum(run.saved(line) for run in self.failed)

    def saved_by_length(self, line: int) -> int:
        """The calls of failed runs beyond a number of calls."""
        return sum(max(0, run.calls - line) for run in self.failed)


class Tuning:
    """Runs and faults are taken as they come. `base` are the settings of which the limits are to be moved."""

    def __init__(self, base: LoopSettings) -> None:
        self.scale = Scale(base)
        self.sources: dict[str, Source] = {}
        """By name, in order of appearance."""
        self.faults: list[Fault] = []
        self.fault_count = 0

    def take(self, one: Run | Fault) -> None:
        """Score a run, or note a fault."""
        if isinstance(one, Fault):
            self.fault_count += 1
            self.faults += [one] if len(self.faults) < MAX_FAULTS else []
            return
        calls = sum(1 for _ in one.calls())
        if not calls:
            return
        source = self.sources.setdefault(one.source, Source())
        if one.success is None:
            source.unlabelled += 1
        elif one.success:
            source.good.append(self.scale.steps(one, warned=True)[-1].score)
            source.good_calls.append(calls)
        else:
            source.failed.append(FailedRun(self.scale.steps(one, warned=False), calls))

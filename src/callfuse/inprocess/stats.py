"""What a detector has counted."""

from collections import Counter
from dataclasses import dataclass, field

from callfuse.model import Kind
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import Rung


@dataclass(slots=True)
class LoopStats:
    """Counts since the detector was made or cleared.

    `calls` were checked; `detections` are those found to loop, `by_kind` by every kind that hit. `warnings`, `steers`
    and `blocks` are what was done; a detection may also have been observed only, or let go. `mitigations` is how often
    the model changed its course after it was told: its next round was found innocent, or it answered.
    `false_positives` were reported; `failures` are rounds let go unjudged because of an error in callfuse.
    """

    calls: int = 0
    detections: int = 0
    by_kind: Counter[Kind] = field(default_factory=Counter)
    warnings: int = 0
    steers: int = 0
    blocks: int = 0
    mitigations: int = 0
    false_positives: int = 0
    failures: int = 0
    confidence_sum: float = 0.0

    @property
    def average_confidence(self) -> float:
        """Mean confidence of the detections; 0 without any."""
        return self.confidence_sum / self.detections if self.detections else 0.0

    def take(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self.detections += 1
        self.by_kind.update(verdict.finding.kinds or (verdict.finding.kind,))
        self.confidence_sum += verdict.finding.confidence
        self.warnings += verdict.rung is Rung.WARN
        self.blocks += verdict.rung is Rung.BLOCK
        self.steers += verdict.withholds and verdict.rung is not Rung.BLOCK

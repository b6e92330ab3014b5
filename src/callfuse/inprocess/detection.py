"""`LoopDetection`, a finding as callers get it, and `LoopStats`, the counts of a detector."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.outcomes import OutcomeKind
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import LoopSettings, Rung


class PreviousResult(NamedTuple):
    """The last recorded result of the same call.

    `outcome`: `ok`, `no_data` or `error`; None if it could not be classified.
    """

    content: Any
    outcome: OutcomeKind | None


@dataclass(frozen=True, slots=True)
class LoopDetection:
    """A call that was found looping, and the action for it.

    `call` is a copy: its arguments are JSON text (cut if very long), and it always has an id. `kind` is the kind of the
    loop, `kinds` are all kinds that were found. `count` and `threshold` are in the kind's unit (calls, rounds or laps),
    including the call itself; `window_s` is the longest pause within the loop, in seconds; `confidence` is from 0 to 1,
    and less than 1 only for calls that are similar but not equal. `calls` are the ids of the earlier calls of the loop,
    oldest first; calls without an id are `call_1`, `call_2`, ...

    `action` is the rung of the ladder: `observe`, `warn`, `steer`, `block`, or None if `on_loop` has allowed the call.
    `message` is the text for the model, empty if there is none: with `warn` it follows the call's own result, else it
    replaces the result. `previous` is the last result of the same call, or None if it is not kept. `number` counts the
    detections of one detector, from 1. All values are derived from `verdict`.
    """

    number: int
    call: ToolCall
    kind: str
    kinds: tuple[str, ...]
    count: int
    threshold: int
    window_s: float
    confidence: float
    action: Rung | None
    message: str
    calls: tuple[str, ...]
    previous: PreviousResult | None
    verdict: Verdict = field(repr=False)

    @property
    def description(self) -> str:
        """The finding in words, for people: the end of a sentence that begins with 'this is'."""
        return self.verdict.description

    @property
    def suggestion(self) -> str:
        """A suggestion for people."""
        return self.verdict.suggestion

    @property
    def pattern(self) -> tuple[str, ...]:
        """The tools of a cycle's rounds, in order; empty for other kinds."""
        return self.verdict.finding.pattern

    @property
    def repetitions(self) -> int:
        """How often the pattern occurred, including this round; 0 without a pattern."""
        return self.verdict.finding.repetitions

    @property
    def finding_id(self) -> str:
        """The id by which log lines and events name the finding."""
        return self.verdict.finding_id

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def withholds(self) -> bool:
        """Whether the call must not run."""
        return self.action is not None and self.action.withholds


def detection_of(
    verdict: Verdict, settings: LoopSettings, *, model: str, number: int, previous: PreviousResult | None
) -> LoopDetection:
    """Make a detection from a verdict, with the text for the model. `number`: see `LoopDetection`."""
    finding = verdict.finding
    return LoopDetection(
        number=number,
        call=verdict.call,
        kind=finding.kind,
        kinds=finding.kinds or (finding.kind,),
        count=finding.count,
        threshold=finding.threshold,
        window_s=finding.window_s,
        confidence=finding.confidence,
        action=verdict.rung,
        message=_message(verdict, settings, model),
        calls=finding.calls,
        previous=previous,
        verdict=verdict,
    )


def _message(verdict: Verdict, settings: LoopSettings, model: str) -> str:
    if verdict.warns:
        return texts.warning(verdict.call, verdict.finding, settings, model)
    if not verdict.withholds:
        return ""
    if verdict.blocks:
        return texts.block(verdict, settings, model)
    return texts.guidance(verdict, settings, model)


@dataclass(slots=True)
class LoopStats:
    """Counts since the detector was made or cleared.

    `calls`: checked calls; `detections`: calls found looping; `by_kind`: detections by every kind that was found.
    `warnings`, `steers`, `blocks`: detections by action; others were only observed, or allowed. `mitigations`: how
    often the model stopped looping after a message: its next round had no finding, or it answered. `false_positives`:
    detections reported as wrong. `failures`: rounds that passed unjudged because of an error in callfuse.
    `confidence_sum`: the sum of the detections' confidences.
    """

    calls: int = 0
    detections: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
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
        self.warnings += verdict.warns
        self.blocks += verdict.blocks
        self.steers += verdict.withholds and not verdict.blocks


def joined_messages(*found: LoopDetection | None) -> str:
    """Join the texts for the model of these detections, with a blank line between them; empty if there are none."""
    return "\n\n".join(one.message for one in found if one is not None and one.message)

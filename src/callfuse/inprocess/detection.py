"""What a detector tells of a call that was found to loop."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from callfuse.model import Kind, ToolCall
from callfuse.model.outcomes import OutcomeKind
from callfuse.policy import texts
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import LoopSettings, Rung


class PreviousResult(NamedTuple):
    """What the same call brought the last time, as it was recorded, and how it was read: `ok`, `no_data`, `error`, or
    None where it says nothing."""

    content: Any
    outcome: OutcomeKind | None


@dataclass(frozen=True, slots=True)
class LoopDetection:
    """A call that was found to loop, and what is to be done about it.

    `call` is a copy: its arguments are JSON text (cut, where they are very long), and it has an id in any case. `kind`
    is what repeats, `kinds` all that hit. `count` and `threshold` are in its unit (calls, rounds or laps), the call
    itself included; `window_s` is the longest pause within it; `confidence` is from 0 to 1, less than 1 only for calls
    that are merely alike. `calls` are the ids of the earlier calls that it rests on, oldest first; calls without an id
    are `call_1`, `call_2`, ...

    `action` is the rung of the ladder: `observe`, `warn`, `steer`, `block`, or None where `on_loop` has let the call
    go. `message` is what the model is to read, empty where it is to read nothing: with `warn` behind the call's own
    result, else in place of it. `description` and `suggestion` are for people. `previous` is what the same call
    brought last, where that is kept. `number` counts the detections of one detector, from 1.
    """

    number: int
    call: ToolCall
    kind: Kind
    kinds: tuple[Kind, ...]
    count: int
    threshold: int
    window_s: float
    confidence: float
    action: Rung | None
    message: str
    description: str
    suggestion: str
    calls: tuple[str, ...]
    previous: PreviousResult | None

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
    """A verdict in the caller's words."""
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
        description=verdict.description,
        suggestion=verdict.suggestion,
        calls=finding.calls,
        previous=previous,
    )


def _message(verdict: Verdict, settings: LoopSettings, model: str) -> str:
    if verdict.rung is Rung.WARN:
        return texts.warning(verdict.call, verdict.finding, settings, model)
    if not verdict.withholds:
        return ""
    if verdict.rung is Rung.BLOCK:
        return texts.block(verdict, settings, model)
    return texts.guidance(verdict, settings, model)

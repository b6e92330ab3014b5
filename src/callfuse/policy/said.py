"""What is done about a text or a reasoning that runs away: it leaves as it came, and is told."""

from callfuse.detect.runaway import LEAST_LAPS, Runaway
from callfuse.detect.runaway_call import RunawayCall
from callfuse.model import Finding, ToolCall
from callfuse.model.finding import Stretch
from callfuse.policy.ladder import Verdict, lower, restrict_ladder
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings


def verdict_on_text(
    part: str, found: Runaway, settings: LoopSettings, *, may_change: bool = True, finding_id: str = ""
) -> Verdict:
    """The verdict on a part of an answer: `text`, `reasoning` or `finish`. It uses up no rung. In place of a call it
    names the part, as `(text)`, which no tool can be called, with the text that is repeated. `may_change`: whether
    requests may be changed, so that the model can be told."""
    call, kind = ToolCall("", f"({part})", found.unit), RunawayCall.kind.name
    finding = Finding(
        kind,
        call.name,
        call.signature,
        found.laps,
        min(found.laps, LEAST_LAPS),
        settings.ttl_seconds,
        True,
        stretch=Stretch(part=part),
    )
    rung = Rung.OBSERVE if settings.observes else Rung.WARN
    ladder = lower((rung,), settings.detectors.cap(kind, hard=True, waits=False, part=part))
    (rung,) = restrict_ladder(ladder, may_change=may_change, may_ask=False)
    return Verdict(call, finding, rung, 0, finding_id=finding_id, begins=True)

"""Decide what happens to text or reasoning that runs away: it is reported, or the answer is cut off there."""

from collections.abc import Callable

from callfuse.detect.runaway import LEAST_LAPS, Runaway
from callfuse.detect.runaway_call import RunawayCall
from callfuse.model import Finding, ToolCall
from callfuse.model.finding import Stretch
from callfuse.policy.ladder import Verdict, lower, restrict_ladder
from callfuse.policy.rungs import Ladder, Rung
from callfuse.policy.settings import LoopSettings

_KIND = RunawayCall.kind.name


def verdict_on_text(
    part: str, found: Runaway, settings: LoopSettings, *, may_change: bool = True, finding_id: str = ""
) -> Verdict:
    """Return the verdict on a part of an answer (`text`, `reasoning` or `finish`) that was delivered: at most a
    warning. It does not count as a step. `may_change`: whether requests may be changed, so that the model can be
    warned."""
    rung = Rung.OBSERVE if settings.observes else Rung.WARN
    ladder = lower((rung,), settings.detectors.cap(_KIND, hard=True, waits=False, part=part))
    (rung,) = restrict_ladder(ladder, may_change=may_change, may_ask=False)
    return _verdict(part, found, settings, rung, finding_id)


def verdict_on_growing_text(
    part: str, found: Runaway, settings: LoopSettings, usable: Callable[[Ladder], Ladder], *, finding_id: str = ""
) -> Verdict:
    """Return the verdict on a part of an answer that is still growing: the last rung, as for any hard finding. `usable`
    returns a ladder without the rungs that the exchange forbids."""
    cap = settings.detectors.cap(_KIND, hard=True, waits=False, part=part)
    rung = lower(usable(settings.ladder), cap, lambda one: usable((one,)) == (one,))[-1]
    return _verdict(part, found, settings, rung, finding_id)


def _verdict(part: str, found: Runaway, settings: LoopSettings, rung: Rung, finding_id: str) -> Verdict:
    """Return the verdict with this rung. Its call represents the part: its name, such as `(text)`, cannot be a tool's,
    and its arguments are the repeated text."""
    call = ToolCall("", f"({part})", found.unit)
    finding = Finding(
        _KIND,
        call.name,
        call.signature,
        found.laps,
        min(found.laps, LEAST_LAPS),
        settings.ttl_seconds,
        True,
        stretch=Stretch(part=part),
    )
    return Verdict(call, finding, rung, 0, lowered=rung.withholds, finding_id=finding_id, begins=True)

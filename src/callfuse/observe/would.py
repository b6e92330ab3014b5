"""Determine which rung a finding that is only observed would have led to, if callfuse acted on it.

Under `mode: observe` that is the rung of the default mode, on the assumption that the model would have continued
anyway: the first finding of a loop leads to the first rung, each further count to the next. The cap of its kind
applies. In the holdout it is the rung of the session's own settings.
"""

from typing import Final

from callfuse.policy.holdout import HOLDOUT, Arm
from callfuse.policy.ladder import Verdict, capped, restrict_ladder
from callfuse.policy.rungs import Ladder, Rung
from callfuse.policy.settings import LoopSettings

DEFAULT: Final[Ladder] = LoopSettings.model_fields["mode"].default
"""The ladder of the default mode."""


def would_take(verdict: Verdict, arm: Arm, *, may_change: bool, may_ask: bool) -> str:
    """Return the rung that a verdict would have led to if it did not only observe; empty if it is acted on, or if it
    would only be observed anyway. `may_change`, `may_ask`: what the exchange permits."""
    if verdict.rung is not Rung.OBSERVE:
        return ""
    if arm.name == HOLDOUT:
        rung = arm.rung_of(verdict, may_change=may_change)
    else:
        rung = _of_default_mode(verdict, arm.settings, may_change=may_change, may_ask=may_ask)
    return "" if rung in (None, Rung.OBSERVE) else str(rung)


def _of_default_mode(verdict: Verdict, settings: LoopSettings, *, may_change: bool, may_ask: bool) -> Rung | None:
    found, own = verdict.finding, settings.for_tool(verdict.call.full_name).settings
    if not own.observes:
        return None
    rungs = DEFAULT if verdict.step else (Rung.WARN,)  # no step: found in results, after the calls have run
    ladder = capped(restrict_ladder(rungs, may_change=may_change, may_ask=may_ask), found, own.detectors).now
    return ladder[-1] if found.hard else ladder[min(max(found.count - found.threshold, 0), len(ladder) - 1)]

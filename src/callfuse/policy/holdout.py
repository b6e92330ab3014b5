"""Choose the holdout: a share of sessions in which findings are only observed, to measure the effect of acting.

A session's arm depends only on the session's identity: it is the same in every process and after every restart.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from callfuse.policy.ladder import Verdict, lower, restrict_ladder
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings

HOLDOUT: Final = "holdout"
"""The arm of a session in which findings are only observed."""
GUARDED: Final = "guarded"
"""The arm of a session in which findings are acted on, if there is a holdout."""
_SIZE: Final = 8
"""The bytes of the hash that maps a session to a number between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Arm:
    """The arm of a session. `name`: `holdout`, `guarded`, or empty if there is no holdout. `acting`: the settings that
    would apply if the session were guarded."""

    name: str
    acting: LoopSettings

    @property
    def settings(self) -> LoopSettings:
        """The settings in force in this arm."""
        return self.acting.observing if self.name == HOLDOUT else self.acting

    def rung_of(self, verdict: Verdict, *, may_change: bool = True) -> Rung | None:
        """Return the rung of a verdict; in the holdout, the rung that would have applied. `may_change`: whether the
        request may be changed, and so the model asked again."""
        if self.name != HOLDOUT:
            return verdict.rung
        found = verdict.finding
        own = self.acting.for_tool(verdict.call.full_name).settings
        ladder = own.ladder
        if not verdict.step:  # found in the results of calls that have run
            ladder = (Rung.OBSERVE if own.observes else Rung.WARN,)
        cap = own.detectors.cap(found.kind, hard=found.hard, waits=found.waits)
        ladder = restrict_ladder(lower(ladder, cap), may_change=may_change, may_ask=True)
        return ladder[min(max(verdict.step, 1), len(ladder)) - 1]


def arm_of(settings: LoopSettings, credential: bytes, session: str) -> Arm:
    """Return the arm of a session. `credential`: the hash of its client's credential; `session`: its name in logs."""
    if not settings.holdout:
        return Arm("", settings)
    digest = blake2b(credential + session.encode("utf-8", "surrogatepass"), digest_size=_SIZE, person=b"holdout")
    place = int.from_bytes(digest.digest()) / 256**_SIZE
    return Arm(HOLDOUT if place < settings.holdout else GUARDED, settings)

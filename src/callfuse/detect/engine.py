"""Runs the detectors: is any call suspect, could this tool's call be a loop, what do they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Collection, Sequence

from callfuse.calls.signature import Signature
from callfuse.detect.detector import Detector
from callfuse.detect.repeat import Repeat
from callfuse.detect.returning import Returning
from callfuse.model import Finding, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

DETECTORS: tuple[Detector, ...] = (Repeat(), Repeat(changing=True), Returning())


class Engine:
    """The detectors over one timeline, for the pending round of one exchange."""

    def __init__(self, timeline: Timeline, settings: LoopSettings) -> None:
        self.timeline = timeline
        self.settings = settings
        self._possible: dict[str, list[Finding]] = {}
        self._known: set[Signature] | None = None
        self._judged: dict[Signature, Finding | None] = {}

    def suspects(self) -> list[str]:
        """Every tool of which a call could be found to loop; none in a healthy timeline."""
        if self._is_healthy():
            return []
        names = {name for detector in DETECTORS for name in detector.candidates(self.timeline)}
        return [name for name in names if self.possible(name)]

    def _is_healthy(self) -> bool:
        """Whether no call could be found whatever it is: the newest round is new, and one equal call is no finding."""
        if self.timeline.has_blocks or 2 in (self.settings.max_repeats, self.settings.max_repeats_changing):
            return False
        return not self.timeline.may_return(self.settings.window)

    def possible(self, name: str) -> list[Finding]:
        """What could be found in a call of this tool, whatever its arguments."""
        known = self._possible.get(name)
        if known is None:
            known = [one for detector in DETECTORS for one in detector.possible(self.timeline, name, self.settings)]
            self._possible[name] = known
        return known

    def judge(self, call: ToolCall) -> Finding | None:
        """The hardest finding for one pending call, as if it came alone."""
        if not call.name:
            return None
        if call.signature not in self._judged:
            found = [finding for d in DETECTORS if (finding := d.judge(self.timeline, call, self.settings))]
            self._judged[call.signature] = max(found, key=lambda finding: finding.hard, default=None)
        return self._judged[call.signature]

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is not among those of the window."""
        if self._known is None:
            self._known = self.timeline.window(self.settings.window)
        return bool(call.name) and call.signature not in self._known

    def judge_round(
        self, calls: Sequence[ToolCall], refused: Collection[Signature] = ()
    ) -> list[tuple[ToolCall, Finding]]:
        """What is found in a complete round. No news frees the `refused`: they have had their chance."""
        news = any(self.is_news(call) for call in calls)
        return [(call, one) for call in calls if (one := self.judge_beside(call, refused, news=news))]

    def judge_beside(self, call: ToolCall, refused: Collection[Signature], *, news: bool) -> Finding | None:
        """What is found in a call of a round that has, or has not, brought a new call."""
        finding = self.judge(call)
        if finding and news and finding.ends_on_news and finding.signature not in refused:
            return None
        return finding

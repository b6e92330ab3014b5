"""Runs the detectors: is any call suspect, could this tool's call be a loop, what do they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from callfuse.calls.signature import Signature
from callfuse.detect.budget import Budget, ToolBudget
from callfuse.detect.cycle import LENGTHS, Cycle
from callfuse.detect.detector import Detector, Evidence
from callfuse.detect.no_news import NoNews
from callfuse.detect.pollers import is_poller
from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.returning import Returning
from callfuse.detect.same_error import may_go_on, same_errors
from callfuse.detect.similar import Similar
from callfuse.detect.stagnation import Stagnation
from callfuse.detect.unknown_tool import UnknownTool
from callfuse.detect.weighted_budget import WeightedBudget, weighed
from callfuse.model import Finding, Kind, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings

DETECTORS: tuple[Detector, ...] = (
    Returning(),
    Repeat(),
    RepeatChanging(),
    Cycle(),
    NoNews(),
    UnknownTool(),
    Similar(),
    Stagnation(),
    Budget(),
    ToolBudget(),
    WeightedBudget(),
)
"""In the order in which they explain themselves best."""


class Engine:
    """The detectors over one timeline, for the pending round of one exchange."""

    def __init__(self, timeline: Timeline, settings: LoopSettings) -> None:
        self.timeline = timeline
        is_late = settings.no_repeats_after and weighed(timeline, settings) > settings.no_repeats_after
        self.settings = settings.late if is_late else settings
        self._possible: dict[str, list[Finding]] = {}
        self._known: set[Signature] | None = None
        self._judged: dict[Signature, list[Finding]] = {}

    def suspects(self) -> list[str]:
        """Every tool of which a call could be found to loop; none in a healthy timeline."""
        if self.is_healthy():
            return []
        names = {name for detector in DETECTORS for name in detector.candidates(self.timeline, self.settings)}
        return [name for name in names if self.possible(name)]

    def is_healthy(self) -> bool:
        """Whether no call could be found whatever it is. True is sure, and what most timelines are at a glance: their
        newest round is new and of known tools, and it takes more than one equal call to make a finding."""
        timeline = self.timeline
        newest = timeline.at(0)
        if newest is None:
            return True
        if timeline.has_blocks or not self.settings.wants_returns:
            return False
        if any(timeline.lacks(call.name) for call in newest.calls):
            return False
        return not timeline.may_return(max(self.settings.window, LENGTHS[-1]))

    def possible(self, name: str) -> list[Finding]:
        """What could be found in a call of this tool, whatever its arguments."""
        known = self._possible.get(name)
        if known is None:
            known = self._possible[name] = list(self._foreseen(name)) if name else []
        return known

    def _foreseen(self, name: str) -> Iterator[Finding]:
        for detector in DETECTORS:
            for call in detector.recurring(self.timeline, name, self.settings):
                if finding := self.found(detector, call):
                    yield finding

    def judge(self, call: ToolCall, *, news: bool = False) -> Finding | None:
        """The hardest finding for one pending call as if it came alone, or beside a new one; it names every kind that
        hit."""
        return _hardest([one for one in self._findings(call) if not (news and one.ends_on_news)])

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is not among those of the window."""
        if self._known is None:
            self._known = self.timeline.window(self.settings.window)
        return bool(call.name) and call.signature not in self._known

    def judge_round(
        self, calls: Sequence[ToolCall], refused: Collection[Signature] = ()
    ) -> list[tuple[ToolCall, Finding]]:
        """What is found in a complete round. No news frees the `refused`: they have had their chance."""
        if not refused and self.is_healthy():
            return []
        news = any(self.is_news(call) for call in calls)
        signatures = {call.signature for call in calls if call.name}
        judged = []
        for call in calls:
            found = [one for one in self._findings(call) if one.whole_round in (None, signatures)]
            if news and call.signature not in refused:
                found = [one for one in found if not one.ends_on_news]
            if finding := _hardest(found):
                judged.append((call, finding))
        return judged

    def judge_beside(self, call: ToolCall, refused: Collection[Signature], *, news: bool) -> Finding | None:
        """What is found in a call of a round that has, so far, brought a new call or not."""
        return self.judge(call, news=news and call.signature not in refused)

    def counts(self, calls: Sequence[ToolCall]) -> dict[Kind, float]:
        """For a pending round and each kind that is on, how far along it is: 1 is the soft limit."""
        news = any(self.is_news(call) for call in calls)
        counts: dict[Kind, float] = {}
        for call in calls:
            for detector in DETECTORS:
                soft, _, evidence = self._measured(detector, call)
                if evidence and soft and not (news and detector.ends_on_news):
                    counts[detector.kind] = max(counts.get(detector.kind, 0.0), evidence.count / soft)
        return counts

    def hindsight(self) -> Finding | None:
        """What only the newest round's results show: the same error again. Judged once they are known."""
        timeline = self.timeline
        return next(self.hindsights(), None) if may_go_on(timeline.at(0), timeline.at(1)) else None

    def hindsights(self) -> Iterator[Finding | None]:
        """As `hindsight`, for each round as if it were the newest, the newest first."""
        for evidence in same_errors(self.timeline, self.settings):
            soft = self.settings.for_tool(evidence.calls[0].full_name).settings.detectors.same_error if evidence else 0
            if evidence is None or evidence.count < soft:
                yield None
            else:
                yield self._finding(Kind.SAME_ERROR, evidence.calls[0], evidence, (soft, 0), ends_on_news=False)

    def _findings(self, call: ToolCall) -> list[Finding]:
        if not call.name:
            return []
        known = self._judged.get(call.signature)
        if known is None:
            known = [finding for detector in DETECTORS if (finding := self.found(detector, call))]
            self._judged[call.signature] = known
        return known

    def found(self, detector: Detector, call: ToolCall) -> Finding | None:
        """What one detector finds in a pending call, as if it came alone."""
        soft, hard, evidence = self._measured(detector, call)
        if evidence is None or not soft or not (evidence.certain or evidence.count >= soft):
            return None
        return self._finding(detector.kind, call, evidence, (soft, hard), ends_on_news=detector.ends_on_news)

    def _measured(self, detector: Detector, call: ToolCall) -> tuple[int, int, Evidence | None]:
        """Soft and hard limit for a call, and what it adds up to."""
        tool = self.settings.for_tool(call.full_name)
        soft, hard = detector.limits(tool)
        if not soft or not tool.settings.enabled:
            return 0, 0, None
        evidence = detector.evidence(self.timeline, call, tool.settings)
        if evidence and evidence.count >= soft and detector.spares_pollers and self._polls(call, evidence):
            soft, hard = soft * self.settings.poll_factor, hard * self.settings.poll_factor
        return soft, hard, evidence

    def _polls(self, call: ToolCall, evidence: Evidence) -> bool:
        """Whether a call of the stretch waits for something outside."""
        return any(is_poller(one, self.settings) for one in (call, *evidence.calls))

    def _finding(
        self, kind: Kind, call: ToolCall, evidence: Evidence, limits: tuple[int, int], *, ends_on_news: bool
    ) -> Finding:
        soft, hard = limits
        previous = next((seen.text for one in evidence.calls if not one.withheld and (seen := one.outcome)), "")
        return Finding(
            kind=kind,
            tool=call.name,
            signature=call.signature,
            count=evidence.count,
            threshold=soft,
            window_s=self.settings.for_tool(call.full_name).settings.ttl_seconds,
            hard=evidence.certain or 0 < hard <= evidence.count,
            confidence=evidence.confidence,
            calls=tuple(one.id for one in reversed(evidence.calls)),
            previous=previous,
            ends_on_news=ends_on_news,
            whole_round=evidence.whole_round,
            lap=evidence.lap,
        )


def _hardest(found: Sequence[Finding]) -> Finding | None:
    """The hardest of one call's findings, naming all kinds."""
    if not found:
        return None
    hardest = max(found, key=lambda finding: finding.hard)
    kinds = tuple(dict.fromkeys(finding.kind for finding in found))
    return replace(hardest, kinds=kinds) if len(kinds) > 1 else hardest

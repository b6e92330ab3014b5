"""Runs the detectors: is any call suspect, could this tool's call be a loop, what do they find in a whole round.

A round with a new call is progress: findings that end on news are void in it, streamed or not.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from callfuse.calls.signature import Signature
from callfuse.detect.budget import Budget, ToolBudget
from callfuse.detect.cycle import LENGTHS, Cycle
from callfuse.detect.detector import ANY_TOOL, NAMED, Detector, Evidence, any_call
from callfuse.detect.no_news import NoNews
from callfuse.detect.pollers import has_waited, polls
from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.returning import Returning
from callfuse.detect.same_error import may_end, same_errors
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
        self._evidence: Timeline | None = None
        self._calls: dict[str, list[tuple[Detector, ToolCall]]] | None = None
        self._possible: dict[str, list[Finding]] = {}
        self._judged: dict[tuple[Detector, Signature, bool], Finding | None] = {}
        self._waited: dict[int, tuple[Sequence[ToolCall], bool]] = {}
        self._polling: dict[tuple[Signature, bool], bool] = {}

    @property
    def past(self) -> Timeline:
        """What of the timeline is evidence."""
        if self._evidence is None:
            self._evidence = self.timeline.evidence()
        return self._evidence

    def suspects(self) -> list[str]:
        """Every tool of which a call could be found to loop; none in a healthy timeline.

        `ANY_TOOL` is among them where it may be a tool that the timeline does not name.
        """
        if self.is_healthy():
            return []
        return [name for name in (*self._recurring(), ANY_TOOL) if self.possible(name)]

    def _recurring(self) -> dict[str, list[tuple[Detector, ToolCall]]]:
        """By their tools the calls that may come again in a loop; and by bare names, where tools have namespaces."""
        if self._calls is None:
            self._calls = {}
            for detector in DETECTORS:
                for call in detector.recurring(self.past, self.settings):
                    for name in {call.full_name, call.name}:
                        self._calls.setdefault(name, []).append((detector, call))
        return self._calls

    @property
    def _reach(self) -> int:
        """The rounds of which a call may come again in a loop."""
        return max(self.settings.window, LENGTHS[-1])

    def is_healthy(self) -> bool:
        """Whether no call could be found whatever it is. True is sure, and what most timelines are at a glance: their
        newest round is new and of known tools, and it takes more than one equal call to make a finding."""
        timeline = self.timeline
        newest = timeline.at(0)
        if newest is None:
            return True
        if timeline.has_blocks or not self.settings.wants_returns:
            return False
        for call in newest.calls:
            if timeline.lacks(call.name):
                return False
        return not timeline.may_return(self._reach)

    def possible(self, name: str) -> list[Finding]:
        """What could be found in a call of this tool, whatever its arguments."""
        known = self._possible.get(name)
        if known is None:
            known = self._possible[name] = list(self._foreseen(name)) if name else []
        return known

    def _foreseen(self, name: str) -> Iterator[Finding]:
        for detector, call in self._recurring().get(name, ()):
            if finding := self.found(detector, call):
                yield finding
        if name == ANY_TOOL or self.possible(ANY_TOOL):
            any_of_it = any_call(name)
            for detector in DETECTORS:
                if detector.of_any_tool and (finding := self.found(detector, any_of_it)):
                    yield finding

    def judge(self, call: ToolCall, *, news: bool = False) -> Finding | None:
        """The hardest finding for one pending call as if it came alone, or beside a new one; it names every kind that
        hit."""
        return _hardest([one for one in self._findings(call) if not (news and one.ends_on_news)])

    def is_news(self, call: ToolCall) -> bool:
        """Whether the call is not among those of the window."""
        return bool(call.name) and not self.past.knows(call.signature, self.settings.window)

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

    def hindsight(self) -> Finding | None:
        """What only the newest round's results show: the same error again. Judged once they are known."""
        return next(self.hindsights(), None) if may_end(self.timeline, self.settings) else None

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
        any_tool = bool(self.possible(ANY_TOOL))
        detectors = (detector for detector in DETECTORS if any_tool or not detector.of_any_tool)
        return [finding for detector in detectors if (finding := self.found(detector, call))]

    def found(self, detector: Detector, call: ToolCall) -> Finding | None:
        """What one detector finds in a pending call, as if it came alone. Nothing that came of it is looked at."""
        key = (
            detector,
            call.signature,
            call.dropped,
        )  # a call that the client has dropped does not tell whether it waits
        if key not in self._judged:
            self._judged[key] = self._find(detector, call)
        return self._judged[key]

    def _find(self, detector: Detector, call: ToolCall) -> Finding | None:
        tool = self.settings.for_tool(call.full_name)
        soft, hard = detector.limits(tool)
        if not soft or not tool.settings.enabled:
            return None
        evidence = detector.evidence(self.past, call, tool.settings)
        if evidence is None or (evidence.count < soft and not evidence.certain):
            return None
        if detector.spares_pollers and (self._polls(call) or self._have_waited(evidence.calls)):
            soft, hard = soft * tool.settings.poll_factor, hard * tool.settings.poll_factor
            if evidence.count < soft:
                return None
        return self._finding(detector.kind, call, evidence, (soft, hard), ends_on_news=detector.ends_on_news)

    def _have_waited(self, stretch: Sequence[ToolCall]) -> bool:
        """Whether a call of the stretch waited for something outside; asked once, for many calls may share it."""
        known = self._waited.get(id(stretch))
        if known is None:
            waited = any(has_waited(one) or self._polls(one) for one in stretch)
            known = self._waited[id(stretch)] = stretch, waited
        return known[1]

    def _polls(self, call: ToolCall) -> bool:
        """Whether a call waits for something by what it is."""
        key = (call.signature, call.dropped)
        known = self._polling.get(key)
        if known is None:
            known = self._polling[key] = polls(call, self.settings)
        return known

    def _finding(
        self, kind: Kind, call: ToolCall, evidence: Evidence, limits: tuple[int, int], *, ends_on_news: bool
    ) -> Finding:
        soft, hard = limits
        newest = evidence.calls[:NAMED]
        return Finding(
            kind=kind,
            tool=call.name,
            signature=call.signature,
            count=evidence.count,
            threshold=soft,
            window_s=self.settings.for_tool(call.full_name).settings.ttl_seconds,
            hard=evidence.certain or 0 < hard <= evidence.count,
            confidence=evidence.confidence,
            calls=tuple([one.id for one in reversed(newest)]),
            previous=self._previous(call, newest),
            ends_on_news=ends_on_news,
            whole_round=evidence.whole_round,
            lap=evidence.lap,
        )

    def _previous(self, call: ToolCall, stretch: Sequence[ToolCall]) -> str:
        """What the call brought last, or else what came last of all."""
        for one in stretch:
            if one.signature == call.signature and not one.withheld and one.outcome:
                return one.outcome.text
        earlier = (round_.find(call.name, call.signature) for round_ in self.past.rounds_of_window(self._reach))
        outcomes = (one.outcome for one in chain(earlier, stretch) if one and not one.withheld)
        return next((outcome.text for outcome in outcomes if outcome), "")


def _hardest(found: Sequence[Finding]) -> Finding | None:
    """The hardest of one call's findings, naming all kinds."""
    if not found:
        return None
    hardest = max(found, key=lambda finding: finding.hard)
    kinds = tuple(dict.fromkeys(finding.kind for finding in found))
    return replace(hardest, kinds=kinds) if len(kinds) > 1 else hardest

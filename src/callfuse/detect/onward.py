"""Find a pending call that continues a loop found in results; it is withheld if the kind's cap is lifted.

A `Hindsight` judges the results of calls that have run. `onward` turns it into a detector of the call that comes right
after them: a call that equals one of the evidence's calls or, if the arguments do not matter
(`ResultFact.any_arguments`), any call of the newest round's tools. Once such a call has been withheld, only an equal
call is found again: a call with other arguments may pass.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar, NamedTuple

from callfuse.detect.detector import Detector, Evidence, Hindsight, any_call, twice
from callfuse.detect.settings import ForTool, Settings
from callfuse.model import Round, Timeline, ToolCall
from callfuse.model.signature import Signature


def onward(hindsight: Hindsight) -> Detector:
    """Return a detector of pending calls for a kind that judges results."""

    class Own(_Onward):
        kind = hindsight.kind
        needs = hindsight.needs.onward
        judged = hindsight

    return Own()


class _Onward(Detector):
    """Finds calls that continue a loop; off unless findings of the kind may withhold a call."""

    judged: ClassVar[Hindsight]

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return the kind's limit, and twice that as the hard limit; off if its caps allow no more than a warning."""
        name = self.kind.name
        return twice(tool.settings.limit_of(name)) if tool.settings.detectors.may_withhold(name) else (0, 0)

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """Return the calls that continue the loop, by the pauses and limits of their own tools; if the arguments do not
        matter, one call for each tool."""
        calls: list[ToolCall] = []
        for name in {one.full_name for round_ in timeline for one in round_.calls}:
            found = timeline.memoized(_shown, settings.for_tool(name).settings, self.judged)
            calls += [one for one in found.calls.values() if one.full_name == name] if found else ()
        return calls

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return the evidence of the newest results; the rounds withheld since and the pending round count too."""
        found = timeline.memoized(_shown, settings, self.judged)
        goes_on = found is not None and (call.signature in found.calls or call.full_name in found.tools)
        return found.evidence if found is not None and goes_on else None


class _Shown(NamedTuple):
    """The loop that was found in the newest results: the evidence against a call that continues it, and the calls that
    do so: `calls`, and all calls of `tools`."""

    evidence: Evidence
    calls: dict[Signature, ToolCall]
    tools: frozenset[str]


def _shown(timeline: Timeline, settings: Settings, judged: Hindsight) -> _Shown | None:
    rounds = timeline.rounds
    withheld = next((at for at, round_ in enumerate(rounds) if round_.executed), len(rounds))
    found = next(islice(judged.evidence(timeline, settings), withheld, None), None)
    if found is None:
        return None
    evidence = replace(found, count=found.count + withheld + 1)
    tools = {one.full_name: one.call for one in rounds[withheld].calls if judged.needs.any_arguments}
    if withheld:
        calls = _tried(rounds[:withheld], found, tools)
        return _Shown(evidence, {one.signature: one for one in calls}, frozenset())
    calls = [_any_call_like(one) for one in tools.values()] or [one.call for one in found.calls]
    return _Shown(evidence, {one.signature: one for one in calls}, frozenset(tools))


def _tried(withheld: Sequence[Round], evidence: Evidence, tools: Collection[str]) -> list[ToolCall]:
    """Return the calls of withheld rounds that would have continued the loop."""
    known = {one.signature for one in evidence.calls}
    tried = [one.call for round_ in withheld for one in round_.calls]
    return [one for one in tried if one.full_name in tools or one.signature in known]


def _any_call_like(call: ToolCall) -> ToolCall:
    """Return a call that represents any call of the same tool."""
    return ToolCall("", call.name, "", call.namespace, signature=any_call(call.full_name).signature)

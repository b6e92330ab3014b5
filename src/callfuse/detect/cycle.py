"""`cycle`: the newest rounds are laps of one sequence of 2 to 5 rounds.

Rounds are compared by their sets of signatures, at least two of which differ; the shortest sequence counts. Known
outcomes are equal lap by lap.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from callfuse.calls.outcomes import same_outcome
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.streak import recent
from callfuse.model import Kind, Round, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings

LENGTHS: Final = range(2, 6)
"""Rounds in a lap."""


class Cycle:
    """A B A B, A B C A B C, and so on."""

    kind = Kind.CYCLE
    ends_on_news = True
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Laps."""
        return twice(tool.settings.detectors.cycle)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """The tools with which a second lap would be over."""
        return {call.name for expected, _ in self._laps(timeline, settings) for call in expected.calls}

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """The calls with which a lap would be over."""
        return [call for expected, _ in self._laps(timeline, settings) for call in expected.of_tool(name)]

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The laps that the pending round would complete, if it is just the round that is due."""
        for expected, tail in self._laps(timeline, settings):
            if call.signature in expected.signatures:
                length = next(at + 1 for at, round_ in enumerate(tail) if round_ is expected)
                laps = (1 + len(tail)) // length
                lap = [
                    " + ".join(one.name for one in round_.distinct) for round_ in (*tail[length - 2 :: -1], expected)
                ]
                calls = tuple(one for round_ in tail for one in round_.calls)
                return Evidence(laps, calls, whole_round=expected.signatures, lap=tuple(lap))
        return None

    def _laps(self, timeline: Timeline, settings: LoopSettings) -> list[tuple[Round, list[Round]]]:
        """For each length the round that is due, and the rounds of the laps so far, newest first."""
        return timeline.remembered(_laps, settings)


def _laps(timeline: Timeline, settings: LoopSettings) -> list[tuple[Round, list[Round]]]:
    return list(_sequences(list(_comparable(timeline, settings))))


def _comparable(timeline: Timeline, settings: LoopSettings) -> Iterator[Round]:
    """The newest rounds, as far as they can be of one sequence: no longer than rounds come again."""
    rounds: list[Round] = []
    alone = 0
    for round_ in recent(timeline, settings):
        again = any(round_.signatures == before.signatures for before in rounds[-LENGTHS[-1] :])
        alone = 0 if again else alone + 1
        if alone > LENGTHS[-1]:
            return
        rounds.append(round_)
        yield round_


def _sequences(rounds: list[Round]) -> Iterator[tuple[Round, list[Round]]]:
    for length in LENGTHS:
        if len(rounds) < 2 * length - 1:
            return
        equal = 0
        while equal + length < len(rounds) and _is_same(rounds[equal], rounds[equal + length]):
            equal += 1
        lap = rounds[:length]
        if equal >= length - 1 and any(round_.signatures != lap[0].signatures for round_ in lap):
            yield rounds[length - 1], rounds[: equal + length]


def _is_same(later: Round, earlier: Round) -> bool:
    """Whether two rounds bring the same calls, and the same comes of those that were executed."""
    if later.signatures != earlier.signatures:
        return False
    pairs = ((call, earlier.find(call.name, call.signature)) for call in later.calls)
    return all(
        call.withheld or one is None or one.withheld or same_outcome(call.outcome, one.outcome) for call, one in pairs
    )

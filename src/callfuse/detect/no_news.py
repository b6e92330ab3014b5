"""`no_news`: consecutive rounds bring nothing but known calls with known outcomes, in whatever order.

Each call of such a round, with its outcome, is one of the window before it. The pending round counts once, and of it
only the signatures need be known.
"""

from collections.abc import Iterable, Sequence

from callfuse.calls.outcomes import same_outcome
from callfuse.detect.detector import Evidence, twice
from callfuse.detect.streak import recent
from callfuse.model import Kind, Round, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


class NoNews:
    """Nothing new is called, and nothing new comes back."""

    kind = Kind.NO_NEWS
    ends_on_news = True
    spares_pollers = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Rounds."""
        return twice(tool.settings.detectors.no_news)

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]:
        """The tools of the window, once the streak is long enough."""
        if len(self._streak(timeline, settings)) + 1 < settings.detectors.no_news:
            return ()
        return {call.name for round_ in timeline.rounds_of_window(settings.window) for call in round_.calls}

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]:
        """A call of the window: any of them has as much evidence as the others."""
        window = timeline.rounds_of_window(settings.window)
        return next(([call] for round_ in window for call in round_.of_tool(name)), [])

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The rounds without news before the pending one, if its call is known."""
        streak = self._streak(timeline, settings)
        if not streak or call.signature not in timeline.window(settings.window):
            return None
        return Evidence(1 + len(streak), tuple(one for round_ in streak for one in round_.calls))

    def _streak(self, timeline: Timeline, settings: LoopSettings) -> Sequence[Round]:
        """The newest rounds without news; the same for every pending call."""
        return timeline.remembered(_streak, settings)


def _streak(timeline: Timeline, settings: LoopSettings) -> Sequence[Round]:
    """Signatures first: outcomes cost something to know."""
    rounds: list[Round] = []
    for index, round_ in enumerate(recent(timeline, settings)):
        if timeline.news(round_, index, settings.window):
            break
        rounds.append(round_)
    if len(rounds) + 1 < settings.detectors.no_news:
        return ()
    for index, round_ in enumerate(rounds):
        before = timeline.rounds_of_window(settings.window, before=index + 1)
        if not all(_is_known(call, before) for call in round_.calls):
            return rounds[:index]
    return rounds


def _is_known(call: ToolCall, before: Sequence[Round]) -> bool:
    """Whether an earlier call was the same and brought the same; a withheld one brought nothing."""
    if call.withheld:
        return True
    earlier = (round_.find(call.name, call.signature) for round_ in before)
    return any(one is not None and (one.withheld or same_outcome(call.outcome, one.outcome)) for one in earlier)

"""`no_news`: consecutive rounds bring nothing but known calls with known outcomes, in whatever order.

Each call of such a round, with its outcome, is one of the window before it. The pending round counts once, and of it
only the signatures need be known.
"""

from collections.abc import Iterable
from itertools import islice

from callfuse.detect.detector import Evidence, calls_of, twice
from callfuse.detect.pollers import polls
from callfuse.detect.streak import is_unread, recent, said_again
from callfuse.model import Kind, Round, Timeline, ToolCall
from callfuse.model.outcomes import same_outcome
from callfuse.policy.settings import ForTool, LoopSettings


class NoNews:
    """Nothing new is called, and nothing new comes back."""

    kind = Kind.NO_NEWS
    of_any_tool = False
    ends_on_news = True
    spares_pollers = True
    wants_return = True

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Rounds."""
        return twice(tool.settings.detectors.no_news)

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]:
        """A call of each tool in the window: all are alike, but that those that wait for something may go on longer."""
        if timeline.at(0) is None or timeline.news(0, settings.window):
            return ()
        calls: dict[str, ToolCall] = {}
        for call in timeline.window(settings.window).values():
            name = call.full_name
            known = calls.get(name)
            if known is None or polls(known, settings):
                calls[name] = call
        return calls.values()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None:
        """The rounds without news before the pending one, if its call is known."""
        if not timeline.knows(call.signature, settings.window):
            return None
        return timeline.remembered(_streak, settings)


def _streak(timeline: Timeline, settings: LoopSettings) -> Evidence:
    """The newest rounds without news; the same for every pending call."""
    rounds: list[Round] = []
    size = settings.window
    says: list[object] = []
    past = iter(recent(timeline, settings))
    for round_ in past:
        index = len(rounds)
        if index > 1 and not timeline.news(index, size):  # most streaks end before, and read no more
            says += [one.said for one in timeline.slice(len(says), index + 1 + size)]
            if says[index] in says[index + 1 :]:
                rounds.append(round_)
                continue
        distance = _known_before(timeline, index, round_, size)
        if not distance:
            break
        rounds.append(round_)
        if index == 1 and distance <= size:  # what most of a loop is at a glance
            rounds += islice(past, max(0, said_again(timeline, settings, distance) - 2))
    return Evidence(1 + len(rounds), calls_of(rounds))


def _known_before(timeline: Timeline, index: int, round_: Round, size: int) -> int:
    """How many rounds before the newest but `index` what one of its calls brought had come of it; 0 where not all are
    of the window."""
    distance = 0
    for call in round_.distinct:
        distance = _distance(timeline, index, call, size)
        if not distance:
            break
    return distance


def _distance(timeline: Timeline, index: int, call: ToolCall, size: int) -> int:
    """How many rounds before the newest but `index` one of its calls is, with what came of it; 0 where it is not of the
    window.

    A withheld one brought nothing; an outcome of which nobody knows may be any.
    """
    if call.withheld:
        return call.signature not in timeline.news(index, size)
    name, signature, outcome = call.name, call.signature, call.outcome
    if outcome is None and is_unread(call):
        return 0
    for distance, round_ in enumerate(timeline.rounds_of_window(size, before=index + 1), 1):
        earlier = round_.find(name, signature)
        if earlier and not earlier.withheld:
            before = earlier.outcome
            if same_outcome(before, outcome) and not (before is None and is_unread(earlier)):
                return distance
    return 0

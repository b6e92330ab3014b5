"""`monotone`: consecutive rounds call one tool and no other, whatever the arguments and the outcomes."""

from collections.abc import Iterable

from callfuse.detect.detector import Detector, Evidence, distinct_calls
from callfuse.detect.kind import Kind, SoftLimit
from callfuse.detect.settings import Settings
from callfuse.detect.streak import recent
from callfuse.model import Round, Timeline, ToolCall


class Monotone(Detector):
    """One tool, and no other."""

    kind = Kind(
        "monotone",
        seen="round {count} in a row that calls nothing but {tool}",
        suggestion="See what the other tools can do.",
        limit=SoftLimit("rounds", 3, "Rounds in a row that call one tool and no other."),
    )

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall]:
        """The calls of the newest round."""
        newest = timeline.newest
        return [one.call for one in newest.calls] if newest else ()

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """The rounds before the pending one that call nothing but its tool."""
        rounds: list[Round] = []
        for round_ in recent(timeline, settings, lambda one: one.full_name == call.full_name):
            if any(one.full_name != call.full_name for one in round_.calls):
                break
            rounds.append(round_)
        return Evidence(1 + len(rounds), distinct_calls(rounds)) if rounds else None

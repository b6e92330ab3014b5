"""The list of all detectors. A new one is its own file in `detect/`, and a line in `REGISTERED`."""

from typing import Final

from callfuse.detect.blocked_repeat import BlockedRepeat
from callfuse.detect.budget import Budget, ToolBudget, WeightedBudget
from callfuse.detect.compaction_storm import CompactionStorm
from callfuse.detect.cycle import Cycle
from callfuse.detect.detector import Detector, Hindsight, RequestRule, Rule
from callfuse.detect.error_rate import ErrorRate
from callfuse.detect.failing_tool import FailingTool
from callfuse.detect.in_answer import EqualCalls, Flood
from callfuse.detect.kind import AnswerPart, Kind
from callfuse.detect.known_pairs import KnownPairs
from callfuse.detect.monologue import Monologue
from callfuse.detect.no_difference import NoDifference
from callfuse.detect.no_effect import NoEffect
from callfuse.detect.no_news import NoNews
from callfuse.detect.onward import onward
from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.detect.repeat_with_notes import RepeatWithNotes
from callfuse.detect.retry_storm import RetryStorm
from callfuse.detect.runaway_call import RunawayCall
from callfuse.detect.same_error import SameError
from callfuse.detect.similar import Similar
from callfuse.detect.spawn_storm import SpawnStorm
from callfuse.detect.spending import SpentCalls, SpentMoney, SpentSeconds, SpentTokens
from callfuse.detect.stagnation import Stagnation
from callfuse.detect.truncated import Truncated
from callfuse.detect.unknown_tool import UnknownTool, UnknownToolResults

REGISTERED: Final[tuple[Rule, ...]] = (
    BlockedRepeat(),
    Repeat(),
    EqualCalls(),
    RepeatChanging(),
    NoNews(),
    Cycle(),
    SameError(),
    FailingTool(),
    KnownPairs(),
    NoEffect(),
    NoDifference(),
    RepeatWithNotes(),
    UnknownTool(),
    UnknownToolResults(),
    Similar(),
    Stagnation(),
    ErrorRate(),
    Truncated(),
    Monologue(),
    RetryStorm(),
    SpawnStorm(),
    CompactionStorm(),
    Flood(),
    RunawayCall(),
    Budget(),
    ToolBudget(),
    WeightedBudget(),
    SpentCalls(),
    SpentTokens(),
    SpentSeconds(),
    SpentMoney(),
)
"""All detectors, in the order in which settings and tables list their kinds."""

KINDS: Final[dict[str, Kind]] = {one.kind.name: one.kind for one in REGISTERED}

OF_REQUESTS: Final = frozenset([one.kind.name for one in REGISTERED if isinstance(one, RequestRule)])
"""The kinds that are found in requests, before the model is asked."""
PARTS: Final[dict[str, dict[str, AnswerPart]]] = {
    name: {part.name: part for one in REGISTERED if one.kind.name == name for part in one.parts} for name in KINDS
}
"""By kind, the parts of an answer in which it may be found; none for kinds that are found in calls alone."""

HINDSIGHTS: tuple[Hindsight, ...] = tuple(
    sorted([one for one in REGISTERED if isinstance(one, Hindsight)], key=lambda one: not one.needs.unlisted)
)
"""The detectors that judge results, the best explanation first: that a tool does not exist explains its errors."""

_OF_CALLS: Final = [one for one in REGISTERED if isinstance(one, Detector)]
_ONWARD: Final = [onward(one) for one in HINDSIGHTS if one.kind not in [other.kind for other in _OF_CALLS]]

DETECTORS: tuple[Detector, ...] = tuple(sorted([*_OF_CALLS, *_ONWARD], key=lambda one: not one.kind.specific))
"""The detectors that judge pending calls, the best explanation first; the last ones find calls that continue a loop in
the results, if no other detector finds them."""

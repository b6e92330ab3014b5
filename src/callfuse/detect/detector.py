"""The interface between the engine and a detector."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final

from callfuse.detect import facts
from callfuse.detect.facts import Fact, ResultFact
from callfuse.detect.kind import AnswerPart, Kind
from callfuse.detect.settings import ForTool, Settings
from callfuse.detect.siblings import Counted, Room
from callfuse.model import ANY_TOOL, PastCall, Round, Timeline, ToolCall
from callfuse.model.signature import Signature

__all__ = [
    "ANY_TOOL",
    "NAMED",
    "Detector",
    "Evidence",
    "Hindsight",
    "Hit",
    "RequestRule",
    "any_call",
    "distinct_calls",
    "is_any_call",
    "on_screen",
    "twice",
]


_ANY_CALL: Final = b"any call of "
"""No signature, which is a digest, begins so."""
NAMED: Final = 100
"""A finding names at most this many of its calls: the newest ones."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How close a pending call is to a finding: the count, and the calls that count.

    `count` is in the unit of the detector's limits and includes the pending call. `calls` are newest first, without the
    pending one. `confidence` is from 0 to 1. `whole_round`: counts only if the round has exactly these signatures.
    `lap` names the tools of a sequence. `factor`: limits are this many times as high. `in_answer`: only calls of the
    pending round are evidence. `returned`: a call was blocked, and the calls are not in a row or had different
    outcomes. `unit`: what a budget counts, in words.
    """

    count: int
    calls: tuple[PastCall, ...] = ()
    confidence: float = 1.0
    whole_round: frozenset[Signature] | None = None
    lap: tuple[str, ...] = ()
    factor: int = 1
    in_answer: bool = False
    returned: bool = False
    unit: str = ""


class Rule(ABC):
    """Base of detectors: `Detector` judges pending calls, `Hindsight` results, and `RequestRule` is for requests.

    Creating a `Detector` or `Hindsight` without `evidence` raises TypeError.
    """

    kind: ClassVar[Kind]
    of_cut_off: ClassVar[bool] = False
    """Whether it judges calls that a length limit has cut off; other detectors ignore such calls."""
    parts: ClassVar[tuple[AnswerPart, ...]] = ()
    """The parts of an answer in which its kind may be found; empty if only in calls."""


class Detector(Rule):
    """Finds one kind of loop in pending calls.

    A subclass must define `kind` and `evidence`, and `limits` if its kind has no limit. The other defaults are safe:
    they cost time, but miss nothing.
    """

    needs: ClassVar[Fact] = facts.ROUNDS
    """The fact without which it finds nothing. It runs only if the fact holds for its soft limit."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Return soft and hard limit for this tool, in the detector's unit. A soft limit of 0 means off; a hard limit
        of 0, never hard.

        By default the soft limit is the kind's setting, and the hard one is twice that.
        """
        return twice(tool.settings.limit_of(self.kind.name))

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall] | None:
        """Return the calls to judge in place of a pending call whose arguments are not known yet.

        For each tool, the strongest of these calls must bound the evidence of every possible call of the tool;
        otherwise a looping call would stream through unheld. None: no such bound; every call is held, if findings of
        this kind may be withheld. A tool's own limits and pauses may differ from `settings`. Not used if the arguments
        do not matter (`Finds.ANY`).
        """
        return None

    @abstractmethod
    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """Return the evidence against a pending call, under its tool's settings; None if there is none."""


class RoundDetector(Detector):
    """A detector that also counts the other calls of the pending round."""

    @abstractmethod
    def room(self, timeline: Timeline, settings: Settings) -> Room:
        """Cheap pre-check: return how many other calls a round may have without a finding; a lower bound."""

    @abstractmethod
    def beside(self, timeline: Timeline, call: ToolCall, counted: Counted, settings: Settings) -> Evidence | None:
        """Return the evidence with the round's earlier calls. Its count must not fall if a count in `counted` grows."""


class Hindsight(Rule):
    """Finds one kind of loop in the results of executed calls, when the result that completes it has arrived.

    A subclass must define `kind`, with its limit, `needs` and `evidence`. The calls have been executed, so it warns at
    most. If settings lift the cap of its kind, `detect/onward.py` finds pending calls that continue the loop.
    """

    needs: ClassVar[ResultFact]
    """The fact without which it finds nothing. It runs only if the fact holds for its limit."""

    @abstractmethod
    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """Yield for each round, newest first, the evidence that its results complete, or None."""


class RequestRule(Rule):
    """A kind of loop that is found in a request, before the model is asked. It judges no call and only has a `kind`."""


@dataclass(frozen=True, slots=True, eq=False)
class Hit:
    """One detector's hit on a call, before it becomes a `Finding`."""

    detector: Rule
    call: ToolCall
    evidence: Evidence
    threshold: int
    hard: bool
    any_count: bool = False
    """The count is unknown: the call could have a finding at any count, or none."""
    any_signature: bool = False
    """Another call of the tool could have this hit, too."""
    hard_from: int = 0
    """The count from which on it is hard; 0 means never."""
    waits: bool = False
    """A call of the stretch waits for something external, or acts on a screen."""
    ends_on_news: bool = False
    """A new call in the same round shows progress, and voids the hit."""

    @property
    def kind(self) -> str:
        """The name of the detector's kind."""
        return self.detector.kind.name

    @property
    def tool(self) -> str:
        """The tool's bare name."""
        return self.call.name

    @property
    def signature(self) -> Signature:
        """The signature of the call."""
        return self.call.signature

    @property
    def count(self) -> int:
        """The count of the evidence."""
        return self.evidence.count

    @property
    def in_answer(self) -> bool:
        """Whether only calls of the pending round are evidence."""
        return self.evidence.in_answer


def twice(soft: int) -> tuple[int, int]:
    """Return a soft limit, and a hard limit of twice that."""
    return soft, 2 * soft


def on_screen(limit: int) -> int:
    """Return the higher limit for a stretch with a call that acts on a screen: 5 for 3, 10 for 6."""
    return -(-limit * 5 // 3)


def any_call(name: str) -> ToolCall:
    """Return a call that represents any call of a tool: its arguments equal those of no other call."""
    signature = _ANY_CALL + name.encode("utf-8", "replace")
    return ToolCall("", name, "callfuse: any arguments", signature=signature)


def is_any_call(call: ToolCall) -> bool:
    """Whether a call represents any call of its tool, as `any_call` returns it."""
    return call.signature.startswith(_ANY_CALL)


def distinct_calls(newest_first: Sequence[Round]) -> tuple[PastCall, ...]:
    """Return the distinct calls of some rounds, newest first."""
    calls = tuple(chain.from_iterable([one.calls for one in newest_first]))
    if len(calls) == len(newest_first):
        return calls
    return tuple([call for one in newest_first for call in one.distinct[::-1]])

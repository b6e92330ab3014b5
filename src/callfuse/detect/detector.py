"""The seam between the engine and a detector."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final

from callfuse.detect.kind import Kind
from callfuse.detect.settings import ForTool, Settings
from callfuse.model import ANY_TOOL, PastCall, Round, Timeline, ToolCall
from callfuse.model.signature import Signature

__all__ = ["ANY_TOOL", "NAMED", "Detector", "Evidence", "Hindsight", "Hit", "any_call", "distinct_calls", "twice"]


NAMED: Final = 100
"""Calls that a finding names: the newest of those that it rests on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a pending call adds up to, however little it is.

    `count` is in the unit of the detector's limits and includes the pending call; `calls` are those it rests on, newest
    first, without it. `confidence` is from 0 to 1. `whole_round`: only a round of exactly these signatures is meant.
    `lap` names the tools of a sequence. `certain`: whatever the count, it is a finding, and a hard one.
    """

    count: int
    calls: tuple[PastCall, ...] = ()
    confidence: float = 1.0
    whole_round: frozenset[Signature] | None = None
    lap: tuple[str, ...] = ()
    certain: bool = False


class Rule:
    """What has a kind: a detector of pending calls, or one of results."""

    kind: ClassVar[Kind]
    ends_on_news: ClassVar[bool] = False
    """A new call in the same round shows progress and voids what was found."""


class Detector(Rule):
    """Finds one kind of loop in pending calls.

    A subclass must give `kind` and `evidence`, and `limits` where its kind has none; what it leaves out is the safe
    choice.
    """

    of_any_tool: ClassVar[bool] = False
    """Evidence does not depend on whether the call has come before: what is found in one of `ANY_TOOL` is the most."""
    spares_pollers: ClassVar[bool] = False
    """A stretch with a poller in it has `poll_factor` times the limits."""
    names_calls: ClassVar[bool] = False
    """Names the very calls that repeat: where others hit as well, this one explains the finding better."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Soft and hard limit for this tool, in the detector's unit; 0 is off, and never.

        By default the kind's own setting, and hard at twice that.
        """
        return twice(tool.settings.limit_of(self.kind.name))

    def may_fire(self, timeline: Timeline, at: int, settings: Settings) -> bool:
        """Whether anything could be found right after the newest round but `at`, whatever is called then; False must be
        sure.

        The cheap pre-check that most requests end with: `at` is 0 there. `settings` are the loosest of any tool's.
        """
        return True

    def recurring(self, timeline: Timeline, settings: Settings) -> Iterable[ToolCall] | None:
        """The calls to judge in place of a pending one whose arguments are not known yet.

        No pending call of a tool may have more evidence than the one of them of that tool that has most: a call streams
        through unheld only where none of them would be found. None: any call may have; then each is held. `settings`
        are not those of a tool, which may have other limits and pauses. Not asked of detectors `of_any_tool`.
        """
        return None

    def evidence(self, timeline: Timeline, call: ToolCall, settings: Settings) -> Evidence | None:
        """What a pending call adds up to, by the settings of its tool; None where it adds up to nothing."""
        raise NotImplementedError


class Hindsight(Rule):
    """Finds one kind of loop in results, once they are known: what is found is told with the last of them.

    A subclass must give `kind`, with its limit, and `evidence`. Its calls have gone out, so it warns at most.
    """

    def may_fire(self, rounds: Sequence[Round], settings: Settings) -> bool:
        """Whether anything could be found in these rounds of one timeline, newest first; False must be sure."""
        return True

    def evidence(self, timeline: Timeline, settings: Settings) -> Iterator[Evidence | None]:
        """What is found of each round, as if it were the newest, the newest first; None for nothing."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Hit:
    """What a detector has found in a call: as much of a finding as is asked of one that is only foreseen."""

    detector: Rule
    call: ToolCall
    evidence: Evidence
    threshold: int
    hard: bool
    any_count: bool = False
    """How often the call may have come is not known: it may be found at any count, or not at all."""

    @property
    def kind(self) -> str:
        """That of the detector, by its name."""
        return self.detector.kind.name

    @property
    def tool(self) -> str:
        """The call's."""
        return self.call.name

    @property
    def signature(self) -> Signature:
        """The call's."""
        return self.call.signature

    @property
    def count(self) -> int:
        """The evidence's."""
        return self.evidence.count


def twice(soft: int) -> tuple[int, int]:
    """A soft limit with its hard one."""
    return soft, 2 * soft


def any_call(name: str) -> ToolCall:
    """A call of a tool with arguments that no other call has."""
    signature = b"any call of " + name.encode("utf-8", "replace")
    return ToolCall("", name, "callfuse: any arguments", signature=signature)


def distinct_calls(newest_first: Sequence[Round]) -> tuple[PastCall, ...]:
    """The distinct calls of some rounds, newest first."""
    calls = tuple(chain.from_iterable([one.calls for one in newest_first]))
    if len(calls) == len(newest_first):
        return calls
    return tuple([call for one in newest_first for call in one.distinct[::-1]])

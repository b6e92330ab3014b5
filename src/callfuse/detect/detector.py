"""The seam between the engine and a detector."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from callfuse.model import ANY_TOOL, Kind, Round, Timeline, ToolCall
from callfuse.model.signature import Signature
from callfuse.policy.settings import ForTool, LoopSettings

__all__ = ["ANY_TOOL", "NAMED", "Detector", "Evidence", "Hit", "any_call", "calls_of", "twice"]


NAMED: Final = 100
"""Calls that a finding names: the newest of those that it rests on."""


@dataclass(slots=True)
class Evidence:
    """What a pending call adds up to, however little it is. Shared by many calls: nothing of it is ever changed.

    `count` is in the unit of the detector's limits and includes the pending call; `calls` are those it rests on, newest
    first, without it. `whole_round`: only a round of exactly these signatures is meant. `lap` names the tools of a
    sequence. `certain`: whatever the count, it is a finding, and a hard one.
    """

    count: int
    calls: tuple[ToolCall, ...] = ()
    confidence: float = 1.0
    whole_round: frozenset[Signature] | None = None
    lap: tuple[str, ...] = ()
    certain: bool = False


class Detector(Protocol):
    """One kind of loop.

    `recurring` gives calls that may come again, so that no pending call of a tool has more evidence than the one of
    them of that tool that has most: a call streams through unheld only where none of them would be found. Its settings
    are not yet those of a tool, which may have other limits and pauses. For detectors `of_any_tool` it is any call.
    """

    kind: Kind
    of_any_tool: bool
    """It does not matter whether the call has come before: what is found in one of `ANY_TOOL` is the most there is."""
    ends_on_news: bool
    """A new call in the same round shows progress and voids what was found."""
    spares_pollers: bool
    """A stretch with a poller in it has `poll_factor` times the limits."""
    wants_return: bool
    """With limits above two nothing is found before a call of the newest round is one of those before."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Soft and hard for this tool; 0 is off, and never."""
        ...

    def recurring(self, timeline: Timeline, settings: LoopSettings) -> Iterable[ToolCall]: ...

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None: ...


@dataclass(slots=True)
class Hit:
    """What a detector has found in a call: as much of a finding as is asked of one that is only foreseen."""

    detector: Detector
    call: ToolCall
    evidence: Evidence
    threshold: int
    hard: bool

    @property
    def kind(self) -> Kind:
        """That of the detector."""
        return self.detector.kind

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
    return ToolCall("", name, "callfuse: any arguments", signature=b"any call of " + name.encode("utf-8", "replace"))


def calls_of(newest_first: Iterable[Round]) -> tuple[ToolCall, ...]:
    """The distinct calls of some rounds, newest first."""
    rounds = [*newest_first]
    calls = tuple(chain.from_iterable([one.calls for one in rounds]))
    return calls if len(calls) == len(rounds) else tuple([call for one in rounds for call in one.distinct[::-1]])

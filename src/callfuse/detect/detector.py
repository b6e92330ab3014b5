"""The seam between the engine and a detector."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from callfuse.calls.signature import Signature
from callfuse.model import Kind, Timeline, ToolCall
from callfuse.policy.settings import ForTool, LoopSettings


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a pending call adds up to, however little it is.

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

    `recurring` gives calls of a tool so that no pending call of it has more evidence than the one of them that has
    most: a call streams through unheld only where none of them would be found. `candidates` names every tool for which
    there may be such a call.
    """

    kind: Kind
    ends_on_news: bool
    """A new call in the same round shows progress and voids what was found."""
    spares_pollers: bool
    """A stretch with a poller in it has `poll_factor` times the limits."""

    def limits(self, tool: ForTool) -> tuple[int, int]:
        """Soft and hard for this tool; 0 is off, and never."""
        ...

    def candidates(self, timeline: Timeline, settings: LoopSettings) -> Iterable[str]: ...

    def recurring(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[ToolCall]: ...

    def evidence(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Evidence | None: ...


def twice(soft: int) -> tuple[int, int]:
    """A soft limit with its hard one."""
    return soft, 2 * soft


ANY_TOOL: Final = "*"
"""The candidate of a detector to which it does not matter which tool is called."""


def any_call(name: str) -> ToolCall:
    """A call of a tool with arguments that no other call has."""
    return ToolCall("", name, "callfuse: any arguments")

"""The seam between the engine and a detector."""

from collections.abc import Iterable
from typing import Protocol

from callfuse.model import Finding, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings


class Detector(Protocol):
    """One kind of loop.

    `possible` is what could be found in a call of that tool, were its arguments the worst there are. It is never empty
    where `judge` could find something: a call streams through unheld only where it is. `candidates` names every tool
    for which it may hold something.
    """

    def candidates(self, timeline: Timeline) -> Iterable[str]: ...

    def possible(self, timeline: Timeline, name: str, settings: LoopSettings) -> Iterable[Finding]: ...

    def judge(self, timeline: Timeline, call: ToolCall, settings: LoopSettings) -> Finding | None: ...

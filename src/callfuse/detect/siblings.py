"""The calls of a pending round that are there before the one to be judged, counted.

Complete calls count by signature. Those that still grow count by their tools: each may turn out to be equal to any
other call of its tool. So what may come next has an upper bound before its arguments are known.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from callfuse.model import ANY_TOOL, ToolCall
from callfuse.model.signature import Signature

UNNAMED: Final = ""
"""The tool of a growing call whose name is not known, or not whole: it may be any."""


class Counted(NamedTuple):
    """The other calls of a round beside one of it: all (`calls`), those of its signature (`equal`), and the different
    signatures among all (`different`) and among those of its tool (`of_tool`), its own left out."""

    calls: int = 0
    equal: int = 0
    different: int = 0
    of_tool: int = 0


NEVER: Final = 1 << 62


class Room(NamedTuple):
    """How many calls a round may have before one more could be too many: of all, and of equal ones. Lower bounds."""

    calls: int = NEVER
    equal: int = NEVER

    def is_passed_by(self, calls: Sequence[ToolCall]) -> bool:
        """Whether a complete round has more."""
        if len(calls) <= min(self):
            return False
        return len(calls) > self.calls or max(Counter([one.signature for one in calls]).values()) > self.equal


class Siblings:
    """The calls of one round so far, in any order. `calls`: the complete ones that have a name."""

    __slots__ = ("_different", "_equal", "_growing", "_grown", "_most", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._equal: Counter[Signature] = Counter()
        self._most: dict[str, int] = {}
        self._different: Counter[str] = Counter()
        self._growing: Counter[str] = Counter()
        self._grown = 0

    def __bool__(self) -> bool:
        """Whether there is any call so far."""
        return bool(self.calls or self._grown)

    @property
    def growing(self) -> int:
        """The number of calls that still grow."""
        return self._grown

    def add(self, call: ToolCall) -> None:
        """A call is complete. One without a name is none."""
        if not call.name:
            return
        self.calls += 1
        self._equal[call.signature] += 1
        equal = self._equal[call.signature]
        for name in {call.full_name, call.name}:
            self._most[name] = max(self._most.get(name, 0), equal)
        if equal == 1:
            self._different[call.full_name] += 1

    def grow(self, tool: str) -> None:
        """A call of this tool has begun (`UNNAMED`: of one that is not known yet)."""
        self._growing[tool] += 1
        self._grown += 1

    def stop(self, tool: str) -> None:
        """A call that had begun grows no more."""
        self._growing[tool] -= 1
        self._grown -= 1

    def beside(self, call: ToolCall) -> Counted:
        """The complete calls beside this one, which has not been added."""
        equal = self._equal.get(call.signature, 0)
        own = equal > 0
        return Counted(self.calls, equal, len(self._equal) - own, self._different[call.full_name] - own)

    def at_most(self, tool: str) -> Counted:
        """An upper bound of `beside` for any call of this tool that begins now; `ANY_TOOL`: of any tool."""
        grown = self._grown
        if tool == ANY_TOOL:
            equal = max(self._most.values(), default=0)
            of_tool = max(self._different.values(), default=0)
            return Counted(self.calls + grown, equal + grown, len(self._equal) + grown, of_tool + grown)
        same = self._growing[tool] + self._growing[UNNAMED]
        equal, of_tool = self._most.get(tool, 0), self._different[tool]
        return Counted(self.calls + grown, equal + same, len(self._equal) + grown, of_tool + same)

    def tools(self, beginning: str) -> list[str]:
        """The tools of complete and growing calls whose names begin so."""
        return [name for name in {**self._most, **self._growing} if name.startswith(beginning)]

"""Count the calls of a pending round that came before the call to be judged.

Complete calls count by signature. Growing calls count by tool: each may become equal to any other call of its tool. So
the counts for the next call have an upper bound before its arguments are known.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from callfuse.model import ANY_TOOL, ToolCall
from callfuse.model.signature import Signature

UNNAMED: Final = ""
"""The tool of a growing call whose name is unknown or incomplete: it may be any tool."""


class Counted(NamedTuple):
    """Counts of a call's siblings: all (`calls`), those with its signature (`equal`), and the different signatures,
    except its own, among all (`different`) and among those of its tool (`of_tool`)."""

    calls: int = 0
    equal: int = 0
    different: int = 0
    of_tool: int = 0


NEVER: Final = 1 << 62


class Room(NamedTuple):
    """How many calls, and how many equal calls, a round may have before one more could be too many. Lower bounds."""

    calls: int = NEVER
    equal: int = NEVER

    def is_passed_by(self, calls: Sequence[ToolCall]) -> bool:
        """Whether a complete round has more calls, or more equal calls, than this room allows."""
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
        """The number of calls that are still growing."""
        return self._grown

    def add(self, call: ToolCall) -> None:
        """Add a complete call. A call without a name is ignored."""
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
        """Add a call of this tool that has begun (`UNNAMED`: its tool is not known yet)."""
        self._growing[tool] += 1
        self._grown += 1

    def stop(self, tool: str) -> None:
        """Remove a call that had begun and has stopped growing."""
        self._growing[tool] -= 1
        self._grown -= 1

    def beside(self, call: ToolCall) -> Counted:
        """Count the complete calls beside this call, which must not have been added."""
        equal = self._equal.get(call.signature, 0)
        own = equal > 0
        return Counted(self.calls, equal, len(self._equal) - own, self._different[call.full_name] - own)

    def at_most(self, tool: str) -> Counted:
        """Return an upper bound of `beside` for any call of this tool that begins now; `ANY_TOOL`: of any tool."""
        grown = self._grown
        if tool == ANY_TOOL:
            equal = max(self._most.values(), default=0)
            of_tool = max(self._different.values(), default=0)
            return Counted(self.calls + grown, equal + grown, len(self._equal) + grown, of_tool + grown)
        same = self._growing[tool] + self._growing[UNNAMED]
        equal, of_tool = self._most.get(tool, 0), self._different[tool]
        return Counted(self.calls + grown, equal + same, len(self._equal) + grown, of_tool + same)

    def tools(self, beginning: str) -> list[str]:
        """Return the tools of complete and growing calls whose names start with `beginning`."""
        return [name for name in {**self._most, **self._growing} if name.startswith(beginning)]

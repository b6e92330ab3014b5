"""Foresees, at the least cost, which call of a healthy answer could be one too many.

Nothing is worked out of an answer with few calls of each tool. Arguments are compared only once a tool has been called
as often as equal calls are too many. Where it says no, that is certain; where it says yes, the engine is asked.
"""

from collections import Counter
from collections.abc import Iterable

from callfuse.detect.siblings import Room
from callfuse.dialects.base import Event, OpenCall, What
from callfuse.model import ToolCall
from callfuse.model.signature import Signature
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.settings import LoopSettings


class _Tool:
    """The complete calls of one tool, of which the first `counted` are counted by signature."""

    __slots__ = ("calls", "counted", "equal", "most")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.counted = 0
        self.equal: Counter[Signature] = Counter()
        self.most = 0


class Foresight:
    """Follows the calls of one choice, by the events of a tracing reader."""

    __slots__ = ("_complete", "_growing", "_made", "_room", "_settings", "_tools")

    def __init__(self, room: Room, settings: LoopSettings) -> None:
        self._room = room
        self._settings = settings
        self._growing: dict[OpenCall, None] = {}
        self._tools: dict[str, _Tool] = {}
        self._complete = 0
        self._made: dict[OpenCall, ToolCall] = {}

    def foresees(self, events: Iterable[Event]) -> bool:
        """Whether a call that these events of a frame open could be one too many."""
        found = False
        for event in events:
            call = event.call
            if call is None:
                continue
            if event.what is What.OPENED:
                self._growing.pop(call, None)
                found = found or self._could_be_too_many(call)
                self._growing[call] = None
            elif event.what is What.CLOSED:
                self._growing.pop(call, None)
                self._complete += 1
                self._tools.setdefault(call.name, _Tool()).calls.append(call)
        return found

    def made(self, call: OpenCall) -> ToolCall:
        """A complete call as a `ToolCall`."""
        known = self._made.get(call)
        if known is None:
            (known,) = apply_ignored_arguments([call.complete()], self._settings)
            self._made[call] = known
        return known

    def _could_be_too_many(self, call: OpenCall) -> bool:
        growing = len(self._growing)
        if self._complete + growing >= self._room.calls:
            return True
        if growing >= self._room.equal:
            return True
        least = self._room.equal - growing  # of equal complete ones
        if call.name and not call.name_grows:
            of_tool = self._tools.get(call.name)
            return of_tool is not None and self._has_equal(of_tool, least)
        return any(self._has_equal(one, least) for name, one in self._tools.items() if name.startswith(call.name))

    def _has_equal(self, tool: _Tool, least: int) -> bool:
        """Whether so many calls of a tool are equal."""
        if len(tool.calls) < least:
            return False
        for call in tool.calls[tool.counted :]:
            signature = self.made(call).signature
            tool.equal[signature] += 1
            tool.most = max(tool.most, tool.equal[signature])
        tool.counted = len(tool.calls)
        return tool.most >= least

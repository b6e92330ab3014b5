"""Predict, at the least cost, which call of a healthy answer could be one too many.

An answer with few calls of each tool costs nothing. Arguments are compared only once a tool has as many calls as the
limit for equal calls: first by a rough key, then, if the key is equal often enough, by their signatures. "No" is
certain; after "yes", the engine decides.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from callfuse.detect.siblings import Room
from callfuse.dialects.base import Event, OpenCall, What
from callfuse.model import ToolCall
from callfuse.model.signature import Signature
from callfuse.policy.ignored import apply_ignored_arguments
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import NotJSON, loads

_ANY: Final = 0
"""The rough key of unknown arguments."""


class _Alike:
    """The complete calls of one tool with one rough key; the first `counted` of them are counted by signature."""

    __slots__ = ("calls", "counted", "equal")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.counted = 0
        self.equal: Counter[Signature] = Counter()


class _Tool:
    """The complete calls of one tool; the first `sorted` of them are in `alike`, by rough key. `most`: an upper bound
    of how many of these are equal."""

    __slots__ = ("alike", "calls", "most", "sorted")

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self.sorted = 0
        self.alike: dict[int, _Alike] = {}
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
        for what, _, call in events:
            if call is None:
                continue
            if what is What.OPENED:
                self._growing.pop(call, None)
                found = found or self._could_be_too_many(call)
                self._growing[call] = None
            elif what is What.CLOSED:
                self._growing.pop(call, None)
                self._complete += 1
                tool = self._tools.get(call.name)
                if tool is None:
                    tool = self._tools[call.name] = _Tool()
                tool.calls.append(call)
        return found

    def made(self, call: OpenCall) -> ToolCall:
        """Return a complete call as a `ToolCall`."""
        known = self._made.get(call)
        if known is None:
            (known,) = apply_ignored_arguments([call.complete()], self._settings)
            self._made[call] = known
        return known

    def _could_be_too_many(self, call: OpenCall) -> bool:
        growing = len(self._growing)
        if self._complete + growing >= self._room.calls or growing >= self._room.equal:
            return True
        least = self._room.equal - growing  # of equal complete ones
        if call.name and not call.name_grows:
            of_tool = self._tools.get(call.name)
            return of_tool is not None and self._has_equal(of_tool, least)
        return any(self._has_equal(one, least) for name, one in self._tools.items() if name.startswith(call.name))

    def _has_equal(self, tool: _Tool, least: int) -> bool:
        """Whether at least `least` complete calls of a tool are equal."""
        if len(tool.calls) < least:
            return False
        for at in range(tool.sorted, len(tool.calls)):
            call = tool.calls[at]
            key = _ANY if self._settings.ignores else _rough_key(call.arguments)
            alike = tool.alike.get(key)
            if alike is None:
                alike = tool.alike[key] = _Alike()
            alike.calls.append(call)
            tool.most = max(tool.most, self._most_new(alike) if len(alike.calls) > 1 else 1)
        tool.sorted = len(tool.calls)
        return tool.most >= least

    def _most_new(self, alike: _Alike) -> int:
        """Count the calls that are not counted yet; return the count of the most frequent one."""
        most = 0
        for at in range(alike.counted, len(alike.calls)):
            signature = self.made(alike.calls[at]).signature
            alike.equal[signature] += 1
            most = max(most, alike.equal[signature])
        alike.counted = len(alike.calls)
        return most


def _rough_key(arguments: Any) -> int:
    """Return a number that is the same for equal arguments, and usually different for others."""
    if type(arguments) is str:
        try:
            arguments = loads(arguments)
        except NotJSON:
            return _ANY
    if type(arguments) is not dict or not arguments:
        return _ANY
    try:
        return hash(frozenset(arguments.items()))
    except TypeError:  # a list or an object in it
        return hash(frozenset(arguments))

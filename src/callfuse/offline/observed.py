"""Read callfuse's own JSON log, and count what callfuse would have stopped if it had not only observed.

    observed = Observed()
    for line in lines:
        observed.take(line)

A loop is a series of findings of one kind in a lane with a growing count, for kinds of a single call also of equal
calls. Memory is bounded: if there are more than `MOST_LOOPS`, the least recently seen loop is forgotten.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from callfuse.observe import events, fields
from callfuse.observe.events import FEEDBACK
from callfuse.offline.feedback import MOST_COUNT, Feedback, Said
from callfuse.policy.rungs import RUNG_NAMES

MOST_LOOPS: Final = 50_000
MOST_FINDINGS: Final = 100_000
"""The most findings that are remembered, in case a rating names them."""
MOST_SESSIONS: Final = 1_000_000
_MOST_NAMES: Final = 1000
"""The most tools and kinds, and causes, that are counted separately."""
_OTHER: Final = "(others)"
_UNGUARDED: Final = frozenset({"no tools", "disabled"})
"""Causes of exchanges without anything to guard."""


@dataclass(slots=True)
class LoopsOfTool:
    """The loops of one tool and kind. `calls`: the number of their findings. `longest`: the highest count; `example`:
    the id of its finding. `withheld`: the number of findings whose call would have been withheld."""

    loops: int = 0
    calls: int = 0
    withheld: int = 0
    longest: int = 0
    example: str = ""


@dataclass(slots=True)
class Observed:
    """The figures from the lines of a log.

    `lines`: the number of callfuse's lines. `first`, `last`: their times. `exchanges`: their number; `unguarded`: those
    that passed unguarded, by cause. `sessions`: all; `looping`: those with a loop that callfuse would have acted on.
    `would`: such loops by the first rung. `acted`: findings that callfuse acted on. `failed_open`: causes of calls that
    passed unjudged.
    """

    lines: int = 0
    first: str = ""
    last: str = ""
    exchanges: int = 0
    unguarded: Counter[str] = field(default_factory=Counter)
    sessions: set[int] = field(default_factory=set)
    looping: set[int] = field(default_factory=set)
    would: Counter[str] = field(default_factory=Counter)
    acted: int = 0
    failed_open: int = 0
    of_tool: dict[tuple[str, str], LoopsOfTool] = field(default_factory=dict)
    rated: dict[str, str] = field(default_factory=dict)
    _counts: OrderedDict[tuple[str, ...], int] = field(default_factory=OrderedDict)
    _found: OrderedDict[str, Said] = field(default_factory=OrderedDict)

    def take(self, line: bytes) -> None:
        """Count a line. Lines of other programs are ignored."""
        try:
            given = orjson.loads(line)
        except ValueError:
            return
        if not isinstance(given, dict) or not _text(given, "logger").startswith("callfuse"):
            return
        self.lines += 1
        time = _text(given, "time")
        self.first, self.last = self.first or time, time or self.last
        if _text(given, "logger") == "callfuse.access":
            self._take_exchange(given)
        elif rating := _text(given, fields.FEEDBACK):
            self.rate(_text(given, fields.FINDING_ID), rating)
        elif _text(given, fields.KIND) and _number(given, fields.COUNT):
            self._take_finding(given)
        elif _text(given, "message").startswith("callfuse failed open"):
            self.failed_open += 1

    def rate(self, finding_id: str, rating: str) -> None:
        """Note the rating of a finding; the last one counts."""
        if finding_id and rating in FEEDBACK and len(self.rated) < MOST_FINDINGS:
            self.rated[finding_id] = rating

    @property
    def loops(self) -> int:
        """The number of loops that callfuse would have acted on."""
        return self.would.total()

    @property
    def withheld(self) -> int:
        """The number of calls that ran and would have been withheld, if the model had continued anyway."""
        return sum(one.withheld for one in self.of_tool.values())

    def feedback(self) -> Feedback:
        """Return the ratings of findings in the log."""
        known = [(self._found[id_], rating) for id_, rating in self.rated.items() if id_ in self._found]
        return Feedback(tuple(Said(rating, one.kind, one.tool, one.count) for one, rating in known))

    def _take_exchange(self, given: Mapping[str, Any]) -> None:
        self.exchanges += 1
        cause = _text(given, fields.CAUSE)
        status = _number(given, fields.STATUS)
        if cause and cause not in _UNGUARDED and status < events.FAILED:
            self.unguarded[cause if cause in self.unguarded or len(self.unguarded) < _MOST_NAMES else _OTHER] += 1
        if (session := _text(given, fields.SESSION)) and len(self.sessions) < MOST_SESSIONS:
            self.sessions.add(hash(session))

    def _take_finding(self, given: Mapping[str, Any]) -> None:
        would, action = _text(given, fields.WOULD), _text(given, fields.ACTION)
        if action not in ("observe", "allow"):
            self.acted += 1
        if would not in RUNG_NAMES:
            return
        kind, tool, count = _text(given, fields.KIND), _text(given, fields.TOOL), _number(given, fields.COUNT)
        id_, session = _text(given, fields.FINDING_ID), _text(given, fields.SESSION)
        if id_ and count <= MOST_COUNT:
            self._found[id_] = Said("", kind, tool, count)
            if len(self._found) > MOST_FINDINGS:
                self._found.popitem(last=False)
        place = (tool, kind) if (tool, kind) in self.of_tool or len(self.of_tool) < _MOST_NAMES else (_OTHER, kind)
        of_tool = self.of_tool.setdefault(place, LoopsOfTool())
        of_tool.calls += 1
        of_tool.withheld += RUNG_NAMES[would].withholds
        if count > of_tool.longest:
            of_tool.longest, of_tool.example = count, id_
        if self._is_new(given, kind, count):
            of_tool.loops += 1
            self.would[would] += 1
            if len(self.looping) < MOST_SESSIONS:
                self.looping.add(hash(session))

    def _is_new(self, given: Mapping[str, Any], kind: str, count: int) -> bool:
        """Whether a finding begins a loop: it is the first of its lane and kind, or its count is lower than the
        previous one. The kinds `repeat...` are tracked by call, and there an equal count begins a loop, too."""
        is_of_call = kind.startswith("repeat")
        key: tuple[str, ...] = (_text(given, fields.SESSION), _text(given, fields.LANE), kind)
        if is_of_call:
            key += (_text(given, fields.TOOL), _text(given, "callfuse.call"))
        before = self._counts.pop(key, None)
        self._counts[key] = count
        if len(self._counts) > MOST_LOOPS:
            self._counts.popitem(last=False)
        return before is None or count < before or (is_of_call and count == before)


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    return value if isinstance(value, str) else ""


def _number(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name, 0)
    return value if type(value) is int else 0

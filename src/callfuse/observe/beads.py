"""The values that the live page shows: sessions, their lanes, and a bead for each call.

`observe/activity.py` fills them from events, and bounds them.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from callfuse.observe.content import finish

MAX_BEADS: Final = 64
"""The most beads of a lane."""
CHANGES_KEPT: Final = 5
"""Changes of a session's settings that are shown."""
LETTERS: Final = 26
"""Signatures of a lane that get different letters; then the letters begin again."""
BEAD: Final = 900
LANE: Final = 1500
SESSION: Final = 3000
"""Estimated bytes of a bead, a lane and a session without their texts."""


class Quoted(NamedTuple):
    """A text that `collected` has cut. `length` characters of it may be shown. `is_cut`: there is more."""

    text: str
    length: int
    is_cut: bool

    def shown(self) -> str:
        """Return the text as it may be shown."""
        return finish(self.text, self.length) + ("…" if self.is_cut else "")


class Place(NamedTuple):
    """The session, model and dialect of an exchange, from its events. `source`: where the session id was found."""

    session: str
    source: str
    model: str
    backend: str
    dialect: str


@dataclass(slots=True, eq=False, weakref_slot=True)
class Bead:
    """One call, or (`tool` is empty) an answer of a blown fuse. `sign`: the number of its signature in the lane.

    `held`: seconds, and how the hold ended. `more`: details that are shown on demand, by name; texts may be `Quoted`.
    `size`: bytes.
    """

    id: int
    time: float
    session: str
    tool: str
    action: str
    call_id: str = ""
    signature: str = ""
    sign: int = 0
    held: tuple[float, str] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    size: int = BEAD

    def brief(self) -> dict[str, Any]:
        """Return what a lane shows of the bead."""
        found = self.more.get("finding")
        return {
            "id": self.id,
            "time": self.time,
            "tool": self.tool,
            "sign": self.sign,
            "action": self.action,
            "held": self.held and round(self.held[0], 3),
            "kind": found["kind"] if found else "",
        }

    def named(self) -> dict[str, Any]:
        """Return the same with the call's id, by which findings refer to it."""
        return {**self.brief(), "call_id": self.call_id}

    def full(self) -> dict[str, Any]:
        """Return everything known about the call. Texts may still be `Quoted`."""
        return {**self.named(), "signature": self.signature, "hold": self.held and self.held[1], **self.more}


@dataclass(slots=True, eq=False)
class LaneBeads:
    """One conversation of a session. `signs`: numbers of its signatures. `holding`: since when bytes wait.

    `held_from`: the first bead that may be held. `unplaced`: a hold that ended before the event of its call.
    """

    name: str
    beads: deque[Bead] = field(default_factory=deque)
    signs: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    holding: float | None = None
    held_from: int = 0
    unplaced: tuple[float, str] | None = None
    blown: bool = False

    def number(self, signature: str) -> int:
        """Return the number of a signature: 0 for the first one that the lane has seen."""
        if signature not in self.signs:
            if len(self.signs) >= 4 * MAX_BEADS:
                del self.signs[next(iter(self.signs))]
            self.signs[signature] = 1 + max(self.signs.values(), default=-1)
        return self.signs[signature] % LETTERS

    def of_call(self, call_id: str, signature: str) -> Bead | None:
        """Return the newest bead of a call. An empty id matches any id, because some clients drop the ids of
        vendors."""
        for bead in reversed(self.beads):
            if bead.signature == signature and (bead.call_id == call_id or not (bead.call_id and call_id)):
                return bead
        return None

    def as_json(self, beads: int, show: Callable[[Bead], dict[str, Any]]) -> dict[str, Any]:
        """Return the lane with its newest beads, oldest first."""
        newest = list(islice(reversed(self.beads), beads))[::-1]
        flags = {"holding": self.holding, "blown": self.blown}
        return {"lane": self.name, "calls": self.calls, **flags, "beads": [show(bead) for bead in newest]}


@dataclass(slots=True, eq=False)
class SessionActivity:
    """One session. `where`: of its last exchange. `version`: of its last change. `changes`: those of its settings."""

    name: str
    where: Place
    began: float
    used: float
    version: int = 0
    size: int = SESSION
    lanes: OrderedDict[str, LaneBeads] = field(default_factory=OrderedDict)
    tools: dict[str, None] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    changes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=CHANGES_KEPT))

    def count(self, name: str, amount: float = 1) -> None:
        """Count something of the session."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def matches(self, words: list[str]) -> bool:
        """Whether each of these words, in lower case, is part of the session's name, model, dialect or a tool."""
        known = " ".join((self.name, self.where.model, self.where.dialect, *self.tools)).lower()
        return all(word in known for word in words)

    def as_json(self, lanes: int, beads: int, show: Callable[[Bead], dict[str, Any]] = Bead.brief) -> dict[str, Any]:
        """Return the session with its newest lanes and their newest beads."""
        where = self.where
        return {
            "session": self.name,
            "source": where.source,
            "model": where.model,
            "provider": where.backend,
            "dialect": where.dialect,
            "began": self.began,
            "used": self.used,
            "version": self.version,
            "counts": dict(self.counts),
            "changes": list(self.changes),
            "more_lanes": max(0, len(self.lanes) - lanes),
            "lanes": [lane.as_json(beads, show) for lane in islice(reversed(self.lanes.values()), lanes)],
        }


def shown_as_json(value: Any) -> Any:
    """Convert a value to one that JSON can hold."""
    if isinstance(value, Quoted):
        return value.shown()
    if isinstance(value, dict):
        return {name: shown_as_json(one) for name, one in value.items()}
    return [shown_as_json(one) for one in value] if isinstance(value, list) else value


def size_of(value: Any) -> int:
    """Estimate the bytes of a value."""
    kind = type(value)
    if kind is Quoted:
        return 100 + int(value.text.__sizeof__())
    if kind is dict:
        return 200 + sum(map(size_of, value.values()))
    if kind is list:
        return 50 + sum(map(size_of, value))
    return int(value.__sizeof__())

"""Keeps what the live page shows: the newest calls of each session, lane by lane, and counts over time.

    sessions (bounded; the one unused for longest goes first) -> lanes -> beads, one for each call

A bead gathers what is told of its call: arguments, hold, finding, what was done, what the model was told, what came
back, what the model did then. What is kept of names, arguments and results is a setting (`admin.content`). Secrets are
starred where a text is shown, because to look for them takes longer than all the rest.
"""

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from time import time
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

from callfuse.model import ToolCall
from callfuse.model.ids import bounded_id
from callfuse.model.secrets import MARGIN, star_secrets
from callfuse.observe import events
from callfuse.observe.events import Event, Where
from callfuse.observe.fields import LONGEST, MOST, text
from callfuse.observe.printable import printable
from callfuse.observe.rates import BUCKET_S, Rates

Content = Literal["none", "names", "short", "full"]

MAX_SESSIONS: Final = 5000
MAX_LANES: Final = 16
"""Lanes of a session."""
MAX_BEADS: Final = 64
"""Beads of a lane."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all sessions together, about."""
MAX_TOOLS: Final = 50
"""Tools of a session by which it is found."""
CHANGES_KEPT: Final = 5
"""Changes of a session's settings that are shown."""
LETTERS: Final = 26
"""Signatures of a lane that are told apart by a letter; then the letters begin again."""
LENGTHS: Final[Mapping[str, int]] = {"none": 0, "names": 0, "short": 200, "full": 4000}
"""Characters that are kept of each text which quotes arguments or results."""
UNNAMED: Final = "a tool"
"""What stands for a tool where no names are shown."""
LONGEST_TOLD: Final = 1000
"""Characters of a text for the model, which quotes a few hundred of arguments and results, where these are kept."""
_BEAD: Final = 900
_SESSION: Final = 3000
"""Bytes of a bead and of a session without their texts."""
CHARS_PER_TOKEN: Final = 4

_RUNG_COUNTS: Final = {"warn": "warned", "block": "blocked"}
"""The count of a rung; those that ask the model again are `steered`."""


class Quoted(NamedTuple):
    """A text that quotes arguments or results, up to `length` characters and a margin in which a secret may end."""

    text: str
    length: int
    is_cut: bool

    def shown(self) -> str:
        """The text as it may be shown."""
        return printable(star_secrets(self.text, self.length)) + ("…" if self.is_cut else "")


@dataclass(slots=True, eq=False, weakref_slot=True)
class Bead:
    """One call, or (`tool` is empty) an answer of a blown fuse. `sign`: the number of its signature in the lane.

    `held`: seconds, and how the hold ended. `more`: what is shown on demand, by name: texts, numbers, lists, objects,
    and `Quoted` among them. `size`: bytes.
    """

    id: int
    time: float
    session: str
    tool: str
    action: str
    call_id: str = ""
    signature: bytes = b""
    sign: int = 0
    held: tuple[float, str] | None = None
    more: dict[str, Any] = field(default_factory=dict)
    size: int = _BEAD

    def brief(self) -> dict[str, Any]:
        """What a lane shows of it."""
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
        """The same with the id by which findings name its call."""
        return {**self.brief(), "call_id": _foreign(self.call_id)}

    def full(self) -> dict[str, Any]:
        """All that is known of it, with texts that are still `Quoted`."""
        return {**self.named(), "signature": self.signature.hex(), "hold": self.held and self.held[1], **self.more}


@dataclass(slots=True, eq=False)
class LaneBeads:
    """One conversation of a session. `signs`: numbers of its signatures. `holding`: bytes wait since this moment.

    `held_from`: the first bead that a hold is of. `unplaced`: a hold that was over before its call was told.
    """

    name: str
    beads: deque[Bead] = field(default_factory=deque)
    signs: dict[bytes, int] = field(default_factory=dict)
    calls: int = 0
    holding: float | None = None
    held_from: int = 0
    unplaced: tuple[float, str] | None = None
    blown: bool = False

    def number(self, signature: bytes) -> int:
        """The number of a signature, from 0, in the order in which the lane has first seen them."""
        if signature not in self.signs:
            if len(self.signs) >= 4 * MAX_BEADS:
                del self.signs[next(iter(self.signs))]
            self.signs[signature] = 1 + max(self.signs.values(), default=-1)
        return self.signs[signature] % LETTERS

    def of_call(self, call_id: str, signature: bytes) -> Bead | None:
        """The newest bead of a call. An empty id fits any: some clients drop the ids of vendors."""
        for bead in reversed(self.beads):
            if bead.signature == signature and (bead.call_id == call_id or not (bead.call_id and call_id)):
                return bead
        return None

    def as_json(self, beads: int, show: Callable[[Bead], dict[str, Any]]) -> dict[str, Any]:
        """The lane with its newest beads, oldest first."""
        newest = list(islice(reversed(self.beads), beads))[::-1]
        flags = {"holding": self.holding, "blown": self.blown}
        return {"lane": self.name, "calls": self.calls, **flags, "beads": [show(bead) for bead in newest]}


@dataclass(slots=True, eq=False)
class SessionActivity:
    """One session. `where`: of its last exchange. `version`: of its last change. `changes`: of its settings."""

    name: str
    where: Where
    began: float
    used: float
    version: int = 0
    size: int = _SESSION
    lanes: OrderedDict[str, LaneBeads] = field(default_factory=OrderedDict)
    tools: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    changes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=CHANGES_KEPT))

    def count(self, name: str) -> None:
        """Count something of the session."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def matches(self, words: list[str]) -> bool:
        """Whether each of these words, in lower case, is part of its name, model, dialect or a tool."""
        known = " ".join((self.name, self.where.model, self.where.dialect, *self.tools)).lower()
        return all(word in known for word in words)

    def as_json(self, lanes: int, beads: int, show: Callable[[Bead], dict[str, Any]] = Bead.brief) -> dict[str, Any]:
        """The session with its newest lanes and their newest beads."""
        where = self.where
        return {
            "session": self.name,
            "source": where.source,
            "model": text(where.model),
            "provider": text(where.backend),
            "dialect": where.dialect,
            "began": self.began,
            "used": self.used,
            "version": self.version,
            "counts": dict(self.counts),
            "changes": list(self.changes),
            "more_lanes": max(0, len(self.lanes) - lanes),
            "lanes": [lane.as_json(beads, show) for lane in islice(reversed(self.lanes.values()), lanes)],
        }


class Activity:
    """The sessions and rates of one process. A sink of events (`observe/bus.py`), to be read from any thread.

    `content`: what is kept of arguments and results. `clock`: Unix seconds.
    """

    def __init__(self, content: Content = "short", clock: Callable[[], float] = time) -> None:
        self.server = secrets.token_hex(4)  # another one after a restart: what a reader has is no longer true
        self._content = content
        self._clock = clock
        self._lock = Lock()
        self._sessions: OrderedDict[str, SessionActivity] = OrderedDict()
        self._found: WeakValueDictionary[str, Bead] = WeakValueDictionary()
        self._rates = Rates()
        self._size = self._version = self._beads = 0

    @property
    def kinds(self) -> frozenset[type[Event]]:
        """The events that it takes."""
        return frozenset(_TAKE)

    def take(self, event: Event) -> None:
        """Keep what an event tells."""
        with self._lock:
            _TAKE[type(event)](self, event)

    # What is shown.

    def page(
        self, page: int, size: int, *, search: str = "", found: bool = False, since: int = 0, lanes: int, beads: int
    ) -> dict[str, Any]:
        """A page of sessions, from 0, the last used one first. `search`: words that a session must have; `found`: only
        sessions with findings. A session that has not changed after the version `since` is only named."""
        words = search.lower().split()
        with self._lock:
            matching = [one for one in reversed(self._sessions.values()) if self._matches(one, words, found=found)]
            shown = matching[page * size : (page + 1) * size]
            return {
                "server": self.server,
                "version": self._version,
                "now": self._clock(),
                "sessions_kept": len(self._sessions),
                "matching": len(matching),
                "sessions": [
                    one.as_json(lanes, beads) if one.version > since else {"session": one.name} for one in shown
                ],
            }

    def session(self, name: str, bead: int | None = None) -> dict[str, Any] | None:
        """One session with all of its lanes, and all that is known of their beads, or of one of these; None if it is
        unknown. Looks for secrets in each text: of long ones that takes a while, and nobody else waits for it."""

        def show(one: Bead) -> dict[str, Any]:
            return one.full() if bead in (None, one.id) else one.named()

        with self._lock:
            found = self._sessions.get(name)
            head = {"server": self.server, "now": self._clock()}
            told = None if found is None else {**head, **found.as_json(MAX_LANES, MAX_BEADS, show)}
        shown: dict[str, Any] | None = _shown(told)
        return shown

    def rates(self) -> dict[str, Any]:
        """Totals since the start, and amounts in buckets of `bucket_s` seconds, the oldest first."""
        with self._lock:
            series = self._rates.series(self._clock())
            return {"server": self.server, "bucket_s": BUCKET_S, "totals": dict(self._rates.totals), "series": series}

    @staticmethod
    def _matches(one: SessionActivity, words: list[str], *, found: bool) -> bool:
        return (not found or "findings" in one.counts) and (not words or one.matches(words))

    # What is kept of each event.

    def _call(self, event: events.CallSeen) -> None:
        session, lane = self._place(event.where)
        self._add_call(session, lane, event.call, event.action)
        self._count("calls", session)

    def _hold_began(self, event: events.HoldBegan) -> None:
        _, lane = self._place(event.where)
        lane.holding, lane.held_from = self._clock(), self._beads + 1

    def _hold_ended(self, event: events.HoldEnded) -> None:
        session, lane = self._place(event.where)
        hold = (event.seconds, event.how)
        mine = next((bead for bead in lane.beads if bead.id >= lane.held_from), None)
        if mine is None:
            lane.unplaced = hold
        else:
            mine.held = hold
        lane.holding = None
        self._count("holds", session)
        self._rates.add("held_s", self._clock(), event.seconds)

    def _finding(self, event: events.FindingSeen) -> None:
        session, lane = self._place(event.where)
        verdict = event.verdict
        bead = self._found.get(event.finding_id) or lane.of_call(bounded_id(verdict.call.id), verdict.call.signature)
        if bead is None:  # of a call that came before this process
            bead = self._add_call(session, lane, verdict.call, event.action)
        bead.action = event.action
        self._found[event.finding_id] = bead
        self._note(bead, finding=self._evidence(event))
        if not event.again:
            self._count("findings", session)
            self._count_saved(event)

    def _action(self, event: events.ActionTaken) -> None:
        session, _ = self._place(event.where)
        bead = self._found.get(event.finding_id)
        if bead is not None:
            self._note(bead, told=self._quote(event.told, LONGEST_TOLD))
        self._count(_RUNG_COUNTS.get(event.rung, "steered"), session)

    def _result(self, event: events.ResultSeen) -> None:
        _, lane = self._place(event.where)
        bead = lane.of_call(event.call_id, event.signature)
        if bead is not None:
            came = {"kind": str(event.outcome.kind), "text": self._quote(event.outcome.text)}
            self._note(bead, outcome=came)

    def _mended(self, event: events.CourseMended) -> None:
        self._place(event.where)
        bead = self._found.get(event.finding_id)
        if bead is not None:
            self._note(bead, then=text(event.result))
        self._count(f"then_{text(event.result)}")

    def _feedback(self, event: events.FeedbackGiven) -> None:
        bead = self._found.get(event.finding_id)
        if bead is not None and (session := self._sessions.get(bead.session)):
            self._note(bead, feedback=text(event.kind))
            self._touch(session)
        self._count("feedback")

    def _exchange(self, event: events.ExchangeEnded) -> None:
        self._count("exchanges")
        if event.where.session != events.NOWHERE.session:
            session, lane = self._place(event.where)
            session.count("exchanges")
            lane.holding = lane.unplaced = None

    def _blown(self, event: events.FuseBlown) -> None:
        session, lane = self._place(event.where)
        self._add(session, lane, Bead(self._next_id(), self._clock(), session.name, "", "blown"))
        lane.blown = True
        self._count("blown", session)

    def _reset(self, event: events.FuseReset) -> None:
        for name in event.sessions:
            if session := self._sessions.get(name) or self._sessions.get(name.rpartition(".")[0]):
                for lane in session.lanes.values():
                    lane.blown = False
                self._touch(session)

    def _settings(self, event: events.SettingsChanged) -> None:
        if event.session in self._sessions or event.by == "command":  # a command may come before anything else
            session = self._session(Where(event.session, "", "", "", "", ""))
            change = {"time": self._clock(), "what": text(event.what), "by": event.by, "is_off": event.is_off}
            session.changes.append(change)

    def _session(self, where: Where) -> SessionActivity:
        """The session of an exchange, new if unknown; it is the last used one now. `where`: perhaps its name alone."""
        now = self._clock()
        session = self._sessions.get(where.session)
        if session is None:
            session = self._sessions[where.session] = SessionActivity(where.session, where, now, now)
            self._size += session.size
            self._drop_oldest()
        session.where, session.used = where if where.dialect else session.where, now
        self._sessions.move_to_end(where.session)
        self._touch(session)
        return session

    def _place(self, where: Where) -> tuple[SessionActivity, LaneBeads]:
        """The session and lane of an exchange, new if unknown; they are the last used ones now."""
        session = self._session(where)
        lane = session.lanes.get(where.lane)
        if lane is None:
            lane = session.lanes[where.lane] = LaneBeads(where.lane)
            if len(session.lanes) > MAX_LANES:
                _, gone = session.lanes.popitem(last=False)
                self._resize(session, -sum(bead.size for bead in gone.beads))
        session.lanes.move_to_end(where.lane)
        return session, lane

    def _touch(self, session: SessionActivity) -> None:
        self._version += 1
        session.version = self._version

    def _next_id(self) -> int:
        self._beads += 1
        return self._beads

    def _add_call(self, session: SessionActivity, lane: LaneBeads, call: ToolCall, action: str) -> Bead:
        tool = self._tool(call.full_name)
        bead = Bead(self._next_id(), self._clock(), session.name, tool, action, bounded_id(call.id), call.signature)
        bead.sign = lane.number(call.signature)
        bead.held, lane.unplaced = lane.unplaced, None
        lane.calls += 1
        lane.blown = False  # the model has been asked again
        session.tools[tool] = None
        if len(session.tools) > MAX_TOOLS:
            del session.tools[next(iter(session.tools))]
        self._add(session, lane, bead)
        if call.has_arguments:
            self._note(bead, arguments=self._quote(call.text) if LENGTHS[self._content] else None)
        return bead

    def _add(self, session: SessionActivity, lane: LaneBeads, bead: Bead) -> None:
        lane.beads.append(bead)
        gone = lane.beads.popleft().size if len(lane.beads) > MAX_BEADS else 0
        self._resize(session, bead.size - gone)

    def _note(self, bead: Bead, **values: Any) -> None:
        """Keep values of a bead; None is left out."""
        bead.more |= {name: value for name, value in values.items() if value is not None}
        size = _BEAD + sum(_size_of(value) for value in bead.more.values())
        grown, bead.size = size - bead.size, size
        if session := self._sessions.get(bead.session):
            self._resize(session, grown)

    def _resize(self, session: SessionActivity, by: int) -> None:
        session.size += by
        self._size += by
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._sessions) > MAX_SESSIONS or (self._size > MAX_BYTES and len(self._sessions) > 1):
            _, gone = self._sessions.popitem(last=False)
            self._size -= gone.size

    def _count(self, name: str, session: SessionActivity | None = None) -> None:
        self._rates.add(name, self._clock())
        if session is not None:
            session.count(name)

    def _count_saved(self, event: events.FindingSeen) -> None:
        """Estimate what a withheld call would have cost: itself, and what it has last returned. The conversation, which
        would have been sent once more, is not counted."""
        if event.verdict.withholds:
            brought = len(event.verdict.call.text) + len(event.verdict.finding.previous or "")
            self._count("saved_calls")
            self._rates.add("saved_tokens", self._clock(), brought // CHARS_PER_TOKEN)

    def _evidence(self, event: events.FindingSeen) -> dict[str, Any]:
        """A finding as it is shown."""
        verdict, found = event.verdict, event.verdict.finding
        return {
            "id": event.finding_id,
            "kind": found.kind,
            "kinds": list(found.kinds or (found.kind,)),
            "count": found.count,
            "limit": found.threshold,
            "window_s": found.window_s,
            "hard": found.hard,
            "confidence": found.confidence,
            "rests_on": [_foreign(id_) for id_ in found.calls[-MOST:]],
            "lap": [self._tool(tool) for tool in found.lap[:MOST]],
            "previous": None if found.previous is None else self._quote(found.previous),
            "seen": "" if self._content == "none" else _foreign(verdict.description),
            "suggestion": verdict.suggestion,
            "step": verdict.step,
            "blocks": event.blocks,
            "arm": event.arm,
        }

    def _tool(self, name: str) -> str:
        """The name of a tool, as far as the setting permits."""
        return UNNAMED if self._content == "none" else text(name)

    def _quote(self, quoted: str, least: int = 0) -> Quoted | None:
        """A text that quotes arguments or results, as far as the setting permits: if any of it, `least` characters."""
        length = LENGTHS[self._content] and max(least, LENGTHS[self._content])
        if not length or not quoted:
            return None
        return Quoted(quoted[: length + MARGIN], length, len(quoted) > length)


def _foreign(value: str) -> Quoted:
    """A text of the call that is always shown, as log lines show it."""
    return Quoted(value[: LONGEST + MARGIN], LONGEST, len(value) > LONGEST)


def _shown(value: Any) -> Any:
    """A value as JSON may hold it."""
    if isinstance(value, Quoted):
        return value.shown()
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    return [_shown(one) for one in value] if isinstance(value, list) else value


def _size_of(value: Any) -> int:
    """The bytes of a value, about."""
    if isinstance(value, Quoted):
        return 100 + int(value.text.__sizeof__())
    if isinstance(value, dict):
        return 200 + sum(_size_of(one) for one in value.values())
    if isinstance(value, list):
        return 50 + sum(_size_of(one) for one in value)
    return int(value.__sizeof__())


def _counts(name: str) -> Callable[[Activity, Any], None]:
    """How an event is taken that is only counted."""
    return lambda activity, _: activity._count(name)


_TAKE: Final[Mapping[type[Event], Callable[[Activity, Any], None]]] = {
    events.CallSeen: Activity._call,
    events.HoldBegan: Activity._hold_began,
    events.HoldEnded: Activity._hold_ended,
    events.FindingSeen: Activity._finding,
    events.ActionTaken: Activity._action,
    events.ResultSeen: Activity._result,
    events.CourseMended: Activity._mended,
    events.FeedbackGiven: Activity._feedback,
    events.ExchangeEnded: Activity._exchange,
    events.FuseBlown: Activity._blown,
    events.FuseReset: Activity._reset,
    events.SettingsChanged: Activity._settings,
    events.FailedOpen: _counts("fail_open"),
    events.NotGuarded: _counts("not_guarded"),
    events.NotWatched: _counts("not_watched"),
}

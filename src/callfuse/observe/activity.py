"""Keeps what the live page shows: the newest calls of each session, lane by lane, and counts over time.

    sessions (bounded; the least recently used is dropped first) -> lanes -> beads, one for each call

A bead collects what events report about its call: arguments, hold, finding, action, the text for the model, the result,
and how the model reacted. All of it is in the fields of events (`observe/fields.py`, `observe/content.py`), so the
events may come from this process, from another one through a shared store, or from the feed of a server:

    activity = Activity()
    activity.take_fields(kept.fields(), number)               # an event of this process (`observe/kept.py`)
    activity.take_fields(json.loads(data), number, is_finished=True)   # an event of another one, from its feed

What is kept of names, arguments and results is a setting (`admin.content`). Secrets are masked when a text is shown,
because searching for them takes longer than everything else. In events of other processes they are masked already.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import takewhile
from threading import Lock
from time import time
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

from callfuse.observe import fields as names
from callfuse.observe.beads import (
    LANE,
    MAX_BEADS,
    Bead,
    LaneBeads,
    Place,
    Quoted,
    SessionActivity,
    shown_as_json,
    size_of,
)
from callfuse.observe.content import length_of
from callfuse.observe.counted import rate_of_course, rate_of_rung
from callfuse.observe.labels import RESULTS, one_of
from callfuse.observe.rates import BUCKET_S, Rates

Content = Literal["none", "names", "short", "full"]

MAX_SESSIONS: Final = 5000
MAX_LANES: Final = 16
"""The most lanes of a session."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all sessions together, approximately."""
MAX_TOOLS: Final = 50
"""The most tools of a session by which a search can find it."""
LATE_S: Final = 2.0
"""How much later than its consequence an event may arrive: processes send their events in batches."""
MOST_EARLY: Final = 100
"""The most facts that are kept because they arrived before their call or finding."""
UNNAMED: Final = "a tool"
"""The name of a tool if names are not shown."""
SKEW_S: Final = 60
"""How far the clock of another process may be ahead."""


class Told(NamedTuple):
    """The fields of one event. `id`: its number in a feed; 0 if it has none. `version`: the version that its changes
    get. `now`: when it happened, in Unix seconds. `is_finished`: its secrets are masked already."""

    fields: Mapping[str, Any]
    id: int
    version: int
    now: float
    is_finished: bool

    def text(self, name: str) -> str:
        """Return a text; empty if there is none."""
        found: str = self.fields.get(name, "")
        return found

    def number(self, name: str) -> float:
        """Return a number; 0 if there is none."""
        found: float = self.fields.get(name, 0)
        return found

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; empty if there is none."""
        return list(self.fields.get(name, ()))

    def place(self) -> Place:
        """Return the session, model and dialect of its exchange."""
        return Place(
            self.text(names.SESSION) or "-",
            self.text(names.SOURCE),
            self.text(names.MODEL),
            self.text(names.PROVIDER),
            self.text(names.DIALECT),
        )


class Activity:
    """The sessions and rates, computed from events. Any thread may read them.

    `content`: what is kept of arguments and results. `clock`: Unix seconds. `server`: names this activity for readers
    that ask for changes; None for a random name. Activities of the same name got the same events. `rates`: reads rates
    that are counted elsewhere; None to count the events taken here.
    """

    def __init__(
        self,
        content: Content = "short",
        clock: Callable[[], float] = time,
        server: str | None = None,
        rates: Callable[[], Rates] | None = None,
    ) -> None:
        self.server = secrets.token_hex(4) if server is None else server
        self._content = content
        self._clock = clock
        self._lock = Lock()
        self._sessions: OrderedDict[str, SessionActivity] = OrderedDict()
        self._found: WeakValueDictionary[str, Bead] = WeakValueDictionary()
        self._early: OrderedDict[tuple[str, ...], tuple[float, dict[str, Any]]] = OrderedDict()
        self._rates = Rates()
        self._read_rates = rates
        self._size = self._version = self._beads = 0

    @property
    def version(self) -> int:
        """The version of its last change: the number of the event, or the count of events if they have no numbers."""
        return self._version

    def take_fields(self, fields: Mapping[str, Any], id_: int = 0, *, is_finished: bool = False) -> None:
        """Keep the fields of an event. Events that are not shown are ignored.

        `id_`: its number in a feed (`ring.number_of`), which makes beads and versions equal in all processes; 0 if it
        has none. `is_finished`: the fields come from another process, with secrets masked.
        """
        told = Told(fields, id_, id_ or self._version + 1, 0, is_finished)
        take = _TAKE.get(told.text(names.EVENT))
        if take is not None:
            here = self._clock()
            now = min(max(0, told.number(names.TIME)) or here, here + SKEW_S)  # rates never go back
            with self._lock:
                take(self, told._replace(version=id_ or self._version + 1, now=now))

    # What is shown.

    def page(
        self, page: int, size: int, *, search: str = "", found: bool = False, since: int = 0, lanes: int, beads: int
    ) -> dict[str, Any]:
        """Return a page of sessions, from 0, the last used one first. `search`: words that a session must have;
        `found`: only sessions with findings. Sessions unchanged since the version `since` have only a name."""
        words = search.lower().split()
        with self._lock:
            kept = list(reversed(self._sessions.values()))
        # Without the lock: searching long names takes longer than an exchange may wait.
        matching = [one for one in kept if self._matches(one, words, found=found)]
        shown = matching[page * size : (page + 1) * size]
        with self._lock:
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
        """Return one session with all of its lanes, and all details of their beads, or of one `bead`; None if it is
        unknown. Searches each text for secrets, which takes a while for long texts, but does not hold the lock."""

        def show(one: Bead) -> dict[str, Any]:
            return one.full() if bead in (None, one.id) else one.named()

        with self._lock:
            found = self._sessions.get(name)
            head = {"server": self.server, "now": self._clock()}
            told = None if found is None else {**head, **found.as_json(MAX_LANES, MAX_BEADS, show)}
        shown: dict[str, Any] | None = shown_as_json(told)
        return shown

    def place_of(self, finding_id: str) -> tuple[str, int] | None:
        """Return the session and the bead of a finding; None if it is not kept."""
        with self._lock:
            bead = self._found.get(finding_id)
            return None if bead is None or bead.session not in self._sessions else (bead.session, bead.id)

    def rates(self) -> dict[str, Any]:
        """Totals since the start, and amounts in buckets of `bucket_s` seconds, the oldest first."""
        rates = self._rates if self._read_rates is None else self._read_rates()
        totals, series = rates.totals(), rates.series(self._clock())
        return {"server": self.server, "bucket_s": BUCKET_S, "totals": totals, "series": series}

    @staticmethod
    def _matches(one: SessionActivity, words: list[str], *, found: bool) -> bool:
        return (not found or "findings" in one.counts) and (not words or one.matches(words))

    # What is kept of each event.

    def _call(self, told: Told) -> None:
        session, lane = self._place(told)
        self._add_call(told, session, lane)
        self._count(told, "calls", session)

    def _hold_began(self, told: Told) -> None:
        _, lane = self._place(told)
        lane.holding, lane.held_from = told.now, (told.id or self._beads) + 1

    def _hold_ended(self, told: Told) -> None:
        session, lane = self._place(told)
        hold = (told.number(names.SECONDS), told.text(names.HOW))
        mine = [*takewhile(lambda bead: bead.id >= lane.held_from, reversed(lane.beads))]
        if mine:
            mine[-1].held = hold
        else:
            lane.unplaced = hold
        lane.holding = None
        self._count(told, "holds", session)
        self._rate(told, "held_s", hold[0])

    def _finding(self, told: Told) -> None:
        session, lane = self._place(told)
        id_ = told.text(names.FINDING_ID)
        bead = self._found.get(id_) or lane.of_call(told.text(names.CALL_ID), told.text(names.SIGNATURE))
        if bead is None:  # of an earlier call
            bead = self._add_call(told, session, lane)
        bead.action = told.text(names.ACTION)
        self._found[id_] = bead
        self._note(bead, finding=self._evidence(told), **self._pop_early(told, (id_,)))
        if not told.fields.get(names.AGAIN):
            self._count(told, "findings", session)
        for rate, name in names.OF_SAVED.items():
            if name in told.fields:
                self._rate(told, rate, told.number(name))

    def _loop(self, told: Told) -> None:
        session, _ = self._place(told)
        self._count(told, "loops", session)

    def _action(self, told: Told) -> None:
        session, _ = self._place(told)
        bead = self._found.get(told.text(names.FINDING_ID))
        if bead is not None:
            self._note(bead, told=self._quote(told, names.TOLD))
        self._count(told, rate_of_rung(told.text(names.ACTION)), session)

    def _result(self, told: Told) -> None:
        _, lane = self._place(told)
        bead = lane.of_call(told.text(names.CALL_ID), told.text(names.SIGNATURE))
        came = {"kind": told.text(names.CALL_OUTCOME), "text": self._quote(told, names.RESULT)}
        if bead is not None and not ("outcome" in bead.more and bead.call_id):
            self._note(bead, outcome=came)
        else:  # the event of its call comes later
            self._keep_early(told, _call_of(told), outcome=came)

    def _mended(self, told: Told) -> None:
        self._place(told)
        id_, result = told.text(names.FINDING_ID), one_of(RESULTS, told.text(names.MENDED))
        bead = self._found.get(id_)
        if bead is not None:
            self._note(bead, then=result)
        else:
            self._keep_early(told, (id_,), then=result)
        self._count(told, rate_of_course(result))

    def _feedback(self, told: Told) -> None:
        bead = self._found.get(told.text(names.FINDING_ID))
        if bead is not None and (session := self._sessions.get(bead.session)):
            self._note(bead, feedback=told.text(names.FEEDBACK))
            self._touch(told, session)
        self._count(told, "feedback")

    def _exchange(self, told: Told) -> None:
        self._count(told, "exchanges")
        if names.SESSION in told.fields:
            session, lane = self._place(told)
            session.count("exchanges")
            lane.holding = lane.unplaced = None

    def _spent(self, told: Told) -> None:
        session, _ = self._place(told)
        tokens = told.number(names.INPUT_TOKENS) + told.number(names.OUTPUT_TOKENS)
        estimated, cost = told.number(names.ESTIMATED_TOKENS), told.number(names.COST)
        for name, amount in (("tokens", tokens), ("estimated_tokens", estimated), ("cost", cost)):
            if amount:
                session.count(name, amount)
                self._rate(told, name, amount)

    def _blown(self, told: Told) -> None:
        session, lane = self._place(told)
        self._add(session, lane, Bead(self._next_id(told), told.now, session.name, "", "blown"))
        lane.blown = True
        self._count(told, "blown", session)

    def _reset(self, told: Told) -> None:
        for name in told.texts(names.SESSIONS):
            if session := self._sessions.get(name) or self._sessions.get(name.rpartition(".")[0]):
                for lane in session.lanes.values():
                    lane.blown = False
                self._touch(told, session)

    def _settings(self, told: Told) -> None:
        by = told.text(names.BY)
        if told.text(names.SESSION) in self._sessions or by == "command":  # may come before all other events
            is_off = bool(told.fields.get(names.IS_OFF))
            change = {"time": told.now, "what": told.text(names.WHAT), "by": by, "is_off": is_off}
            self._session(told).changes.append(change)

    def _session(self, told: Told) -> SessionActivity:
        """Return the session of an event, new if unknown, and mark it as the most recently used."""
        where = told.place()
        session = self._sessions.get(where.session)
        if session is None:
            session = self._sessions[where.session] = SessionActivity(where.session, where, told.now, told.now)
            self._size += session.size
            self._drop_oldest()
        session.where, session.used = where if where.dialect else session.where, max(session.used, told.now)
        self._sessions.move_to_end(where.session)
        self._touch(told, session)
        return session

    def _place(self, told: Told) -> tuple[SessionActivity, LaneBeads]:
        """Return the session and lane of an exchange, new if unknown, and mark them as the most recently used."""
        session = self._session(told)
        name = told.text(names.LANE)
        lane = session.lanes.get(name)
        if lane is None:
            lane = session.lanes[name] = LaneBeads(name)
            self._resize(session, LANE)
            if len(session.lanes) > MAX_LANES:
                _, gone = session.lanes.popitem(last=False)
                self._resize(session, -LANE - sum(bead.size for bead in gone.beads))
        session.lanes.move_to_end(name)
        return session, lane

    def _touch(self, told: Told, session: SessionActivity) -> None:
        self._version = session.version = told.version

    def _next_id(self, told: Told) -> int:
        self._beads += 1
        return told.id or self._beads

    def _add_call(self, told: Told, session: SessionActivity, lane: LaneBeads) -> Bead:
        tool = told.text(names.TOOL) or UNNAMED
        call_id, signature = told.text(names.CALL_ID), told.text(names.SIGNATURE)
        bead = Bead(self._next_id(told), told.now, session.name, tool, told.text(names.ACTION), call_id, signature)
        bead.sign = lane.number(signature)
        bead.held, lane.unplaced = lane.unplaced, None
        lane.calls += 1
        lane.blown = False  # the model has been asked again
        session.tools[tool] = None
        if len(session.tools) > MAX_TOOLS:
            del session.tools[next(iter(session.tools))]
        self._add(session, lane, bead)
        self._note(bead, arguments=self._quote(told, names.ARGUMENTS), **self._pop_early(told, _call_of(told)))
        return bead

    def _add(self, session: SessionActivity, lane: LaneBeads, bead: Bead) -> None:
        bead.size += size_of(bead.tool) + size_of(bead.call_id)
        at = len(lane.beads)
        while at and 0 < lane.beads[at - 1].time - bead.time < LATE_S:
            at -= 1
        lane.beads.insert(at, bead)
        gone = lane.beads.popleft().size if len(lane.beads) > MAX_BEADS else 0
        self._resize(session, bead.size - gone)

    def _note(self, bead: Bead, **values: Any) -> None:
        """Keep values of a bead, except None."""
        known = {name: value for name, value in values.items() if value is not None}
        replaced = [bead.more[name] for name in known if name in bead.more]
        grown = sum(map(size_of, known.values())) - sum(map(size_of, replaced))
        bead.more |= known
        bead.size += grown
        if session := self._sessions.get(bead.session):
            self._resize(session, grown)

    def _keep_early(self, told: Told, key: tuple[str, ...], **values: Any) -> None:
        """Keep a fact that arrived before the call or finding that it belongs to."""
        self._early[key] = told.now, values
        if len(self._early) > MOST_EARLY:
            self._early.popitem(last=False)

    def _pop_early(self, told: Told, key: tuple[str, ...]) -> dict[str, Any]:
        """Return the facts about a call or a finding that arrived just before it."""
        then, values = self._early.pop(key, (0.0, {}))
        return values if abs(then - told.now) < LATE_S else {}

    def _resize(self, session: SessionActivity, by: int) -> None:
        session.size += by
        self._size += by
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._sessions) > MAX_SESSIONS or (self._size > MAX_BYTES and len(self._sessions) > 1):
            _, gone = self._sessions.popitem(last=False)
            self._size -= gone.size

    def _count(self, told: Told, name: str, session: SessionActivity | None = None) -> None:
        self._rate(told, name)
        if session is not None:
            session.count(name)

    def _rate(self, told: Told, name: str, amount: float = 1) -> None:
        if self._read_rates is None:
            self._rates.add(name, told.now, amount)

    def _evidence(self, told: Told) -> dict[str, Any]:
        """Return a finding as it is shown."""
        kind = told.text(names.KIND)
        return {
            "id": told.text(names.FINDING_ID),
            "kind": kind,
            "kinds": told.texts(names.KINDS) or [kind],
            "url": told.text(names.URL),
            "count": told.number(names.COUNT),
            "limit": told.number(names.THRESHOLD),
            "window_s": told.number(names.WINDOW),
            "hard": bool(told.fields.get(names.HARD)),
            "confidence": told.number(names.CONFIDENCE),
            "rests_on": told.texts(names.RESTS_ON),
            "lap": told.texts(names.PATTERN),
            "previous": self._quote(told, names.RESULT),
            "seen": self._quote(told, names.DESCRIPTION) or "",
            "suggestion": told.text(names.SUGGESTION),
            "step": told.number(names.STEP),
            "blocks": told.number(names.BLOCKS),
            "arm": told.text(names.ARM),
            "would": told.text(names.WOULD),
        }

    def _quote(self, told: Told, name: str) -> Quoted | str | None:
        """Return a quoted foreign text, cut as the setting requires; None if there is none."""
        found = told.text(name)
        if not found:
            return None
        is_cut = name in told.texts(names.CUT)
        if told.is_finished:
            return found + ("…" if is_cut else "")
        return Quoted(found, length_of(name, self._content), is_cut)


def _call_of(told: Told) -> tuple[str, ...]:
    """Return what identifies the call of an event, or the call of a result."""
    return tuple(map(told.text, (names.SESSION, names.LANE, names.CALL_ID, names.SIGNATURE)))


def _counts(name: str) -> Callable[[Activity, Told], None]:
    """Make a handler for an event that is only counted."""
    return lambda activity, told: activity._count(told, name)


_TAKE: Final[Mapping[str, Callable[[Activity, Told], None]]] = {
    "call": Activity._call,
    "hold_began": Activity._hold_began,
    "hold": Activity._hold_ended,
    "finding": Activity._finding,
    "loop": Activity._loop,
    "action": Activity._action,
    "result": Activity._result,
    "mended": Activity._mended,
    "feedback": Activity._feedback,
    "exchange": Activity._exchange,
    "spent": Activity._spent,
    "blown": Activity._blown,
    "reset": Activity._reset,
    "settings": Activity._settings,
    "fail_open": _counts("fail_open"),
    "not_guarded": _counts("not_guarded"),
    "not_watched": _counts("not_watched"),
}
"""The handler of each event, by the event's name."""

"""Keeps events as they are until somebody reads them.

    keeper = EventKeeper("short")
    kept = keeper.keep(event)   # when it happens: a few microseconds
    kept.unfinished()           # when it is read: the fields of `collected`, with its time and what it saved
    kept.data                   # the same as JSON in one line, secrets masked

Most events are never read, and making their fields is the slowest step. Kept events are bounded: arguments, results and
texts for the model are cut to the length that the setting `admin.content` shows. An event with any other long text is
kept as its fields, which are cut, too.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from callfuse.model import ToolCall
from callfuse.model.secrets import MARGIN
from callfuse.observe import events
from callfuse.observe.content import LENGTHS, collected, finished, length_of
from callfuse.observe.events import Event, FindingSeen
from callfuse.observe.fields import OF_SAVED, TIME, TOLD, Value
from callfuse.observe.ring import FeedEvent
from callfuse.observe.saved import Saved, amounts_of
from callfuse.wire.jsontext import dumps

WEIGHT: Final = 600
"""Estimated bytes of an event in memory without its texts."""
MOST_NAMES: Final = 4000
"""Events with more bytes of texts are kept as their fields. Arguments and texts for the model are cut anyway."""
Light = tuple[Event, int]
"""A kept event, and its bytes."""


class KeptEvent(FeedEvent):
    """An event, or its fields if it has long texts. `size`: approximate bytes in memory. `time`: when it happened, in
    Unix seconds. `content`: the setting. `saved`: what it saved, by the estimate of `observe/saved.py`."""

    __slots__ = ("_data", "content", "event", "saved", "time")

    def __init__(self, event: Event | dict[str, Value], size: int, time: float, content: str) -> None:
        super().__init__((0, 0), size)  # a ring sets its id
        self._data: bytes | None = None
        self.event = event
        self.time = time
        self.content = content
        self.saved: Mapping[str, float] | None = None

    def unfinished(self) -> dict[str, Value]:
        """Return the fields of the event, before `finished`."""
        fields = collected(self.event, self.content) if isinstance(self.event, Event) else dict(self.event)
        fields[TIME] = round(self.time, 3)
        return fields if not self.saved else fields | {OF_SAVED[name]: value for name, value in self.saved.items()}

    @property
    def data(self) -> bytes:
        """The fields of the event as JSON, serialized when they are first read."""
        if self._data is None:
            self._data = dumps(finished(self.unfinished(), self.content))
        return self._data


class EventKeeper:
    """Keeps one event after another, from any thread. `content`: the setting. `now` returns the time of `clock`."""

    def __init__(self, content: str, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self._content = content
        self._saved = Saved()
        self._lock = Lock()

    def keep(self, event: Event) -> KeptEvent:
        """Return an event that happens now in its kept form."""
        lighten = _LIGHTEN.get(type(event))
        light = lighten(event, self._content) if lighten is not None else None
        what, size = light or _fields_of(event, self._content)
        kept = KeptEvent(what, size, self.now(), self._content)
        if isinstance(event, FindingSeen) and event.verdict.withholds:
            with self._lock:
                kept.saved = amounts_of(event, self._saved.by(event))
        return kept


def _fields_of(event: Event, content: str) -> tuple[dict[str, Value], int]:
    fields = collected(event, content)
    lists = [one for value in fields.values() if isinstance(value, tuple) for one in value]
    return fields, WEIGHT + _bytes_of(*lists, *[value for value in fields.values() if isinstance(value, str)])


def _bytes_of(*texts: str) -> int:
    return sum(map(str.__sizeof__, texts))


def _light_call(call: ToolCall, content: str) -> ToolCall:
    """Return the call with only as much of its arguments as is shown."""
    if not call.has_arguments:
        return call
    most = LENGTHS.get(content, 0)
    arguments = call.text if most else ""
    if arguments is call.arguments and len(arguments) <= most + MARGIN and call.exact is None:
        return call
    cut = arguments[: most + MARGIN]
    return ToolCall(call.id, call.name, cut, call.namespace, call.kind, signature=call.signature)


def _light_seen(event: events.CallSeen, content: str) -> Light | None:
    names = _bytes_of(*event.where, event.call.full_name, event.call.id)
    if names > MOST_NAMES:
        return None
    call = _light_call(event.call, content)
    size = WEIGHT + names + _bytes_of(call.text)
    return event if call is event.call else replace(event, call=call), size


def _light_finding(event: FindingSeen, content: str) -> Light | None:
    verdict = event.verdict
    found, call = verdict.finding, verdict.call
    names = _bytes_of(*event.where, call.full_name, call.id, found.tool, *found.calls, *found.pattern, *found.kinds)
    names += _bytes_of(found.previous or "")
    if names > MOST_NAMES:
        return None
    call = _light_call(call, content)
    size = WEIGHT + names + _bytes_of(call.text)
    return event if call is verdict.call else replace(event, verdict=replace(verdict, call=call)), size


def _light_action(event: events.ActionTaken, content: str) -> Light | None:
    names = _bytes_of(*event.where)
    if names > MOST_NAMES:
        return None
    most = length_of(TOLD, content)
    told = event.told[: most and most + MARGIN]
    size = WEIGHT + names + _bytes_of(told)
    return event if len(told) == len(event.told) else replace(event, told=told), size


def _light_result(event: events.ResultSeen, _: str) -> Light | None:
    return _if_short(event, (*event.where, event.call_id, event.outcome.text))


def _light_exchange(event: events.ExchangeEnded, _: str) -> Light | None:
    return _if_short(event, (*event.where, event.cause, event.route))


def _light_placed(event: Any, _: str) -> Light | None:
    return _if_short(event, event.where)


def _if_short(event: Event, texts: tuple[str, ...]) -> Light | None:
    size = sum(map(str.__sizeof__, texts))
    return (event, WEIGHT + size) if size <= MOST_NAMES else None


_LIGHTEN: Final[Mapping[type[Event], Callable[[Any, str], Light | None]]] = {
    events.CallSeen: _light_seen,
    FindingSeen: _light_finding,
    events.ActionTaken: _light_action,
    events.ResultSeen: _light_result,
    events.ExchangeEnded: _light_exchange,
    events.TokensSpent: _light_placed,
    events.HoldBegan: _light_placed,
    events.HoldEnded: _light_placed,
    events.Decided: _light_placed,
    events.CourseMended: _light_placed,
}
"""Functions that shorten the events of ordinary exchanges, by the setting `admin.content`. If one returns None, the
event is kept as its fields, as are all other kinds, which are rare."""

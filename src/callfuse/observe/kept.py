"""Keeps events as they are until somebody reads them.

    keeper = Keeper("short")
    kept = keeper.keep(event)   # where it happens: a few microseconds
    kept.fields()               # where it is read: the fields of `collected`, with its time and what it saved
    kept.data()                 # the same as JSON in one line, secrets starred

Most events are never read, and to make their fields takes longer than all else that is done about them. What a kept
event holds is bounded: arguments, results and texts for the model are cut to what the setting `admin.content` shows. An
event with another text that is long is kept as its fields, which are cut, too.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final, NamedTuple

from callfuse.model import ToolCall
from callfuse.model.secrets import MARGIN
from callfuse.observe import events
from callfuse.observe.content import LENGTHS, QUOTING, collected, finished, length_of
from callfuse.observe.events import Event, FindingSeen, Where
from callfuse.observe.fields import LONGEST_WHERE, MOST, SAVED_CALLS, SAVED_TOKENS, TIME, TOLD, Value
from callfuse.observe.saved import Saved, tokens_of
from callfuse.wire.jsontext import dumps

WEIGHT: Final = 1024
"""Bytes that an event takes in memory, without arguments, result and text for the model."""
LONGEST_NAMES: Final = 1000
"""Characters of a call's name and id, or of what a finding rests on, with which an event is kept as it is."""
Light = tuple[Event, int]
"""An event as it is kept, and its bytes."""


class Kept(NamedTuple):
    """An event, or the fields of one with long texts. `size`: the bytes that it takes in memory, about. `time`: when it
    happened, in Unix seconds. `content`: the setting. `saved`, `tokens`: what it saved, by the
    estimate of `observe/saved.py`."""

    event: Event | dict[str, Value]
    size: int
    time: float
    content: str
    saved: float = 0.0
    tokens: int = 0

    def fields(self) -> dict[str, Value]:
        """The fields of the event, to be finished by `finished`."""
        fields = collected(self.event, self.content) if isinstance(self.event, Event) else dict(self.event)
        fields[TIME] = round(self.time, 3)
        if self.saved:
            fields[SAVED_CALLS] = self.saved
            fields[SAVED_TOKENS] = self.tokens
        return fields

    def data(self) -> bytes:
        """The fields as JSON in one line, as they may be shown."""
        return dumps(finished(self.fields(), self.content))


class Keeper:
    """Keeps one event after another, from any thread. `content`: the setting. `now`: the time, as `clock` tells it."""

    def __init__(self, content: str, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self._content = content
        self._saved = Saved()
        self._lock = Lock()

    def keep(self, event: Event) -> Kept:
        """Keep an event that happens now."""
        now = self.now()
        lighten = _LIGHTEN.get(type(event))
        light = lighten(event, self._content) if lighten is not None else None
        what, size = light or _fields_of(event, self._content)
        if isinstance(event, FindingSeen) and event.verdict.withholds:
            with self._lock:
                saved = self._saved.by(event)
            tokens = tokens_of(event.verdict, saved) if saved else 0
            return Kept(what, size, now, self._content, round(saved, 3), tokens)
        return Kept(what, size, now, self._content)


def _fields_of(event: Event, content: str) -> tuple[dict[str, Value], int]:
    fields = collected(event, content)
    return fields, WEIGHT + sum(len(str(fields.get(name, ""))) for name in QUOTING)


def _light_call(call: ToolCall, content: str) -> ToolCall | None:
    """The call with as much of its arguments as is shown; None if it has a long name or id."""
    if len(call.full_name) + len(call.id) > LONGEST_NAMES:
        return None
    if not call.has_arguments:
        return call
    most = LENGTHS.get(content, 0)
    arguments = call.text if most else ""
    if arguments is call.arguments and len(arguments) <= most + MARGIN and call.exact is None:
        return call
    cut = arguments[: most + MARGIN]
    return ToolCall(call.id, call.name, cut, call.namespace, call.kind, signature=call.signature)


def _light_seen(event: events.CallSeen, content: str) -> Light | None:
    call = _light_call(event.call, content)
    if call is None or not _is_short(event.where):
        return None
    return event if call is event.call else replace(event, call=call), WEIGHT + len(call.text)


def _light_finding(event: FindingSeen, content: str) -> Light | None:
    verdict = event.verdict
    found, call = verdict.finding, _light_call(verdict.call, content)
    names = sum(map(len, (found.tool, *found.calls, *found.pattern)))
    is_short = len(found.calls) <= MOST and len(found.previous or "") + names <= LONGEST_NAMES
    if call is None or not is_short or not _is_short(event.where):
        return None
    size = WEIGHT + names + len(call.text) + len(found.previous or "")
    return event if call is verdict.call else replace(event, verdict=replace(verdict, call=call)), size


def _light_action(event: events.ActionTaken, content: str) -> Light | None:
    if not _is_short(event.where):
        return None
    most = length_of(TOLD, content)
    told = event.told[: most and most + MARGIN]
    return event if len(told) == len(event.told) else replace(event, told=told), WEIGHT + len(told)


def _light_result(event: events.ResultSeen, _: str) -> Light | None:
    text = event.outcome.text
    return (event, WEIGHT + len(text)) if _is_short(event.where, event.call_id, text) else None


def _light_exchange(event: events.ExchangeEnded, _: str) -> Light | None:
    return (event, WEIGHT) if _is_short(event.where, event.cause) else None


def _light_placed(event: Any, _: str) -> Light | None:
    return (event, WEIGHT) if _is_short(event.where) else None


def _is_short(where: Where, *texts: str) -> bool:
    return sum(map(len, (*where, *texts))) <= LONGEST_WHERE


_LIGHTEN: Final[Mapping[type[Event], Callable[[Any, str], Light | None]]] = {
    events.CallSeen: _light_seen,
    FindingSeen: _light_finding,
    events.ActionTaken: _light_action,
    events.ResultSeen: _light_result,
    events.ExchangeEnded: _light_exchange,
    events.HoldBegan: _light_placed,
    events.HoldEnded: _light_placed,
    events.Decided: _light_placed,
    events.CourseMended: _light_placed,
}
"""What is kept of the events of ordinary exchanges, by the setting `admin.content`; None: their fields. Those of other
events are made at once: they are rare."""

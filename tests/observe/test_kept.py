"""What is kept of events until somebody reads them: as they are where they are short, never a long text."""

import gc
import tracemalloc
from types import FunctionType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.model import Finding, ToolCall
from callfuse.model.outcomes import outcome_of
from callfuse.observe import events, kept
from callfuse.observe.activity import Content
from callfuse.observe.content import collected
from callfuse.observe.counts import Counts
from callfuse.observe.events import Event, Where
from callfuse.observe.feed import Feed
from callfuse.observe.fields import SAVED_CALLS, SAVED_COST, SAVED_TOKENS, TIME
from callfuse.observe.kept import EventKeeper
from callfuse.observe.view import View
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung

WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")
LONG = "y" * 50_000
MOST = 3 * 4300 + 4000
"""Characters of three texts with the setting `full`, and of all names."""


def events_of(text: str) -> list[Event]:
    """Events of one exchange whose foreign texts are this one, each in its own place."""
    where = WHERE._replace(model=text)
    call = ToolCall(text, text, text)
    native = ToolCall("c", "search", {"a": text}, exact=lambda: {"a": text})
    found = Finding("repeat", text, call.signature, 3, 3, 300.0, False, calls=(text,), previous=text)
    outcome = outcome_of(text)
    assert outcome is not None
    return [
        events.CallSeen(WHERE, ToolCall("c", "search", text), "none"),
        events.CallSeen(WHERE, native, "none"),
        events.CallSeen(WHERE, call, "none"),
        events.CallSeen(where, ToolCall("c", "search", "{}"), "none"),
        events.FindingSeen(WHERE, Verdict(ToolCall("c", "search", text), found, Rung.STEER, 1, finding_id="f1")),
        events.FindingSeen(where, Verdict(call, found, Rung.BLOCK, 1, finding_id="f2")),
        events.ActionTaken(where, "f1", "steer", True, told=text),
        events.ActionTaken(WHERE, "f1", "steer", True, told=text),
        events.ResultSeen(WHERE, text, call.signature, outcome),
        events.HoldBegan(where),
        events.HoldEnded(where, 1.0, 4, "released"),
        events.Decided(where, 1.0),
        events.CourseMended(where, "f1", "same"),
        events.ExchangeEnded(WHERE, "passed", "complete", text, 200, 1, "", 1.0, 0.0),
        events.ExchangeEnded(where, "guarded", "complete", "", 200, 1, "", 1.0, 0.0),
        events.SettingsChanged("abc", text, False),
        events.FailedOpen(text),
        events.FuseReset((text,) * 30),
    ]


def length_kept_by(value: object) -> int:
    """The characters of all texts that a value keeps alive, through whatever it refers to."""
    seen, todo, length = set[int](), [value], 0
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes):
            length += len(one)
        elif isinstance(one, FunctionType):
            todo += one.__closure__ or ()
        else:
            todo += gc.get_referents(one)
    return length


TEXTS = st.sampled_from(["", "search", "a\u202e\ud800", "z" * 700, "y" * 6000, LONG])


@given(st.sampled_from(get_args(Content)), TEXTS)
def test_fields_are_the_same_later(content: str, text: str) -> None:
    """As if they were made where the event happens; of a finding with what it saved."""
    keeper = EventKeeper(content, lambda: 1000.0)
    for event in events_of(text):
        later = keeper.keep(event).unfinished()
        assert later.pop(TIME) == 1000.0
        assert ((SAVED_CALLS in later), SAVED_TOKENS in later) == (later.pop(SAVED_CALLS, 0) != 0,) * 2
        later.pop(SAVED_TOKENS, None)
        later.pop(SAVED_COST, None)
        assert later == collected(event, content)


@pytest.mark.parametrize("content", get_args(Content))
def test_nothing_long_is_kept(content: Content) -> None:
    """Neither a text of the event nor what only its call could be read from again; what is kept counts for its size."""
    for event in events_of(LONG):
        one = EventKeeper(content).keep(event)
        length = length_kept_by(one)
        assert length <= MOST
        assert length <= one.size + 1000  # the names of fields, which all share


def test_who_reads_nothing_pays_for_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of an ordinary exchange are kept as they are, until a page or a reader asks."""
    made: list[str] = []

    def noted(event: Event, content: str) -> dict[str, Any]:
        made.append(event.name)
        return collected(event, content)

    monkeypatch.setattr(kept, "collected", noted)
    feed = Feed()
    View(feed, Counts())
    ordinary = [one for one in events_of("x" * 200) if type(one) in kept._LIGHTEN]
    for event in ordinary:
        feed.take(event)
    assert made == []
    for entry in feed._ring:
        assert entry.data
    assert len(made) == len(ordinary)


def test_bytes_are_counted_about_as_they_are() -> None:
    """Of many events with names and arguments of their own, in letters that take four bytes each, too."""
    for letters in ("", "\U0001f600" * 180):
        feed = Feed(content="full")
        tracemalloc.start()
        try:
            for number in range(500):
                name = f"{number}{letters}"
                where = WHERE._replace(session=f"s{name}", lane=f"l{name}", model=f"m{name}")
                feed.take(events.CallSeen(where, ToolCall(f"c{name}", f"t{name}", f'{{"a": "{name}"}}'), "none"))
            real, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert real < 1.2 * feed._ring.size + 50_000

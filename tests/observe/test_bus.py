"""The bus gives each event to each sink that takes it, and no sink can harm another, or the exchange."""

import logging
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from callfuse.model.outcomes import outcome_of
from callfuse.observe.bus import Bus
from callfuse.observe.counts import MAX_KEYS, Counts
from callfuse.observe.events import NOWHERE, Event, FailedOpen, FuseBlown, NotGuarded, Refused, ResultSeen
from callfuse.observe.log import MAX_CAUSES, LogSink
from tests.support.observing import Observed

BLOWN = FuseBlown(NOWHERE, 5)


class Broken:
    """A sink that fails each time, with words that belong in no log."""

    def take(self, event: Event) -> None:
        """Fail."""
        raise ValueError(f"secret words of {event!r}")


class Choosy(Observed):
    """A sink that takes one kind."""

    kinds = frozenset({Refused})


def test_every_sink_gets_every_event_in_order() -> None:
    """Those that are there, and those that come later from then on."""
    first, second, late = Observed(), Observed(), Observed()
    bus = Bus(first, second)
    bus.emit(BLOWN)
    bus.add(late)
    bus.emit(Refused("websocket"))
    assert first.names() == second.names() == ["blown", "refused"]
    assert late.names() == ["refused"]


def test_a_sink_may_name_its_kinds() -> None:
    """Then it gets no others, and nobody need make events that no sink takes."""
    choosy = Choosy()
    bus = Bus(choosy)
    bus.emit(BLOWN)
    bus.emit(Refused("websocket"))
    assert choosy.names() == ["refused"]
    assert bus.wants(Refused)
    assert not bus.wants(FuseBlown)
    bus.add(Observed())
    assert bus.wants(FuseBlown)


def test_an_event_on_demand_is_for_those_who_name_it() -> None:
    """To a sink of all events it is not told."""

    class Demanding(Observed):
        kinds = frozenset({ResultSeen})

    everything, demanding = Observed(), Demanding()
    bus = Bus(everything)
    assert not bus.wants(ResultSeen)
    bus.add(demanding)
    outcome = outcome_of("nothing found")
    assert outcome is not None
    bus.emit(ResultSeen(NOWHERE, "call_1", b"", outcome))
    assert (everything.names(), demanding.names()) == ([], ["result"])


def test_a_sink_that_is_removed_gets_nothing_more() -> None:
    """Nor does removing it twice matter."""
    sink, other = Observed(), Observed()
    bus = Bus(sink, other)
    bus.emit(BLOWN)
    bus.remove(sink)
    bus.remove(sink)
    bus.emit(BLOWN)
    assert (len(sink.events), len(other.events)) == (1, 2)


def test_a_failing_sink_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The others get their events; it is logged once, without what its error quotes."""
    before, after = Observed(), Observed()
    bus = Bus(before, Broken(), after)
    for _ in range(3):
        bus.emit(BLOWN)
    assert len(before.events) == len(after.events) == 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "ValueError of Broken at 'blown'" in record.getMessage()
    assert "secret" not in caplog.text


def test_each_sink_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also one that comes after another has gone, which may have had its place in memory; one that has gone is not
    kept."""
    bus = Bus()
    for _ in range(20):
        sink = Broken()
        gone = weakref.ref(sink)
        bus.add(sink)
        bus.emit(BLOWN)
        bus.remove(sink)
        del sink
        assert gone() is None
    assert len(caplog.records) == 20


def test_a_failing_sink_and_a_failing_log_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the line about it cannot be written."""

    def fail(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(logging.getLogger("callfuse"), "error", fail)
    Bus(Broken()).emit(BLOWN)


def test_it_may_be_used_from_any_thread() -> None:
    """No event is lost while sinks come and go."""
    sink = Observed()
    bus = Bus(sink)

    def emit(_: int) -> None:
        other = Observed()
        for _ in range(200):
            bus.add(other)
            bus.emit(BLOWN)
            bus.remove(other)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(emit, range(4)))
    assert len(sink.events) == 800


def test_logs_and_counts_hang_on_the_same_event(caplog: pytest.LogCaptureFixture) -> None:
    """The first of each cause has a line; each is counted."""
    counts = Counts()
    bus = Bus(counts, LogSink())
    for cause in ("request encoding", "request encoding", "request values"):
        bus.emit(NotGuarded(cause))
    for detail in "ab":
        bus.emit(FailedOpen(f"KeyError while keeping: {detail}", "session-1"))
    assert str(counts) == (
        "fail_open: 2 (KeyError while keeping 2)\nnot_guarded: 3 (request encoding 2, request values 1)"
    )
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(": ")[2] for line in lines] == ["request encoding", "request values", "a"]


def test_causes_from_outside_fill_no_memory() -> None:
    """Of ten thousand, the log and the counts keep as many apart as they say."""
    counts, log = Counts(), LogSink()
    logging.getLogger("callfuse").setLevel(logging.CRITICAL)
    bus = Bus(counts, log)
    for number in range(10_000):
        bus.emit(NotGuarded(f"cause {number}"))
    logging.getLogger("callfuse").setLevel(logging.NOTSET)
    assert counts.of("not_guarded") == 10_000
    assert len(counts._counts[NotGuarded]) == MAX_KEYS + 1
    assert len(log._known[NotGuarded]) == MAX_CAUSES + 1

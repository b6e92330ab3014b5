"""What waits for somebody to look at the page: the newest events, within bounds, and the counts of all."""

import anyio
import pytest

from callfuse.model import ToolCall
from callfuse.observe import events, feed
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import Where
from callfuse.observe.feed import Feed
from callfuse.observe.view import View


def watched() -> tuple[Bus, View, Feed]:
    """The view of a feed, and the bus that tells both and the counts."""
    counts, of = Counts(), Feed()
    return Bus(counts, of), View(of, counts), of


WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")


async def test_all_is_counted_and_the_newest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """In events and in bytes; whoever looks then sees these, and the totals of all."""
    monkeypatch.setattr(feed, "MOST_UNSEEN", 30)
    bus, view, of = watched()
    for number in range(100):
        where = WHERE._replace(session=f"s{number}")
        bus.emit(events.CallSeen(where, ToolCall("c", "search", "{}"), "none"))
    activity = await view.look()
    assert activity.page(0, 20, lanes=1, beads=1)["matching"] == 30
    assert activity.rates()["totals"] == {"calls": 100}
    monkeypatch.setattr(feed, "MOST_UNSEEN_BYTES", 10_000)
    await view.look()
    for _ in range(100):
        bus.emit(events.CallSeen(WHERE, ToolCall("c", "search", "x" * 276), "none"))
    waiting = of.take_unseen()
    assert 5 < len(waiting) < 10
    assert sum(one.size for one in waiting) <= 10_000


async def test_each_event_is_shown_once() -> None:
    """What one look has taken stays shown, and the next one adds to it."""
    bus, view, _ = watched()
    for calls in (1, 2, 3):
        bus.emit(events.CallSeen(WHERE, ToolCall(f"c{calls}", "search", "{}"), "none"))
        (session,) = (await view.look()).page(0, 20, lanes=1, beads=9)["sessions"]
        assert session["counts"]["calls"] == len(session["lanes"][0]["beads"]) == calls
        assert (await view.look()).rates()["totals"]["calls"] == calls


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_any_event_loop_may_look(backend: str) -> None:
    """A page without a store is shown under each of them."""
    bus, view, _ = watched()
    bus.emit(events.CallSeen(WHERE, ToolCall("c", "search", "{}"), "none"))
    assert anyio.run(view.look, backend=backend).rates()["totals"] == {"calls": 1}

"""What the live page of several processes shows over a Redis: two views are the pages of two workers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from callfuse.model import Finding, ToolCall
from callfuse.model.outcomes import outcome_of
from callfuse.observe import events, view
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import Event, Where
from callfuse.observe.feed import Feed
from callfuse.observe.ring import Choice
from callfuse.observe.view import LOOKS_S, View
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.stores import open_relay
from callfuse.stores.keys import FEED
from tests.support.observing import Observed
from tests.support.redis import RedisServer

WHERE = Where("abc", "x-session-id", "main.f00", "gpt-4o", "openai", "openai-chat")


class Worker:
    """One process: its feed, and its page. `passed`: seconds for the view."""

    def __init__(self, url: str) -> None:
        self.passed = 0.0
        self.feed = Feed(relay=open_relay(url, timeout_s=0.25, bus=Bus(Observed())))
        self.view = View(self.feed, Counts(), passed=lambda: self.passed)

    def call(self, number: int = 0) -> ToolCall:
        """The model makes a call here."""
        call = ToolCall(f"call_{number}", "search", f'{{"page": {number}, "token": "s3cret-of-a-test"}}')
        self.feed.take(events.CallSeen(WHERE, call, "none"))
        return call

    async def page(self, server: str = "", since: int = 0) -> dict[str, Any]:
        """What it answers to a page that knows so much."""
        activity = await self.view.look(server, since)
        shown = activity.page(0, 20, since=since if server == activity.server else 0, lanes=3, beads=40)
        return {**shown, "now": 0, "alone": self.view.alone}

    async def session(self) -> dict[str, Any]:
        """All of the session."""
        found = (await self.view.look()).session("abc")
        assert found is not None
        return {**found, "now": 0}

    async def has(self, count: str) -> bool:
        """Whether something is counted of the session."""
        found = (await self.view.look()).session("abc")
        return found is not None and count in found["counts"]

    async def is_alone(self, expected: bool) -> bool:
        """Whether it says so."""
        is_alone: bool = (await self.page())["alone"]
        return is_alone is expected

    async def until(self, beads: int) -> list[dict[str, Any]]:
        """The beads, once there are so many."""
        async with asyncio.timeout(60):
            while True:
                shown = (await self.page())["sessions"]
                found = [bead for one in shown for lane in one["lanes"] for bead in lane["beads"]]
                if len(found) == beads:
                    return found
                await asyncio.sleep(0.02)


@asynccontextmanager
async def workers(*urls: str) -> AsyncIterator[list[Worker]]:
    """Some on stores."""
    found = [Worker(url) for url in urls]
    try:
        yield found
    finally:
        for worker in found:
            await worker.feed._task.stop()


async def sent(server: RedisServer, number: int) -> None:
    """Wait until the stream has so many events."""
    async with asyncio.timeout(60):
        while server.ask("XLEN", FEED.key) < number:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for it."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def life_of(call: ToolCall) -> list[Event]:
    """All that may come of a call."""
    found = Finding("repeat", call.name, call.signature, 3, 3, 300.0, False, calls=("a", "b"), previous="nothing")
    outcome = outcome_of("no such page", True)
    assert outcome is not None
    return [
        events.HoldBegan(WHERE),
        events.CallSeen(WHERE, call, "steer"),
        events.FindingSeen(WHERE, Verdict(call, found, Rung.STEER, 1, finding_id="f1")),
        events.ActionTaken(WHERE, "f1", "steer", True, told="[callfuse] stop"),
        events.HoldEnded(WHERE, 1.25, 4000, "withheld"),
        events.ResultSeen(WHERE, call.id, call.signature, outcome),
        events.CourseMended(WHERE, "f1", "changed"),
        events.FeedbackGiven("f1", "false_positive"),
        events.SettingsChanged("abc", "tool-loop-mode = warn", False),
        events.ExchangeEnded(WHERE, "guarded", "complete", "", 200, 1, "steer", 1.0, 0.5),
    ]


async def test_each_shows_what_happens_at_both(server: RedisServer) -> None:
    """A bead gathers what another worker has seen of its call; both show the same, with the same ids, also one to whom
    somebody comes later."""
    async with workers(server.url, server.url, server.url) as (one, other, late):
        await one.page()
        await other.page()
        for number, event in enumerate(life_of(ToolCall("call_1", "search", '{"query": "zebra"}'))):
            (one, other)[number % 2].feed.take(event)
            await sent(server, number + 1)
        await one.until(1)
        await other.until(1)
        await until(lambda: one.has("exchanges"))
        await until(lambda: other.has("exchanges"))
        shown = await one.session()
        (bead,) = shown["lanes"][0]["beads"]
        assert (bead["action"], bead["held"], bead["told"]) == ("steer", 1.25, "[callfuse] stop")
        assert (bead["then"], bead["feedback"], bead["outcome"]["kind"]) == ("changed", "false_positive", "error")
        assert bead["finding"]["rests_on"] == ["a", "b"]
        assert len(shown["changes"]) == 1
        assert await other.session() == await late.session() == shown
        assert await late.page() == await other.page() == await one.page()
        rates = [(await worker.view.look()).rates() for worker in (one, other, late)]
        assert rates[0] == rates[1] == rates[2]
        assert rates[0]["totals"]["saved_calls"] == 5.8


async def test_polls_that_alternate_never_go_back(server: RedisServer) -> None:
    """Who has seen a version at one worker is shown at least that by the other, and only what is new."""
    async with workers(server.url, server.url) as (one, other):
        one.call()
        await sent(server, 1)
        name, version, beads = "", 0, 0
        for number in range(1, 30):
            one.call(number)
            await sent(server, number + 1)
            await one.feed.refresh()  # the other one's own turn comes later
            for worker in (one, other):
                shown = await worker.page(name, version)
                assert shown["version"] >= version
                assert not name or shown["server"] == name
                for session in shown["sessions"]:
                    now = len(session["lanes"][0]["beads"]) if "lanes" in session else beads
                    assert now >= beads
                    beads = now
                name, version = shown["server"], shown["version"]
            assert beads == number + 1
        assert (await other.page(name, version))["sessions"] == [{"session": "abc"}]


async def test_what_nobody_looks_at_is_not_kept(server: RedisServer) -> None:
    """After a while it is made anew when somebody comes, and is the same again."""
    async with workers(server.url, server.url) as (one, other):
        one.call()
        await one.until(1)
        before = await one.page()
        one.passed += LOOKS_S + 1
        async with asyncio.timeout(60):
            while one.feed._readers:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert one.view._activity.page(0, 20, lanes=1, beads=1)["sessions"] == []
        assert await one.page() == before == await other.page()
        other.call(1)
        assert len(await one.until(2)) == 2


async def test_many_events_between_two_looks(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are to wait: it is made anew."""
    async with workers(server.url) as (one,):
        one.call()
        await one.until(1)
        monkeypatch.setattr(view, "MOST_WAITING", 20)
        for number in range(1, 31):
            one.call(number)
        async with asyncio.timeout(60):
            while one.feed._readers:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert len(one.view._waiting) == 0
        monkeypatch.undo()
        await one.until(31)


async def test_while_the_store_is_down_each_shows_its_own(another: Callable[..., RedisServer]) -> None:
    """And says so, under a name of its own; when it is up again, both show both."""
    server = another()
    async with workers(server.url, server.url) as (one, other):
        one.call(1)
        await one.until(1)
        await other.until(1)
        shared = (await one.page())["server"]
        assert (await other.page())["server"] == shared
        server.end()
        one.call(2)
        assert len(await one.until(2)) == 2
        await until(lambda: other.is_alone(True))
        other.call(3)
        other.call(4)
        await other.until(3)
        pages = [await worker.page() for worker in (one, other)]
        assert [page["alone"] for page in pages] == [True, True]
        assert len({shared, *(page["server"] for page in pages)}) == 3
        server.start()
        for worker in (one, other):
            await until(partial(worker.is_alone, False))
        one.call(5)
        other.call(6)
        await sent(server, 2)
        for worker in (one, other):
            await worker.until(2)
        pages = [await worker.page() for worker in (one, other)]
        assert pages[0] == pages[1]


async def test_one_that_starts_while_the_store_is_down(another: Callable[..., RedisServer]) -> None:
    """It shows what has happened at it since."""
    server = another()
    server.end()
    async with workers(server.url) as (one,):
        one.call(1)
        await one.until(1)
        one.call(2)
        await one.until(2)
        assert (await one.page())["alone"]


async def test_what_others_write_into_the_stream_harms_nothing(server: RedisServer) -> None:
    """Values of other types, texts that steer, and what is no event."""
    async with workers(server.url) as (one,):
        for data in (
            '{"callfuse.event":"call","gen_ai.conversation.id":["abc"],"time":"x","gen_ai.tool.name":{}}',
            '{"callfuse.event":"finding","time":NaN,"callfuse.finding.count":"3","callfuse.cut":7}',
            '{"callfuse.event":"reset","callfuse.sessions":[1,2]}',
            '{"callfuse.event":"hold","callfuse.seconds":1e999,"callfuse.how":"\\u001b[31m"}',
            '{"callfuse.event":"call","gen_ai.tool.name":"' + "x" * 100_000 + '"}',
            '{"callfuse.event":"nothing"}',
            '{"callfuse.event":"call"',
            "[]",
        ):
            server.ask("XADD", FEED.key, "*", "e", data)
        one.call()
        await until(lambda: one.has("calls"))
        assert len(str(await one.page())) < 20_000
        assert (await one.session())["lanes"][0]["beads"][0]["arguments"] == '{"page": 0, "token": "***"}'


async def test_a_reader_of_the_feed_and_a_page_do_not_disturb_each_other(server: RedisServer) -> None:
    """Each comes and goes; a page is no reader that counts."""
    async with workers(server.url) as (one,):
        reader = await one.feed.open(Choice())
        one.call(1)
        await one.until(1)
        assert one.feed.readers == 1
        one.feed.close(reader)
        one.call(2)
        await one.until(2)
        again = await one.feed.open(Choice())
        one.passed += LOOKS_S + 1
        async with asyncio.timeout(60):
            while len(one.feed._readers) > 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        one.call(3)
        async with asyncio.timeout(60):
            assert b"call_3" in await anext(again.chunks())
        await one.until(3)

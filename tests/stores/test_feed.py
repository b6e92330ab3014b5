"""The event feed of several processes over a Redis: two feeds are two workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from callfuse.observe.bus import Bus
from callfuse.observe.events import NOWHERE, FuseBlown, StoreFailed
from callfuse.observe.feed import Feed, Reader
from callfuse.observe.ring import MOST_EVENTS, Choice, read_id
from callfuse.stores import open_relay
from callfuse.stores.keys import FEED
from tests.observe.test_feed import read
from tests.support.observing import Observed
from tests.support.redis import RedisServer

ALL = Choice()


@asynccontextmanager
async def workers(*urls: str) -> AsyncIterator[tuple[list[Feed], Observed]]:
    """A feed for each URL, and what happens to their stores."""
    seen = Observed()
    feeds = [Feed(relay=open_relay(url, timeout_s=0.25, bus=Bus(seen))) for url in urls]
    try:
        yield feeds, seen
    finally:
        for feed in feeds:
            await feed._task.stop()


async def blocks_of(reader: Reader, least: int) -> list[Any]:
    """The numbers of blown fuses, and None for others."""
    return [one.get("callfuse.blocks", one["callfuse.event"]) for one in await read(reader, least)]


async def sent(server: RedisServer, number: int) -> None:
    """Wait until the stream has so many events."""
    async with asyncio.timeout(60):
        while server.ask("XLEN", FEED.key) < number:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def test_the_memory_of_a_process_is_shared_with_nobody() -> None:
    """There is no relay then."""
    assert open_relay("memory://", timeout_s=1, bus=Bus()) is None


async def test_both_workers_show_what_happens_at_both(server: RedisServer) -> None:
    """In one order, with the same ids, so that a reader of one goes on at the other."""
    async with workers(server.url, server.url) as ((one, other), seen):
        readers = [await one.open(ALL), await other.open(ALL)]
        for blocks in range(20):
            (one, other)[blocks % 2].take(FuseBlown(NOWHERE, blocks))
            await sent(server, blocks + 1)
        assert [await blocks_of(reader, 20) for reader in readers] == [[*range(20)]] * 2
        entries = [feed._ring.after((0, 0))[0] for feed in (one, other)]
        assert [entry.id for entry in entries[0]] == [entry.id for entry in entries[1]]
        back = await other.open(ALL, entries[0][14].id)
        assert await blocks_of(back, 5) == [*range(15, 20)]
        assert seen.names() == []


async def test_a_worker_that_starts_later_has_what_was_before(server: RedisServer) -> None:
    """For readers that come back; without an id only what is new is sent."""
    async with workers(server.url, server.url, server.url) as ((one, other, third), _):
        for blocks in range(3):
            one.take(FuseBlown(NOWHERE, blocks))
        await sent(server, 3)
        back = await other.open(ALL, (1, 0))
        new = await third.open(ALL)
        one.take(FuseBlown(NOWHERE, 3))
        assert await blocks_of(back, 4) == [0, 1, 2, 3]
        assert await blocks_of(new, 1) == [3]


async def test_whoever_comes_when_nobody_has_read_for_long_gets_no_old_events(server: RedisServer) -> None:
    """The ring of a worker without readers is not kept up to date, but read again."""
    async with workers(server.url, server.url) as ((one, other), _):
        one.close(await one.open(ALL))
        for blocks in range(700):
            other.take(FuseBlown(NOWHERE, blocks))
        await sent(server, 700)
        reader = await one.open(ALL)
        other.take(FuseBlown(NOWHERE, 700))
        assert await blocks_of(reader, 1) == [700]
        back = await one.open(ALL, one._ring.after((0, 0))[0][99].id)
        assert await blocks_of(back, 601) == [*range(100, 701)]


async def test_the_stream_is_bounded_and_forgotten(server: RedisServer) -> None:
    """In events, roughly, and in time."""
    async with workers(server.url) as ((one,), _):
        for blocks in range(MOST_EVENTS + 3000):
            one.take(FuseBlown(NOWHERE, blocks))
            if blocks % 1000 == 0:
                await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            while one._unsent:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert MOST_EVENTS <= server.ask("XLEN", FEED.key) < MOST_EVENTS + 1000
        assert 0 < server.ask("PTTL", FEED.key) <= 24 * 3600 * 1000
        old = await one.open(ALL, (1, 0))
        assert (await blocks_of(old, 1))[0] == "missed"


async def test_one_connection_a_process(server: RedisServer) -> None:
    """Whatever is sent and read."""
    async with workers(server.url) as ((one,), _):
        before = len(server.ask("CLIENT", "LIST").splitlines())
        reader = await one.open(ALL)
        for blocks in range(50):
            one.take(FuseBlown(NOWHERE, blocks))
            await asyncio.sleep(0)
        assert len(await blocks_of(reader, 50)) == 50
        assert len(server.ask("CLIENT", "LIST").splitlines()) == before + 1


async def test_a_store_that_is_down_leaves_each_its_own(another: Callable[..., RedisServer]) -> None:
    """And says so; when it is up again, all show all."""
    server = another()
    async with workers(server.url, server.url) as ((one, other), seen):
        readers = [await one.open(ALL), await other.open(ALL)]
        one.take(FuseBlown(NOWHERE, 0))
        assert [await blocks_of(reader, 1) for reader in readers] == [[0], [0]]
        server.end()
        one.take(FuseBlown(NOWHERE, 1))
        assert await blocks_of(readers[0], 2) == ["alone", 1]
        assert await blocks_of(readers[1], 1) == ["alone"]
        assert {event.operation for event in seen.of(StoreFailed)} == {"feed"}
        late = await one.open(ALL, read_id("1-0"))
        assert (await blocks_of(late, 2))[:2] == [0, 1]
        server.start()
        for reader in readers:
            assert await blocks_of(reader, 1) == ["shared"]
        other.take(FuseBlown(NOWHERE, 2))
        assert [await blocks_of(reader, 1) for reader in readers] == [[2], [2]]


async def test_what_others_write_into_the_stream_is_left_out(server: RedisServer) -> None:
    """A frame that would not be one."""
    async with workers(server.url) as ((one,), seen):
        reader = await one.open(ALL)
        server.ask("XADD", FEED.key, "*", "e", "x\n\nevent: finding")
        server.ask("XADD", FEED.key, "*", "other", "1", "more", "2")
        one.take(FuseBlown(NOWHERE, 7))
        assert await blocks_of(reader, 1) == [7]
        assert seen.names() == []


async def test_strangers_in_the_stream_hold_nothing_up(server: RedisServer) -> None:
    """However many entries are none of ours, and whatever their ids are."""
    async with workers(server.url) as ((one,), seen):
        reader = await one.open(ALL)
        fill = "for n = 1, 1200 do redis.call('XADD', KEYS[1], '*', 'a', n, 'b', n) end return 1"
        server.ask("EVAL", fill, 1, FEED.key)
        one.take(FuseBlown(NOWHERE, 1))
        assert await blocks_of(reader, 1) == [1]
        server.ask("XADD", FEED.key, "9999999999999999999-0", "e", "of the future")
        one.take(FuseBlown(NOWHERE, 2))
        assert await blocks_of(reader, 1) == [2]
        entries, _ = one._ring.after((0, 0))
        assert entries[-1].id > (9999999999999999999, 0)
        assert await blocks_of(await one.open(ALL, entries[-2].id), 1) == [2]
        assert seen.names() == []

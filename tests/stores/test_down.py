"""A server that is gone, silent or unwilling: exchanges go on, hardly any of them asks, and all of it is said once."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
import trio

from callfuse import CallFuseMiddleware
from callfuse.asgi.types import Message, Receive, Scope, Send
from callfuse.conversations.ledger import LaneState, SessionState
from callfuse.conversations.memory import MemoryLedger
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.log import LogSink
from callfuse.policy.tiers import Overrides
from callfuse.stores import values
from callfuse.stores.address import address_of
from callfuse.stores.keys import lane_key, session_key
from callfuse.stores.redis import RedisLedger
from tests.asgi.test_lanes import CHAT, NOBODY, Client, searched
from tests.stores.gate import Gate
from tests.support.asgi import drive
from tests.support.config import settings
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state
from tests.support.meeting import MARK, reply
from tests.support.plain import same_call, saying
from tests.support.redis import RedisServer, free_port
from tests.support.scripted import play

PATIENCE_S = 20
Start = Callable[..., RedisServer]


async def _never() -> Message:
    """Nothing comes."""
    await asyncio.Event().wait()
    raise AssertionError


async def _nowhere(_: Message) -> None:
    """Nobody listens."""


@dataclass
class Beside:
    """A ledger over a URL with a clock of its own, and what it has counted."""

    url: str
    timeout_s: float = PATIENCE_S
    now: float = 0.0
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        address = address_of(self.url)
        assert address is not None
        self.local = MemoryLedger(max_lanes=100, ttl_s=100)
        self.ledger = RedisLedger(
            address,
            local=self.local,
            ttl_s=100,
            timeout_s=self.timeout_s,
            bus=Bus(self.counts, LogSink()),
            clock=lambda: self.now,
        )

    def told(self) -> dict[str, int]:
        """What the metrics say."""
        labels = {"store_errors": ("read", "write", "probe", "value", "loop"), "store_skipped": ("read", "write")}
        found = {
            f"{name} {label}": self.counts.of(name, label) for name, of_name in labels.items() for label in of_name
        }
        return {name: count for name, count in found.items() if count}

    async def until(self, holds: Callable[[], bool]) -> None:
        """What is under way in the background has come to this."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)


@asynccontextmanager
async def beside(url: str, timeout_s: float = PATIENCE_S) -> AsyncIterator[Beside]:
    """One, closed at the end."""
    one = Beside(url, timeout_s)
    try:
        yield one
    finally:
        await one.ledger.aclose()


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """What was logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    """All that callfuse logs."""
    caplog.set_level(logging.INFO, "callfuse")


async def test_what_was_read_or_written_stays_at_hand(another: Start) -> None:
    """The server is killed: what other processes had written goes on, too, as far as it was read here."""
    server = another()
    async with beside(server.url) as one, beside(server.url) as other:
        await one.ledger.write({lane(1): state(7)}, 0)
        await one.ledger.write_session(session(1), TTL, 0)
        assert (await rounds_of(other.ledger, lane(1), 1))[0].position == 7
        server.end()
        for worker in (one, other):
            found, kept = await worker.ledger.read(lane(1), 2)
            assert (found.rounds[0].position, kept) == (7, TTL)
            await worker.ledger.write({lane(2): state(8)}, 2)
            assert (await rounds_of(worker.ledger, lane(2), 3))[0].position == 8


async def test_an_answer_that_comes_late(another: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process has written while it was on its way is newer, and stays at hand."""
    server, reading, may_go_on = another(), threading.Event(), threading.Event()
    decode = values.decode_lane

    def late(value: bytes) -> LaneState:
        reading.set()
        may_go_on.wait(10)
        return decode(value)

    async with beside(server.url) as one:
        await one.ledger.write({lane(1): replace(state(7), revision="a7")}, 0)
        await one.ledger.write_session(session(1), replace(TTL, revision="a7"), 0)
        monkeypatch.setattr("callfuse.stores.redis.LONG_BYTES", 0)
        monkeypatch.setattr(values, "decode_lane", late)
        read = asyncio.create_task(one.ledger.read(lane(1), 1))
        assert await asyncio.to_thread(reading.wait, 10)
        after = SessionState(Overrides({"ttl_seconds": 8.0}), revision="a8")
        await one.ledger.write({lane(1): replace(state(8), revision="a8")}, 1)
        await one.ledger.write_session(session(1), after, 1)
        may_go_on.set()
        found, kept = await read
        assert (found.rounds[0].position, kept) == (8, after)
        server.end()
        found, kept = await one.ledger.read(lane(1), 2)
        assert (found.rounds[0].position, kept) == (8, after)


async def test_an_outage_from_its_beginning_to_its_end(another: Start, caplog: pytest.LogCaptureFixture) -> None:
    """One failure, then nobody asks but a probe a pause; each way is logged once, and without the password."""
    server = another(password="s3cret")
    async with beside(server.url) as one:
        await one.ledger.write({lane(1): state(7)}, 0)
        server.end()
        for _ in range(5):
            await one.ledger.read(lane(1), 0)
        await one.ledger.write({lane(1): state(8)}, 0)
        assert one.told() == {"store_errors read": 1, "store_skipped read": 4, "store_skipped write": 1}
        (line,) = lines(caplog)
        assert line.startswith(
            f"the store redis://127.0.0.1:{server.port} is down, callfuse continues with the requests'"
        )
        for pause in (1, 2, 4):
            one.now += pause
            errors = one.counts.of("store_errors", "probe")
            await one.ledger.read(lane(1), 0)
            await one.ledger.read(lane(1), 0)
            await one.until(lambda errors=errors: one.counts.of("store_errors", "probe") == errors + 1)  # type: ignore[misc]
        assert one.counts.of("store_errors") == 4
        server.start()
        one.now += 8
        await one.ledger.read(lane(1), 0)
        await one.until(lambda: len(caplog.records) == 2)
        assert (await rounds_of(one.ledger, lane(1), 0))[0].position == 8, "the server has forgotten it"
        await one.ledger.write({lane(1): state(9)}, 0)
        assert lane_key(lane(1)) in server.stored()
        assert one.counts.of("store_errors") == 4
    assert lines(caplog)[1:] == [f"the store redis://127.0.0.1:{server.port} is up again"]
    assert lines(caplog, logging.WARNING) == [line]
    assert "s3cret" not in caplog.text


async def test_what_a_session_sets_meanwhile_is_sent(server: RedisServer) -> None:
    """The user was told that it holds. Before anybody reads again the server knows."""
    async with Gate(server.port).standing() as gate, beside(f"redis://127.0.0.1:{gate.port}", 0.02) as one:
        gate.shut()
        await one.ledger.write_session(session(1), TTL, 0)
        await one.ledger.write_session(session(2), TTL, 0)
        assert await set_by(one.ledger, session(1), 0) == TTL
        gate.open = True
        one.now += 1
        await one.ledger.read(lane(3), 0)
        await one.until(lambda: server.calls().get("set", 0) >= 3)
        async with beside(server.url) as other:
            assert [await set_by(other.ledger, session(number), 0) for number in (1, 2)] == [TTL, TTL]


async def test_what_both_sides_have_brought_counts(server: RedisServer) -> None:
    """The rounds of a lane that another process has gone on with, too; a chain that only this one knows is found in
    memory, with what its session has set."""
    chained = LaneState(state(3).rounds, session="session-1")
    async with (
        Gate(server.port).standing() as gate,
        beside(server.url) as other,
        beside(f"redis://127.0.0.1:{gate.port}", 0.02) as one,
    ):
        gate.shut()
        await one.ledger.write({lane(1): state(1), lane(3): chained}, 0)
        await one.ledger.write_session(session(1), TTL, 0)
        await other.ledger.write({lane(1): state(2)}, 0)
        gate.open = True
        one.now += 1
        assert (await rounds_of(one.ledger, lane(1), 0))[0].position == 1
        await one.until(lambda: server.calls().get("set", 0) >= 4)
        one.ledger._connection._timeout_s = PATIENCE_S
        await one.until(lambda: one.ledger._connection.closed)
        assert [kept.position for kept in await rounds_of(one.ledger, lane(1), 0)] == [1, 2]
        found, kept = await one.ledger.read(lane(3), 0)
        assert (found.rounds[0].position, kept) == (3, TTL)


async def test_what_a_server_has_forgotten_it_is_told_again(server: RedisServer) -> None:
    """As one without a disk that was started again: what a session has set goes on, and other processes find it."""
    async with beside(server.url) as one, beside(server.url) as other:
        await one.ledger.write_session(session(1), TTL, 0)
        server.forget()
        assert await set_by(one.ledger, session(1), 0) == TTL
        await one.ledger.read(lane(2), 0)
        await one.until(lambda: server.calls().get("set", 0) >= 2)
        assert await set_by(other.ledger, session(1), 0) == TTL
        assert one.told() == other.told() == {}


async def test_what_a_newer_version_has_set_is_left_alone(server: RedisServer) -> None:
    """While processes of two versions share a store, neither writes over what it cannot read."""
    async with beside(server.url) as one:
        await one.ledger.write_session(session(1), TTL, 0)
        server.ask("SET", session_key(session(1)), "[2]")
        for _ in range(3):
            assert await set_by(one.ledger, session(1), 0) == TTL
        assert server.ask("GET", session_key(session(1))) == b"[2]"


async def test_silence_is_waited_for_once(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever listens and never answers: many exchanges, one of which has waited, and no connection is made for any."""
    async with Gate(server.port).standing() as gate, beside(gate.url, 0.05) as one:
        gate.shut()
        for at in range(50):
            await one.ledger.read(lane(at), 0)
            await one.ledger.write({lane(at): state()}, 0)
        assert gate.came == 1
        assert one.told() == {"store_errors read": 1, "store_skipped read": 49, "store_skipped write": 50}
        (line,) = lines(caplog)
        assert line.endswith("no answer within 0.05 s")
        one.now += 1
        for at in range(50):
            await one.ledger.read(lane(at), 0)
        await one.until(lambda: one.counts.of("store_errors", "probe") == 1)
        assert gate.came == 2, "the probe's"
        assert len(caplog.records) == 1


async def test_a_process_that_was_busy_blames_nobody(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever blocks the event loop has every answer come too late. That exchange goes on; the next one asks again."""
    async with beside(server.url, 0.05) as one:
        await one.ledger.write({lane(1): state(7)}, 0)
        asking = asyncio.create_task(one.ledger.read(lane(1), 0))
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 - that is the point
        found, _ = await asking
        assert found.rounds[0].position == 7
        one.ledger._connection._timeout_s = PATIENCE_S
        assert (await rounds_of(one.ledger, lane(1), 0))[0].position == 7
        assert one.told() == {"store_errors read": 1}
    assert lines(caplog) == []


async def test_a_busy_process_loses_no_command(server: RedisServer) -> None:
    """The user was told that it holds, though the server may never have heard of it."""
    async with Gate(server.port).standing() as gate, beside(f"redis://127.0.0.1:{gate.port}", 0.05) as one:
        await one.ledger.read(lane(1), 0)
        gate.shut()
        setting = asyncio.create_task(one.ledger.write_session(session(1), TTL, 0))
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 - that is the point
        await setting
        gate.open = True
        one.ledger._connection._timeout_s = PATIENCE_S
        assert await set_by(one.ledger, session(1), 0) == TTL
        await one.until(lambda: server.calls().get("set", 0) >= 2)
        async with beside(server.url) as other:
            assert await set_by(other.ledger, session(1), 0) == TTL


async def test_those_that_wait_already_wait_no_longer(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """When one has waited in vain, the others are let go with it; it is one failure to the log."""
    async with Gate(server.port).standing() as gate, beside(gate.url, 0.2) as one:
        gate.shut()
        first = asyncio.create_task(one.ledger.read(lane(0), 0))
        await one.until(lambda: gate.came == 1)
        one.ledger._connection._timeout_s = PATIENCE_S
        async with asyncio.timeout(PATIENCE_S / 2):
            await asyncio.gather(first, *(one.ledger.read(lane(at), 0) for at in range(1, 20)))
        assert len(caplog.records) == 1


async def test_a_server_that_only_reads_is_down(
    server: RedisServer, another: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica, as after a failover: a probe that could not write does not close the circuit."""
    replica = another("--replicaof", "127.0.0.1", str(server.port))
    async with beside(replica.url) as one:
        await one.ledger.write({lane(1): state()}, 0)
        assert one.told() == {"store_errors write": 1}
        one.now += 1
        await one.ledger.read(lane(1), 0)
        await one.until(lambda: one.counts.of("store_errors", "probe") == 1)
    (line,) = lines(caplog)
    assert "read only" in line


async def test_a_loop_is_caught_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """By the history in the request; nothing fails open, and the client is answered by the middleware as ever."""
    app = play(reply(CHAT, saying(same_call("call_2"), tag="r2"), stream=True))
    fuse = CallFuseMiddleware(app, settings(), store=f"redis://me:s3cret@127.0.0.1:{free_port()}")
    for _ in range(2):
        exchange = await drive(fuse, NOBODY.ask(CHAT, searched(0), searched(1)))
        assert exchange.raised is None
        assert MARK.encode() in exchange.body
    assert fuse.counts.of("fail_open") == 0
    assert (fuse.counts.of("store_errors"), fuse.counts.of("store_skipped")) == (1, 3)
    assert len([line for line in lines(caplog, logging.WARNING) if "the store" in line]) == 1
    assert "s3cret" not in caplog.text
    await fuse.ledger.aclose()  # type: ignore[attr-defined]


async def test_a_server_that_is_not_there_is_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """Before any exchange: one warning when the app starts, and none again when an exchange would need the store."""
    told = asyncio.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await told.wait()  # the app starts and serves meanwhile

    port = free_port()
    fuse = CallFuseMiddleware(app, {"store": f"redis://me:s3cret@127.0.0.1:{port}", "store_timeout_s": PATIENCE_S})
    logger, handler = logging.getLogger("callfuse"), Told()
    logger.addHandler(handler)
    try:
        await fuse({"type": "lifespan"}, _never, _nowhere)
        found = await drive(fuse, NOBODY.ask(CHAT, searched(0)))
        assert found.raised is None
    finally:
        logger.removeHandler(handler)
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith(f"the store redis://127.0.0.1:{port} is down, callfuse continues with the requests'")
    assert "s3cret" not in caplog.text


async def test_a_server_that_is_there_is_not_told(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """It is looked for once at the start, and nothing is logged."""
    async with beside(server.url) as one:
        one.ledger.start()
        await one.until(lambda: len(asyncio.all_tasks()) == 1)
        assert (one.told(), lines(caplog)) == ({}, [])


async def test_a_server_that_dies_in_mid_traffic(another: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Exchanges before, meanwhile and after are answered, and the loop in each is caught."""
    server = another()
    answer = reply(CHAT, saying(same_call("call_2"), tag="r2"), stream=True)
    fuse = CallFuseMiddleware(play(answer), settings() | {"store_timeout_s": PATIENCE_S}, store=server.url)

    async def exchange(at: int) -> bool:
        if at == 15:
            server.end()
        headers = ((b"x-callfuse-session-id", f"session-{at}".encode()),)
        found = await drive(fuse, Client(headers).ask(CHAT, searched(0), searched(1)))
        return found.raised is None and MARK.encode() in found.body

    assert all([await exchange(at) for at in range(5)])
    assert fuse.counts.of("store_errors") == 0
    assert len([key for key in server.stored() if ":lane:" in key and not key.endswith(":used")]) == 5
    assert all(await asyncio.gather(*(exchange(at) for at in range(5, 25))))
    assert all([await exchange(at) for at in range(25, 30)])
    assert fuse.counts.of("fail_open") == 0
    assert fuse.counts.of("store_skipped") > 0
    assert len([line for line in lines(caplog, logging.WARNING) if "the store" in line]) == 1
    await fuse.ledger.aclose()  # type: ignore[attr-defined]


def test_another_event_loop_gets_its_own_connections(server: RedisServer) -> None:
    """As where each test of a host, or each request of its test client, has a loop of its own."""
    one = Beside(server.url)

    async def turn(at: int) -> int:
        await one.ledger.write({lane(at): state(at)}, 0)
        found = [(await rounds_of(one.ledger, lane(other), 0))[0].position for other in range(at + 1)]
        await one.ledger.aclose()
        return sum(found)

    assert [asyncio.run(turn(at)) for at in range(3)] == [0, 1, 3]
    assert one.told() == {}


async def test_threads_with_a_loop_each(server: RedisServer) -> None:
    """They share the circuit, and none takes the others' connections: of each thread one, which it keeps."""
    threads, exchanges = 3, 30
    async with Gate(server.port).standing() as gate:
        one = Beside(f"redis://127.0.0.1:{gate.port}")
        together = threading.Barrier(threads, timeout=PATIENCE_S)

        async def turns(own: int) -> None:
            for at in range(own, exchanges, threads):
                await asyncio.to_thread(together.wait)
                await one.ledger.write({lane(at): state(at)}, 0)
                assert (await rounds_of(one.ledger, lane(at), 0))[0].position == at
            await one.ledger.aclose()

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, turns(own)) for own in range(threads)))
        assert gate.came == threads
        assert one.told() == {}


async def test_more_nodes_are_down_than_are_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is not called down any more, as nobody would notice that it is up again."""
    monkeypatch.setattr("callfuse.stores.connection.MOST_CIRCUITS", 2)
    monkeypatch.setattr("callfuse.stores.server.RedisServer.place_of", lambda _, key: key)
    async with beside(f"redis+cluster://127.0.0.1:{free_port()}") as one:
        for number in range(3):
            await one.ledger.read(lane(number), 0)
    told = [(line.partition("(node ")[2].partition(")")[0], " is up again" in line) for line in lines(caplog)]
    first, second, third = (lane_key(lane(number)) for number in range(3))
    assert told == [(first, False), (second, False), (first, True), (third, False)]


def test_a_probe_whose_loop_is_gone() -> None:
    """It never ends; the next loop makes one of its own."""
    one = Beside(f"redis://127.0.0.1:{free_port()}")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(one.ledger.read(lane(1), 0))
    loop.run_until_complete(one.until(lambda: not one.ledger._connection._closing))
    one.now += 1
    loop.run_until_complete(one.ledger.read(lane(1), 0))
    (probe,) = one.ledger._connection._probing.values()
    assert not probe.done()
    probe._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    one.now += 30

    async def turn() -> None:
        await one.ledger.read(lane(1), 0)
        await one.until(lambda: one.counts.of("store_errors", "probe") == 1)

    asyncio.run(turn())


def test_under_trio_it_is_memory(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, and callfuse goes on."""
    one = Beside(server.url)

    async def turn() -> None:
        await one.ledger.write({lane(1): state(7)}, 0)
        assert (await rounds_of(one.ledger, lane(1), 0))[0].position == 7
        await one.ledger.aclose()

    trio.run(turn)
    (line,) = lines(caplog, logging.ERROR)
    assert line == (
        f"the store redis://127.0.0.1:{server.port} works with asyncio only: "
        "callfuse uses this process's memory instead"
    )
    assert one.counts.of("store_errors", "loop") == 2

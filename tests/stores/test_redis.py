"""What the server is given and how it takes it: keys, times to live, scripts, values of anybody else."""

import asyncio
import cProfile
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from callfuse import CallFuseMiddleware, ConfigError
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import KeptCall, KeptRound, LaneState, SessionState
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.log import LogSink
from callfuse.stores import open_ledger, values
from callfuse.stores.keys import lane_key, last_use_key, session_key
from callfuse.stores.node import CONNECTIONS
from callfuse.stores.redis import RedisLedger
from tests.project.sources import document
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state
from tests.support.redis import RedisServer
from tests.support.scripted import play


@pytest.fixture
def counts() -> Counts:
    """What the ledger has counted."""
    return Counts()


@pytest.fixture
async def ledger(server: RedisServer, counts: Counts) -> AsyncIterator[RedisLedger]:
    """A ledger over the server."""
    one = open_ledger(server.url, max_lanes=10, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
    assert isinstance(one, RedisLedger)
    yield one
    await one.aclose()


async def test_keys_live_as_long_as_they_are_used(ledger: RedisLedger, server: RedisServer) -> None:
    """A lane from its last write, a session from its last exchange."""
    await ledger.write({lane(1): state()}, 0)
    await ledger.write_session(session(1), TTL, 0)
    with closing(server.client()) as client:
        keys = [lane_key(lane(1)), session_key(session(1))]
        assert sorted([*keys, last_use_key(lane(1))]) == server.stored()
        assert 9_000_000 < client.pttl(last_use_key(lane(1))) <= 10_000_000
        for key in keys:
            assert 90_000 < client.pttl(key) <= 100_000
            client.pexpire(key, 5_000)
        await ledger.read(lane(1), 0)
        assert [client.pttl(key) > 5_000 for key in keys] == [False, True]
        await ledger.write({lane(1): state()}, 0)
        assert client.pttl(keys[0]) > 5_000


async def test_scripts_that_the_server_has_forgotten(ledger: RedisLedger, server: RedisServer, counts: Counts) -> None:
    """They are sent again, and nothing is lost or counted."""
    await ledger.write({lane(1): state(7)}, 0)
    await ledger.read(lane(1), 0)
    with closing(server.client()) as client:
        client.script_flush()
    assert (await rounds_of(ledger, lane(1), 0))[0].position == 7
    await ledger.write({lane(1): state(8)}, 0)
    assert (await rounds_of(ledger, lane(1), 0))[0].position == 8
    assert counts.of("store_errors") == 0


@pytest.mark.parametrize("kind", ["text", "list", "version"])
async def test_what_somebody_else_has_written(
    ledger: RedisLedger, server: RedisServer, counts: Counts, kind: str
) -> None:
    """It counts as nothing, is counted, and is written over."""
    keys = [lane_key(lane(1)), session_key(session(1))]
    with closing(server.client()) as client:
        for key in keys:
            if kind == "list":
                client.lpush(key, "x")
            else:
                client.set(key, b"\n[0]" if kind == "version" else b"\xff\xfe")
    found, kept = await ledger.read(lane(1), 0)
    assert (found.rounds, kept) == ((), SessionState())
    assert counts.of("store_errors", "value") == 2
    await ledger.write({lane(1): state(7)}, 0)
    await ledger.write_session(session(1), TTL, 0)
    found, kept = await ledger.read(lane(1), 0)
    assert (found.rounds[0].position, kept) == (7, TTL)
    assert counts.of("store_errors") == 2


async def test_long_values_are_worked_on_in_a_thread(ledger: RedisLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other streams do not wait for them; short ones are not worth a thread. What is read is what was written."""
    threads: list[bool] = []

    def noting(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(value: Any) -> Any:
            threads.append(current_thread() is main_thread())
            return work(value)

        return noted

    for name in ("encode_lane", "decode_lane"):
        monkeypatch.setattr(values, name, noting(getattr(values, name)))
    calls = tuple(KeptCall(f"call_{at}", "search", b"s" * 32) for at in range(1000))
    long = LaneState((KeptRound(1, 0.0, b"", calls),), revision="ab")
    for one in (state(), long):
        await ledger.write({lane(1): one}, 0)
        found, _ = await ledger.read(lane(1), 0)
        assert (found, found.revision) == (one, one.revision)
    assert threads == [True, True, False, False]


async def test_connections_that_have_been_closed_meanwhile(
    ledger: RedisLedger, server: RedisServer, counts: Counts
) -> None:
    """A server or a balancer closes those that were silent for long: it is not down."""
    await asyncio.gather(*(ledger.write({lane(at): state(7)}, 0) for at in range(5)))
    for pause_s in (0.0, 0.05):  # before the loop has seen it, and after
        server.ask("CLIENT", "KILL", "TYPE", "normal")
        await asyncio.sleep(pause_s)
        assert (await rounds_of(ledger, lane(1), 0))[0].position == 7
    assert counts.of("store_errors") == 0


async def test_whoever_goes_away_leaves_nothing_behind(ledger: RedisLedger, counts: Counts) -> None:
    """A client that hangs up cancels its exchange at any step of a round trip; the next one has its own answer."""
    await ledger.write({lane(at): state(at) for at in range(60)}, 0)
    cancelled = 0
    for steps in range(60):
        asking = asyncio.create_task(ledger.read(lane(steps), 0))
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled += asking.cancel()
        await asyncio.wait([asking])
        assert (await rounds_of(ledger, lane(59 - steps), 0))[0].position == 59 - steps
    assert cancelled > 1
    assert counts.of("store_errors") == 0


async def test_a_script_goes_straight_to_its_connection(ledger: RedisLedger) -> None:
    """Past redis-py's client and pool, which take five times the calls of its functions."""
    await ledger.read(lane(1), 0)
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    for at in range(20):
        await ledger.read(lane(at), 0)
    profile.disable()
    package = f"{Path(redis.__file__).parent}/"
    called = [(one.code, one.callcount) for one in profile.getstats()]
    own = [count for code, count in called if not isinstance(code, str) and code.co_filename.startswith(package)]
    assert 0 < sum(own) / 20 < 40


@pytest.mark.parametrize("most", ["", "?max_connections=2"])
async def test_many_at_a_time(server: RedisServer, counts: Counts, most: str) -> None:
    """They wait for their turn, within the limit of connections."""
    one = open_ledger(f"{server.url}{most}", max_lanes=100, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
    assert isinstance(one, RedisLedger)
    await asyncio.gather(*(one.write({lane(at): state(at)}, 0) for at in range(100)))
    found = await asyncio.gather(*(rounds_of(one, lane(at), 0) for at in range(100)))
    assert [rounds[0].position for rounds in found] == list(range(100))
    clients = len(server.ask("CLIENT", "LIST").splitlines()) - 1
    assert clients <= (2 if most else CONNECTIONS)
    await one.aclose()
    assert counts.of("store_errors") == 0


async def test_a_socket_in_the_file_system(another: Callable[..., RedisServer], counts: Counts, tmp_path: Path) -> None:
    """By its path."""
    another("--unixsocket", str(tmp_path / "redis.sock"))
    one = open_ledger(f"unix://{tmp_path}/redis.sock", max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
    assert isinstance(one, RedisLedger)
    await one.write({lane(1): state(7)}, 0)
    assert (await rounds_of(one, lane(1), 0))[0].position == 7
    await one.aclose()
    assert counts.of("store_errors") == 0


async def test_the_rights_that_the_document_names(
    server: RedisServer, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    """They are enough, and no more than is needed."""
    (rights,) = re.findall(r"`(~callfuse:\* [^`]+)`", document("docs/settings.md").replace("\n", " "))
    keys, *commands = rights.split()
    for left_out in ("", *commands):
        server.ask("ACL", "SETUSER", "app", "reset", "on", ">s3cret", keys, *(c for c in commands if c != left_out))
        url = server.url.replace("redis://", "redis://app:s3cret@")
        counts = Counts()
        one = open_ledger(url, max_lanes=9, ttl_s=100, timeout_s=20, bus=Bus(counts, LogSink()))
        assert isinstance(one, RedisLedger)
        server.ask("SCRIPT", "FLUSH")
        await one.write_session(session(1), TTL, 0)
        await one.write({lane(1): state(7)}, 0)
        await one.read(lane(1), 0)
        await one.read(lane(1), 0)
        await one.aclose()
        assert bool(counts.of("store_errors")) is bool(left_out), left_out
    server.ask("ACL", "DELUSER", "app")
    assert "s3cret" not in caplog.text


LONG = "a" * 200 + ".b:c_d-E" * 20


@pytest.mark.parametrize("name", ["session-1", LONG, "x" * 8 + "." + "f" * 32])
@pytest.mark.parametrize("credential", [b"", b"\x00" * 16, bytes(range(16))])
def test_an_exchange_is_in_one_slot(name: str, credential: bytes) -> None:
    """A Cluster has all keys of a credential on one node, and those of others where their hash leads."""
    lanes = [
        Lane(credential, name, print_, "x-session-id", agent) for print_ in (b"", b"f" * 16) for agent in ("", "a")
    ]
    keys = {lane_key(one) for one in lanes} | {session_key((credential, name)), session_key((credential, "other-name"))}
    assert len(keys) == 6
    assert len({key_slot(key.encode()) for key in keys}) == 1 or not credential
    others = {key_slot(session_key((bytes([at]) * 16, name)).encode()) for at in range(8)}
    assert len(others) > 4


async def test_no_key_holds_what_a_client_wrote_beyond_plain_names(ledger: RedisLedger, server: RedisServer) -> None:
    """Agents and sources are hashed, the credential is its hash, a session's name is plain already."""
    await ledger.write({lane(1)._replace(agent="agent-of-a-name", source="x-of-somebody-session-id"): state()}, 0)
    for key in server.stored():
        assert key.startswith(f"callfuse:{{{b'credential'.hex()}}}:lane:")
        assert "agent-of" not in key
        assert "somebody" not in key


async def test_what_was_closed_opens_again(ledger: RedisLedger) -> None:
    """A host may end its life more than once."""
    await ledger.write({lane(1): state(7)}, 0)
    await ledger.aclose()
    await ledger.aclose()
    assert (await rounds_of(ledger, lane(1), 0))[0].position == 7


async def test_connections_end_with_the_host(server: RedisServer) -> None:
    """The middleware sees the lifespan pass by; before the first request there is none."""

    async def app(scope: object, receive: object, send: object) -> None:
        with closing(server.client()) as client:
            assert len(client.client_list()) == 2, "the test's own and the ledger's"

    def others() -> int:
        with closing(server.client()) as client:
            return len(client.client_list()) - 1

    fuse = CallFuseMiddleware(app, {}, store=server.url)
    assert others() == 0
    await set_by(fuse.ledger, session(1), 0)
    await fuse({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert others() == 0


async def test_a_ledger_that_is_given_is_its_owner_s(ledger: RedisLedger, server: RedisServer) -> None:
    """Only its owner closes it."""

    async def app(scope: object, receive: object, send: object) -> None:
        pass

    fuse = CallFuseMiddleware(app, {}, store=ledger)
    await set_by(fuse.ledger, session(1), 0)
    await fuse({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    with closing(server.client()) as client:
        assert len(client.client_list()) == 2


def test_a_url_wins_over_the_configuration_s() -> None:
    """It is shown as a keyword's, without its password, and stays where the configuration changes."""
    fuse = CallFuseMiddleware(play(), {"store": "redis://one"}, store="redis://me:s3cret@other:7000")
    for config in (None, {"store": "redis://third", "tool_call_loop": {"window": 20}}):
        if config:
            fuse.configure(config)
        assert fuse.resolved.config.store == "redis://me:s3cret@other:7000"
        assert fuse.resolved.sources["store",] == "keyword"
    assert fuse.settings.window == 20


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("reddis://me:s3cret@h", "store = 'reddis://***@h' (keyword): there is no such store; did you mean redis://?"),
        (
            "redis://me:s3cret@h?odd=1",
            "store = 'redis://***@h?***' (keyword): an option after ? is unknown. In a password, ",
        ),
        ("redis://me:s3cret@h?max_connections=x", "store = 'redis://h:6379': redis-py does not take this URL: "),
        ("redis+cluster://me:s3cret@h,i?db=x", "store = 'redis+cluster://h:6379,i:6379': redis-py does not take this"),
        (
            "redis+sentinel://me:s3cret@h/m?protocol=x",
            "store = 'redis+sentinel://h:26379/m': redis-py does not take this URL: ",
        ),
        (
            "rediss://me:s3cret@h?ssl_ca_certs=/no/such.pem",
            "store = 'rediss://h:6379': ssl_ca_certs = '/no/such.pem': there is no such file",
        ),
        (
            f"rediss+cluster://me:s3cret@h?ssl_certfile={__file__}",
            "store = 'rediss+cluster://h:6379': ssl_certfile = ",
        ),
    ],
)
def test_a_url_that_is_wrong(store: str, problem: str) -> None:
    """It is an error at the start, which tells no password."""
    with pytest.raises(ConfigError) as caught:
        CallFuseMiddleware(play(), {}, store=store)
    assert str(caught.value).startswith(problem)
    assert "s3cret" not in str(caught.value)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said how to get it."""
    monkeypatch.setattr("callfuse.stores.find_spec", lambda _: None)
    with pytest.raises(
        ConfigError,
        match=r"^store = 'redis://h:6379': needs .* \"callfuse\[redis\]\", or in a checkout .*\"\.\[redis\]\"$",
    ):
        CallFuseMiddleware(play(), {}, store="redis://me:s3cret@h")
    CallFuseMiddleware(play(), {}, store="memory://")


def test_something_else_of_that_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A release from before asyncio's, or a folder of one's own that lies before it on Python's path."""
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.split(".")[0] == "redis" or name == "callfuse.stores.redis"]:
        monkeypatch.delitem(sys.modules, name)
    for module in ("node", "server"):
        monkeypatch.delitem(sys.modules, f"callfuse.stores.{module}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^store = 'redis://h:6379': the installed package redis has no redis.asyncio"
    ):
        CallFuseMiddleware(play(), {}, store="redis://me:s3cret@h")

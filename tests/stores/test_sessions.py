"""Sessions of a shared store are found by their names, changed and reset at any worker, and obeyed by all."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest

from callfuse.admin import AdminApp
from callfuse.conversations.identity import Lane, session_name
from callfuse.conversations.ledger import LaneState, SessionState, StoreUnavailable
from callfuse.observe.bus import Bus
from callfuse.observe.counts import Counts
from callfuse.observe.events import Event, FuseBlown
from callfuse.stores import index, open_ledger
from callfuse.stores.index import RENEWAL
from callfuse.stores.keys import CHANGED, name_key, session_key
from callfuse.stores.redis import MAX_NOTING, RedisLedger
from callfuse.testing import ScriptedVendor, looping_model
from tests.admin.asking import BEARER, PATH, TOKEN, Guarded
from tests.admin.test_live import change, turn
from tests.admin.test_settings import HOSTILE, SESSION
from tests.asgi.test_fuse import CHAT, Agent
from tests.project.sources import document
from tests.support.asgi import Exchange, Headers, Request, drive
from tests.support.kept import TTL, lane, rounds_of, session, set_by, state
from tests.support.redis import RedisServer, free_port

TTL_S = 100.0


def opened(url: str, counts: Counts | None = None, timeout_s: float = 20) -> RedisLedger:
    """A ledger whose sessions are noted, as where there is an admin page."""
    one = open_ledger(url, max_lanes=100, ttl_s=TTL_S, timeout_s=timeout_s, bus=Bus(counts or Counts()))
    assert isinstance(one, RedisLedger)
    one.index_sessions()
    return one


@pytest.fixture
async def pair(server: RedisServer) -> AsyncIterator[tuple[RedisLedger, RedisLedger]]:
    """The ledgers of two processes."""
    one, other = opened(server.url), opened(server.url)
    yield one, other
    for ledger in (one, other):
        await ledger.aclose()


def looping(ledger: RedisLedger, **settings: Any) -> Guarded:
    """A worker with an admin page and a model that makes the same call again and again."""
    script = looping_model("search", {"query": "zebra crossing", "limit": 5}, stubborn=True)
    return Guarded({"tool_call_loop": settings}, vendor=ScriptedVendor(script), store=ledger)


async def reset(guarded: Guarded, query: str) -> Exchange:
    """Reset the fuse of a session."""
    return await guarded.ask(f"{PATH}/reset", BEARER, query, "POST")


def told(exchange: Exchange) -> Any:
    """Status and JSON of an answer."""
    return exchange.status, json.loads(exchange.body)


async def test_a_change_at_one_worker_is_obeyed_by_the_next_request_at_the_other(
    pair: tuple[RedisLedger, RedisLedger],
) -> None:
    """Though the one has never served the session, and the session has set nothing before; unset, likewise."""
    one, other = map(looping, pair)
    await turn(one, 2)
    await pair[0].aclose()  # waits until the session is noted: no exchange does
    assert b'"tool_calls"' not in (await turn(one, 3)).body
    assert told(await change(other, {"tool-loop-mode": "observe", "tool-loop-ttl": "20"})) == (
        200,
        {"changed": [SESSION]},
    )
    assert b'"tool_calls"' in (await turn(one, 5)).body
    rows = {row["key"]: row for row in await one.told("settings", f"session={SESSION}")}
    assert rows["tool_call_loop.mode"]["value"] == "observe"
    await change(one, {"tool-loop-mode": None})
    assert b'"tool_calls"' not in (await turn(other, 6)).body
    for worker in (one, other):
        (listed,) = await worker.told("sessions", "changed=1")
        assert (listed["session"], listed["set"]) == (SESSION, {"ttl_seconds": 20.0})


async def test_the_page_shows_what_can_be_changed(pair: tuple[RedisLedger, RedisLedger]) -> None:
    """The keys with what any worker has set."""
    one, other = map(looping, pair)
    for worker in (one, other):
        await turn(worker, 1)
    await change(one, {"tool-loop-mode": "warn"})
    shown = await other.told("activity/session", f"session={SESSION}")
    assert (shown["problem"], len(shown["clients"])) == ("", 1)
    assert {one["key"]: one["set"] for one in shown["keys"] if one["set"]} == {"tool-loop-mode": "warn"}
    assert SESSION in await other.page()


@pytest.mark.parametrize("named", [True, False], ids=["named", "fingerprint"])
@pytest.mark.parametrize("key", [True, False], ids=["key", "no key"])
async def test_a_fuse_that_has_blown_is_reset_at_any_worker(server: RedisServer, key: bool, named: bool) -> None:
    """The next request reaches the model again at both, whichever took the reset."""
    headers: Headers = ((b"content-type", b"application/json"),)
    headers += ((b"authorization", b"Bearer key"),) if key else ()
    headers += ((b"x-callfuse-session-id", b"my own session"),) if named else ()
    agent = Agent(CHAT, store=server.url, workers=2, headers=headers)
    ledgers = [guard.ledger for guard in agent.guards]
    pages = [AdminApp(guard, token=TOKEN) for guard in agent.guards]
    seen: list[str] = []
    for guard in agent.guards:
        guard.bus.add(_Blown(seen))
    await agent.run(30)
    assert all(guard.counts.of("blown") for guard in agent.guards)
    (name,) = set(seen)
    for page in pages:
        before = agent.spent
        await agent.run(2)
        assert agent.spent == before
        exchange = await drive(page, Request("/reset", b"", BEARER, "POST", f"session={quote(name)}".encode()))
        assert exchange.status == 200, exchange.body
        await agent.run(2)
        assert agent.spent == before + 2
        await agent.run(20)
    for ledger in ledgers:
        assert isinstance(ledger, RedisLedger)
        await ledger.aclose()


class _Blown:
    """Keeps the names of the sessions whose fuse has blown."""

    kinds = frozenset({FuseBlown})

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def take(self, event: Event) -> None:
        """One event."""
        assert isinstance(event, FuseBlown)
        self._seen.append(event.where.session)


async def test_two_clients_with_one_name(pair: tuple[RedisLedger, RedisLedger]) -> None:
    """It is asked which one is meant; the other one stays as it is."""
    one, other = map(looping, pair)
    for client in (b"one", b"two"):
        await pair[0].write({Lane(client, SESSION, b"f" * 16, "x-session-id"): state()}, time.time())
    await pair[0].aclose()
    status, said = told(await change(other, {"tool-loop-mode": "warn"}))
    assert status == 400
    assert "several clients have a session of this name; add client=" in said["error"]
    assert (await reset(other, f"session={SESSION}")).status == 400
    clients = said["error"].partition("client=")[2].split(" or ")
    query = f"session={SESSION}&client={clients[0]}"
    assert told(await change(other, {"tool-loop-mode": "warn"}, query)) == (200, {"changed": [SESSION]})
    assert (await reset(other, query)).status == 200
    assert [listed["client"] for listed in await one.told("sessions", "changed=1")] == [clients[0]]
    assert (await change(other, {"tool-loop-mode": "warn"}, f"session={SESSION}&client=zzz")).status == 404


HOSTILE_NAMES = [HOSTILE, "a:b", "{other}", "*", "x" * 199 + "é", "..", "a." + "f" * 32, "'; return 1 --", "%00 %0a"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_hostile_names(pair: tuple[RedisLedger, RedisLedger], name: str) -> None:
    """A name is found as it is, and nothing but it: it is no pattern, and changes no key but its own."""
    one, other = pair
    query, name = f"session={quote(name, safe='')}", session_name(name)
    await one.write({lane(1): state(), lane(1)._replace(session=name): state()}, time.time())
    await one.aclose()
    page = Guarded(store=other)
    assert told(await change(page, {"tool-loop-mode": "warn"}, query)) == (200, {"changed": [name]})
    assert told(await reset(page, query)) == (200, {"reset": [name]})
    assert [listed["session"] for listed in await page.told("sessions", "changed=1")] == [name]
    assert "<script" not in await page.page(query)
    assert (await set_by(one, session(1), time.time())).overrides.values == {}


@pytest.mark.parametrize("query", ["%ff%00", "a" * 20_000, "." + "f" * 32, ("." + "f" * 32) * 500, "callfuse:changed"])
async def test_names_that_nobody_has(pair: tuple[RedisLedger, RedisLedger], query: str) -> None:
    """They are unknown."""
    page = looping(pair[0])
    await turn(page, 1)
    assert (await change(page, {"tool-loop-mode": "warn"}, f"session={query}")).status == 404
    assert (await reset(page, f"session={query}")).status == 404


async def test_a_store_that_is_down(another: Callable[..., RedisServer]) -> None:
    """It is said with 503, and without the password; nothing is changed, in no memory either. When it is back, all of
    it can be done."""
    server = another(password="s3cret")
    ledger = opened(server.url)
    page = looping(ledger)
    await turn(page, 2)
    await change(page, {"tool-loop-ttl": "20"})
    before = await set_by(ledger, (await ledger.find_sessions(SESSION, time.time()))[0].key, time.time())
    server.end()
    for _ in range(2):  # as it fails, and as it is left alone
        for exchange in (
            await change(page, {"tool-loop-mode": "observe"}),
            await reset(page, f"session={SESSION}"),
            await page.get("sessions"),
            await page.get("settings", f"session={SESSION}"),
        ):
            status, said = told(exchange)
            assert status == 503
            assert f"the store redis://127.0.0.1:{server.port} cannot be used: " in said["error"]
            assert "s3cret" not in said["error"]
        shown = await page.told("activity/session", f"session={SESSION}")
        assert (shown["keys"], "cannot be used" in shown["problem"]) == ([], True)
        assert "No session can be shown: the store redis://" in await page.page()
    assert (await page.get("plain", f"session={SESSION}")).status == 503
    assert b'"tool_calls"' not in (await turn(page, 5)).body, "what was refused does not hold"
    server.start()
    ledger._connection._circuits[""]._due_at = 0.0
    async with asyncio.timeout(60):
        while (await change(page, {"tool-loop-mode": "observe"})).status == 503:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    key = (await ledger.find_sessions(SESSION, time.time()))[0].key
    after = await set_by(ledger, key, time.time())
    assert after.overrides.values.keys() == {*before.overrides.values, "mode"}, "the process has told it what it forgot"
    await ledger.aclose()


async def test_several_sessions_are_changed_together(pair: tuple[RedisLedger, RedisLedger]) -> None:
    """Those that are made of one cache key: all of them, or none if the store fails in between."""
    one, other = pair
    names = [f"cache-key.{at:032x}" for at in range(3)]
    now = time.time()
    await one.write({lane(at)._replace(session=name): state() for at, name in enumerate(names)}, now)
    await one.aclose()
    page = Guarded(store=other)
    status, said = told(await change(page, {"tool-loop-mode": "warn"}, "session=cache-key"))
    assert (status, sorted(said["changed"])) == (200, names)
    assert (await change(page, {"tool-loop-mode": "warn"}, f"session={names[1]}")).status == 200
    gone = opened(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match="cannot be used: ConnectionError"):
        await gone.write_sessions({(b"credential", name): TTL for name in names}, now)
    assert [await set_by(gone, (b"credential", name), now) for name in names] == [SessionState()] * 3
    assert gone._unsent == {}
    await gone.aclose()


async def test_the_last_used_one_comes_first(pair: tuple[RedisLedger, RedisLedger], server: RedisServer) -> None:
    """By the life that the server has left for each, as exchanges extend it; those that have set nothing are not
    listed, and to list extends no life."""
    one, other = pair
    for number in range(3):
        await one.write_session(session(number), TTL, 0)
    await one.write_session(session(3), SessionState(ran=(b"turn",)), 0)
    await one.aclose()
    with closing(server.client()) as client:
        for number, left_s in enumerate((80, 90, 70)):
            client.pexpire(session_key(session(number)), 1000 * left_s)
        listed = await other.sessions(0)
        assert [kept.key for kept in listed] == [session(1), session(0), session(2)]
        assert [round(kept.used) for kept in listed] == [-10, -20, -30]
        assert all(kept.state == TTL for kept in listed)
        assert client.pttl(session_key(session(2))) <= 70_000


async def test_it_ends_with_the_sessions(pair: tuple[RedisLedger, RedisLedger], server: RedisServer) -> None:
    """An entry lives a quarter longer than a session; the keys of the index go with their last entry. A session in use
    stays in it."""
    one, other = pair
    life = (1 + RENEWAL) * TTL_S
    await one.write({lane(1): state()}, 0)
    await one.write_session(session(2), TTL, 0)
    await one.aclose()
    with closing(server.client()) as client:
        for key in (name_key("session-1"), name_key("session-2"), CHANGED):
            assert 1000 * (life - 10) < client.pttl(key) <= 1000 * life
    assert len(await other.find_sessions("session-1", life - 1)) == 1
    assert await other.find_sessions("session-1", life + 1) == []
    for at in range(10, 300, 10):
        await set_by(one, session(2), at)
        await one.aclose()
    assert [kept.key for kept in await other.sessions(300)] == [session(2)]
    await one.write_session(session(3), TTL, 500)
    await one.aclose()
    assert [kept.key for kept in await other.sessions(501)] == [session(3)]
    assert server.ask("ZCARD", CHANGED) == 1, "what is over is dropped"


async def test_a_session_is_noted_once_a_while(pair: tuple[RedisLedger, RedisLedger], server: RedisServer) -> None:
    """When a process first serves it, and when a quarter of its life is over: exchanges in between send nothing
    more, and none waits for it."""
    one, _ = pair
    for at in range(100):
        await one.write({lane(1): state(at)}, at)
        await rounds_of(one, lane(1), at)
        await one.aclose()
    calls = server.calls()
    assert calls["zadd"] == 4
    assert calls["evalsha"] == 2 * 100 + 4


async def test_no_exchange_waits_for_the_index(
    pair: tuple[RedisLedger, RedisLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a note takes; and only so many are on their way."""
    taken = asyncio.Event()
    notes = 0

    async def note(*_: object, **__: object) -> None:
        nonlocal notes
        notes += 1
        await taken.wait()

    monkeypatch.setattr(index.SessionIndex, "note", note)
    for at in range(2 * MAX_NOTING):
        await pair[0].write({lane(at): state(at)}, 0)
        assert (await rounds_of(pair[0], lane(at), 0))[0].position == at
    assert notes == MAX_NOTING
    taken.set()


async def test_what_a_server_has_forgotten_is_noted_again(
    pair: tuple[RedisLedger, RedisLedger], server: RedisServer
) -> None:
    """As after a restart: sessions are found as soon as they are used, with what they have set."""
    one, other = pair
    for number in (1, 2):
        await one.write({lane(number): state()}, 0)
    await one.write_session(session(2), TTL, 0)
    await one.aclose()
    server.forget()
    assert await other.find_sessions("session-2", 1) == []
    for number in (1, 2):
        found, _ = await one.read(lane(number), 1)
        await one.write({lane(number): found}, 1)
    async with asyncio.timeout(60):
        while one._unsent:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    await one.read(lane(2), 2)
    await one.aclose()
    for number, kept in ((1, SessionState()), (2, TTL)):
        (known,) = await other.find_sessions(f"session-{number}", 2)
        assert (known.key, known.state) == (session(number), kept)
    assert [known.key for known in await other.sessions(2)] == [session(2)]


async def test_without_an_admin_page_nothing_is_noted(server: RedisServer) -> None:
    """A process that shows nobody anything writes what it always did, and needs no further rights."""
    one = open_ledger(server.url, max_lanes=100, ttl_s=TTL_S, timeout_s=20, bus=Bus())
    assert isinstance(one, RedisLedger)
    await one.write({lane(1): state()}, 0)
    await one.write_session(session(1), TTL, 0)
    await set_by(one, session(1), 0)
    assert [found.key for found in await one.find_sessions("session-1", 0)] == [session(1)], "its own it knows"
    await one.aclose()
    assert "zadd" not in server.calls()


async def test_to_ask_costs_the_same_in_a_large_database(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is searched for; of one name only so many sessions are kept, and found."""
    monkeypatch.setattr(index, "MOST", 20)
    one, other = opened(server.url), opened(server.url)

    async def cost() -> dict[str, int]:
        server.ask("CONFIG", "RESETSTAT")
        await other.find_sessions("session-1", 60)
        await other.sessions(60)
        found = server.calls()
        assert not {"scan", "keys", "sscan", "zscan"} & set(found)
        return {name: found.get(name, 0) for name in ("get", "zrevrange", "pttl")}

    await one.write({lane(1): state()}, 0)
    await one.aclose()
    few = await cost()
    for at in range(60):
        await one.write_session((at.to_bytes(2, "big"), "session-1"), TTL, at)
        await one.aclose()
    server.ask("EVAL", "for at = 1, 10000 do redis.call('SET', 'other:' .. at, 'x') end", 0)
    many = await cost()
    assert few == {"get": 1, "zrevrange": 2, "pttl": 1}
    assert many == {"get": 40, "zrevrange": 2, "pttl": 40}
    found = [kept.key[0] for kept in await other.find_sessions("session-1", 60)]
    assert found == [at.to_bytes(2, "big") for at in range(59, 39, -1)], "the last ones"
    for ledger in (one, other):
        await ledger.aclose()


def rights() -> tuple[list[str], list[str]]:
    """What a user of the server needs for exchanges, and in addition to find sessions, as the document says it."""
    page = document("docs/settings.md").replace("\n", " ")
    (always,) = re.findall(r"`(~callfuse:\* [^`]+)`", page)
    (further,) = re.findall(r"to find sessions there `([^`]+)`", page)
    return always.split(), further.split()


@pytest.mark.parametrize("left_out", ["", *rights()[1]])
async def test_a_user_of_the_server_without_a_right(server: RedisServer, left_out: str) -> None:
    """Exchanges go on over the store as before; what fails is counted once a pause, and people who ask are told."""
    always, further = rights()
    given = [*always, *(right for right in further if right != left_out)]
    server.ask("ACL", "SETUSER", "app", "reset", "on", ">s3cret", *given)
    counts = Counts()
    ledger = opened(server.url.replace("redis://", "redis://app:s3cret@"), counts)
    page = Guarded(store=ledger)
    try:
        for at in range(30):
            await ledger.write({lane(at): state()}, time.time())
            await asyncio.gather(*ledger._connection._sending)
        is_noted = left_out in ("", "+zrevrange", "+pttl")
        assert (counts.of("store_errors", "index"), counts.of("store_errors")) == ((0, 0) if is_noted else (1, 1))
        assert (await rounds_of(ledger, lane(7), 0))[0].position == 1
        status, said = told(await reset(page, "session=session-1"))
        assert status == (200 if left_out not in ("+zrevrange", "+pttl") else 503)
        assert status == 200 or "cannot be used: " in said["error"]
        assert "s3cret" not in json.dumps(said)
        assert (await rounds_of(ledger, lane(7), 0))[0].position == 1
        assert counts.of("store_skipped") == 0
    finally:
        await ledger.aclose()
        server.ask("ACL", "DELUSER", "app")


async def test_what_somebody_else_has_written(pair: tuple[RedisLedger, RedisLedger], server: RedisServer) -> None:
    """Members that are none are left out; a session that cannot be read counts as having set nothing; a key of
    another kind is a store that refuses, and exchanges go on."""
    one, other = pair
    await one.write({lane(1): state()}, 0)
    await one.aclose()
    for member in ("", "x", "zz:name", "ab:\\xff", ":", "session-1"):
        server.ask("ZADD", name_key("session-1"), 0, member)
    server.ask("SET", session_key(session(1)), "odd")
    assert [found[:2] for found in await other.find_sessions("session-1", 0)] == [(session(1), SessionState())]
    server.ask("DEL", session_key(session(1)))
    server.ask("RPUSH", session_key(session(1)), "odd")
    assert [found.state for found in await other.find_sessions("session-1", 0)] == [SessionState()]
    server.ask("SET", CHANGED, "odd")
    with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
        await other.sessions(0)
    assert (await rounds_of(other, lane(1), 0))[0].position == 1


async def test_a_chain_is_found_by_the_name_of_its_session(pair: tuple[RedisLedger, RedisLedger]) -> None:
    """The lane of an answer's id names the session whose settings hold."""
    one, other = pair
    await one.write({lane(2): LaneState(session="the-first")}, 0)
    await one.aclose()
    assert [found.key for found in await other.find_sessions("the-first", 0)] == [(b"credential", "the-first")]
    assert await other.find_sessions("session-2", 0) == []

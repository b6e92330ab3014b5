"""Run Lua scripts on a Redis or Valkey: one server, one that Sentinels know, or the nodes of a Cluster.

A `RedisServer` belongs to the event loop in which it first runs a script. It connects then, and raises every failure;
the circuit breaker of the ledger decides what follows.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio.connection import ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import ResponseError

from callfuse.boundary import Boundary
from callfuse.errors import ConfigError
from callfuse.stores.address import Address
from callfuse.stores.cluster import SlotMap, elsewhere
from callfuse.stores.node import Argument, Node, Script

MOST_REDIRECTIONS: Final = 6
"""How often nodes of a Cluster may send a script elsewhere: twice is usual while slots move."""
PAUSE_S: Final = 0.01
"""How long a script waits that needs keys of which a Cluster has moved some, and is moving others."""
SENTINEL_TIMEOUT_S: Final = 0.2
"""How long one Sentinel may take to answer, before the next one is asked."""
ASKED_TOGETHER: Final = 3
"""Nodes that are asked at a time who has which slot: one may be dead, and say nothing."""
ASK_TIMEOUT_S: Final = 0.5
"""How long one of them may take to answer."""
FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
"""Options that name files."""
ANY: Final = ""
"""The place of keys where there is one server, or where a Cluster has not been asked yet."""


class RedisServer:
    """Runs scripts on the server at an address. Raises ConfigError if redis-py refuses an option of the URL.

    A `place` is a node of a Cluster; everything else has one place.
    """

    def __init__(self, address: Address) -> None:
        with Boundary() as boundary:  # options of a URL can make redis-py raise anything
            self._pool_of, self._sentinel = _pools(address)
        if boundary.error is not None:
            raise _refused(address, boundary.error)
        self._nodes: dict[str, Node] = {}
        self._seeds = _seeds(address)
        self._slots = SlotMap() if address.cluster else None
        self._learning: asyncio.Task[Exception | None] | None = None
        self._is_old = True

    def place_of(self, key: str) -> str:
        """The place of a key, as far as it is known."""
        return ANY if self._slots is None else self._slots.owner(key)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script and return its answer. Raises what redis-py raises if the server is down or refuses."""
        slots = self._slots
        if slots is None:
            return await self._node(ANY).run(script, keys, arguments)
        if not slots.owner(keys[0]):
            await self.learn()
        elif self._is_old:  # goes on meanwhile: a node that has lost a slot says who has it
            self._learn_once(slots)
        asked, asking = slots.owner(keys[0]), False
        for tries_left in reversed(range(MOST_REDIRECTIONS)):
            if not asked:
                raise Broken("no node of the cluster has the slot")
            try:
                return await self._node(asked).run(script, keys, arguments, asking=asking)
            except ResponseError as error:
                there = elsewhere(error, asked)
                if there is None or not tries_left:
                    raise
            asking = there.code == "ASK"
            if there.code == "TRYAGAIN":
                await asyncio.sleep(PAUSE_S)
            elif there.code == "MOVED":
                slots.move(there.slot, there.node)
                self._is_old = True
            asked = there.node if asking else slots.owner(keys[0])
        raise AssertionError

    async def learn(self) -> None:
        """Ask nodes of a Cluster who has which slot. Raises what the last one raises if none can say it."""
        if self._slots is None:
            return
        error = await asyncio.shield(self._learn_once(self._slots))
        if error is not None:
            raise error

    def _learn_once(self, slots: SlotMap) -> "asyncio.Task[Exception | None]":
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn(slots))
        return self._learning

    async def _learn(self, slots: SlotMap) -> Exception | None:
        """Ask nodes, some at a time, until one has answered; returns why none has."""
        error: Exception | None = Broken("no node of the cluster answers")
        waiting = [*dict.fromkeys([*slots.nodes, *self._seeds])]
        asked: dict[asyncio.Task[Any], str] = {}
        while error is not None and (waiting or asked):
            while waiting and len(asked) < ASKED_TOGETHER:
                node = waiting.pop(0)
                asked[asyncio.create_task(self._ask_slots(node))] = node
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                node = asked.pop(task)
                if error is not None:
                    with Boundary() as boundary:  # a node may answer with anything
                        slots.learn(task.result(), node)
                    error = boundary.error
        self._is_old = error is not None
        for task in asked:
            task.cancel()
        if error is None:
            gone = [place for place in self._nodes if place not in slots.nodes]
            closing = [self._nodes.pop(place).aclose() for place in gone]
            await asyncio.gather(*closing, *asked, return_exceptions=True)
        return error

    async def _ask_slots(self, node: str) -> Any:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await self._node(node).call("CLUSTER", "SLOTS")

    async def leave(self, place: str) -> None:
        """Close the connections to a place: scripts that are running there fail, and the next ones connect anew. A
        Cluster is asked again who has which slot."""
        self._is_old = True
        node = self._nodes.pop(place, None)
        if node is not None:
            await node.aclose()

    async def aclose(self) -> None:
        """Close all connections; scripts that are running fail."""
        nodes, self._nodes = self._nodes, {}
        if self._learning is not None and not self._learning.done():
            self._learning.cancel()
            await asyncio.wait([self._learning])
        sentinels = [] if self._sentinel is None else self._sentinel.sentinels
        await asyncio.gather(*(one.aclose() for one in (*nodes.values(), *sentinels)))

    def _node(self, place: str) -> Node:
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = Node(self._pool_of(place))
        return node


def _seeds(address: Address) -> list[str]:
    """The nodes of a Cluster that an address names, or the one place of another."""
    return [f"{host.name}:{host.port}" for host in address.hosts] if address.cluster else [ANY]


def _pools(address: Address) -> tuple[Callable[[str], Any], Any]:
    """What makes the connections to a place, and the Sentinels, if there are any. Raises what redis-py raises."""
    # The ledger has a time limit of its own; with retries of redis-py an exchange would wait longer.
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "protocol": 2,
    }
    parsed: dict[str, Any] = {**options, **parse_url(address.url)}
    if not (address.cluster or address.master):
        return lambda _: ConnectionPool(**parsed), None
    for name in ("host", "port"):
        parsed.pop(name, None)
    if address.cluster:
        parsed.pop("db", None)
        return lambda place: _pool_of_node(place, parsed), None
    is_tls = parsed.pop("connection_class", None) is SSLConnection
    parsed["connection_class"] = SentinelManagedSSLConnection if is_tls else SentinelManagedConnection
    own = {name: value for name, value in parsed.items() if name.startswith("ssl_")} | {"ssl": is_tls}
    user, password = address.sentinel_login
    timeouts = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), SENTINEL_TIMEOUT_S)
    own |= {**options, **timeouts, "username": user or None, "password": password or None}
    open_sentinels: Any = Sentinel
    open_pool: Any = SentinelConnectionPool
    sentinel = open_sentinels(address.hosts, sentinel_kwargs=own)
    return lambda _: open_pool(address.master, sentinel, **parsed), sentinel


def _pool_of_node(place: str, options: dict[str, Any]) -> Any:
    host, _, port = place.rpartition(":")
    return ConnectionPool(host=host, port=int(port), **options)


def check(address: Address) -> None:
    """Check the options of a URL, and the files that it names. Raises ConfigError."""
    files = [one for one in parse_qsl(urlsplit(address.url).query) if one[0] in FILES]
    for name, value in files:
        if not Path(value).exists():
            raise ConfigError(f"store = {address.label!r}: {name} = {value!r}: there is no such file")
    with Boundary() as boundary:  # options of a URL can make redis-py raise anything
        connection = _pools(address)[0](_seeds(address)[0]).make_connection()
        if isinstance(connection, SSLConnection):
            connection.ssl_context.get()
    error = boundary.error
    if isinstance(error, OSError) and files:  # those of ssl are such, too
        named = ", ".join(f"{name} = {value!r}" for name, value in files)
        why = f"{named}: give a certificate and its key, both as PEM ({error})"
        raise ConfigError(f"store = {address.label!r}: {address.without_secrets(why)}")
    if error is not None:
        raise _refused(address, error)


def _refused(address: Address, error: Exception) -> ConfigError:
    why = address.without_secrets(str(error))
    return ConfigError(f"store = {address.label!r}: redis-py does not take this URL: {why}")


def is_refusal(error: Exception) -> bool:
    """Whether the server has answered that it does not run a script: a right is missing, or a key has another type."""
    return isinstance(error, ResponseError)


def is_passing(error: Exception) -> bool:
    """Whether a Cluster is moving the keys of a script, and all else of it works."""
    return elsewhere(error, "") is not None

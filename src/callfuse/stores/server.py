"""Run Lua scripts on a Redis or Valkey: one server, one that Sentinels know, or the nodes of a Cluster.

A `RedisServer` belongs to the event loop in which it first runs a script. It connects then, and raises every failure.
The circuit breaker of the ledger handles them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio.connection import ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import ResponseError

from callfuse.boundary import Boundary
from callfuse.errors import ConfigError
from callfuse.stores.address import Address
from callfuse.stores.node import Argument, Node, Script
from callfuse.stores.places import MasterMap, SlotMap, elsewhere

MOST_REDIRECTIONS: Final = 6
"""How often nodes of a Cluster may redirect a script: twice is usual while slots move."""
PAUSE_S: Final = 0.01
"""How long a script waits if a Cluster has moved only some of its keys."""
ASKED_TOGETHER: Final = 3
"""Nodes or Sentinels that are asked at a time, because one may not answer."""
ASK_TIMEOUT_S: Final = 0.5
"""How long one of them may take to answer."""
FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
"""Options that name files."""
ANY: Final = ""
"""The place of keys if there is one server, or if a Cluster has not been asked yet."""


class RedisServer:
    """Runs scripts on the server at an address. Raises ConfigError if redis-py refuses an option of the URL.

    A `place` is a node of a Cluster; everything else has one place.
    """

    def __init__(self, address: Address) -> None:
        with Boundary() as boundary:  # options of a URL can make redis-py raise anything
            self._pool_of, self._pool_of_asked = _pools(address)
        if boundary.error is not None:
            raise _refused(address, boundary.error)
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, Node] = {}
        self._map = _map_of(address)
        self._learning: asyncio.Task[Exception | None] | None = None
        self._is_old = True

    def place_of(self, key: str) -> str:
        """Return the place of a key, as far as it is known."""
        return self._map.owner(key) if isinstance(self._map, SlotMap) else ANY

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run a script and return its answer. Raises what redis-py raises if the server is down or refuses."""
        where = self._map
        if where is None:
            return await self._node(ANY).run(script, keys, arguments)
        if not where.owner(keys[0]):
            await self.learn()
        elif self._is_old:  # the script need not wait: a node that has lost a slot redirects it
            self._learn_once(where)
        asked, asking = where.owner(keys[0]), False
        for tries_left in reversed(range(MOST_REDIRECTIONS)):
            if not asked:
                raise Broken(f"{where.asked} has the key")
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
                self._is_old = True
                if isinstance(where, SlotMap):
                    where.move(there.slot, there.node)
            asked = there.node if asking else where.owner(keys[0])
        raise AssertionError

    async def learn(self) -> None:
        """Ask for the owners of slots, or for the master. Raises the last error if all fail."""
        if self._map is None:
            return
        error = await asyncio.shield(self._learn_once(self._map))
        if error is not None:
            raise error

    def _learn_once(self, where: "SlotMap | MasterMap") -> "asyncio.Task[Exception | None]":
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn(where))
        return self._learning

    async def _learn(self, where: "SlotMap | MasterMap") -> Exception | None:
        """Ask a few at a time, until one answers. Returns the last error if none does."""
        error: Exception | None = Broken(f"{where.asked} cannot be asked")
        waiting = where.to_ask
        asked: dict[asyncio.Task[Any], str] = {}
        done: set[asyncio.Task[Any]] = set()
        while error is not None and (waiting or len(done) < len(asked)):
            while waiting and len(asked) - len(done) < ASKED_TOGETHER:
                node = waiting.pop(0)
                asked[asyncio.create_task(self._ask(node, where.question))] = node
            answered, _ = await asyncio.wait(asked.keys() - done, return_when=asyncio.FIRST_COMPLETED)
            done |= answered
            for task in answered:
                with Boundary() as boundary:  # a node may answer with anything
                    where.learn(task.result(), asked[task])
                error = boundary.error
                if error is None:
                    break
        self._is_old = error is not None
        for task in asked:
            task.cancel()
        closing = []
        for nodes, known in ((self._nodes, where.nodes), (self._asked, where.to_ask)) if error is None else ():
            closing += [nodes.pop(place).aclose() for place in [*nodes] if place not in known]
        await asyncio.gather(*closing, *asked, return_exceptions=True)
        return error

    async def _ask(self, place: str, question: Sequence[str]) -> Any:
        node = self._asked.get(place)
        if node is None:
            node = self._asked[place] = Node(self._pool_of_asked(place))
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await node.call(*question)

    async def leave(self, place: str) -> None:
        """Close the connections to a place: scripts that are running there fail, and the next ones connect again, after
        asking for the owners of slots, or for the master."""
        self._is_old = True
        if isinstance(self._map, MasterMap):
            place = self._map.forget()
        node = self._nodes.pop(place, None)
        if node is not None:
            await node.aclose()

    async def aclose(self) -> None:
        """Close all connections; scripts that are running fail."""
        nodes = [*self._nodes.values(), *self._asked.values()]
        self._nodes, self._asked = {}, {}
        if self._learning is not None and not self._learning.done():
            self._learning.cancel()
            await asyncio.wait([self._learning])
        await asyncio.gather(*(one.aclose() for one in nodes))

    def _node(self, place: str) -> Node:
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = Node(self._pool_of(place))
        return node


def _map_of(address: Address) -> SlotMap | MasterMap | None:
    """Return an empty map of keys to servers; None if there is one server."""
    seeds = [f"{host.name}:{host.port}" for host in address.hosts]
    if address.cluster:
        return SlotMap(seeds)
    return MasterMap(seeds, address.master) if address.master else None


def _pools(address: Address) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    """Return what makes connections to a place, and to one that is asked for places. Raises redis-py's errors."""
    # The ledger has its own time limit. Retries of redis-py would make an exchange wait longer.
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": None,
        "protocol": 2,
    }
    options |= parse_url(address.url)
    if not (address.cluster or address.master):
        return lambda _: ConnectionPool(**options), lambda _: ConnectionPool(**options)
    for name in ("host", "port"):
        options.pop(name, None)
    user, password = address.sentinel_login
    asked = dict(options)
    if address.master:
        asked |= {"username": user or None, "password": password or None, "db": 0}
    else:
        options.pop("db", None)
    return partial(_pool_of_node, options), partial(_pool_of_node, asked)


def _pool_of_node(options: Mapping[str, Any], place: str) -> Any:
    host, _, port = place.rpartition(":")
    return ConnectionPool(host=host, port=int(port), **options)


def check(address: Address) -> None:
    """Check the options of a URL, and the files that it names. Raises ConfigError."""
    files = [one for one in parse_qsl(urlsplit(address.url).query) if one[0] in FILES]
    for name, value in files:
        if not Path(value).exists():
            raise ConfigError(f"store = {address.label!r}: {name} = {value!r}: there is no such file")
    with Boundary() as boundary:  # options of a URL can make redis-py raise anything
        place = str(address.hosts[0]) if address.hosts else ANY
        connection = _pools(address)[0](place).make_connection()
        if isinstance(connection, SSLConnection):
            connection.ssl_context.get()
    error = boundary.error
    if isinstance(error, OSError) and files:  # SSL errors are OSErrors, too
        named = ", ".join(f"{name} = {value!r}" for name, value in files)
        why = f"{named}: give a certificate and its key, both as PEM ({error})"
        raise ConfigError(f"store = {address.label!r}: {address.without_secrets(why)}")
    if error is not None:
        raise _refused(address, error)


def _refused(address: Address, error: Exception) -> ConfigError:
    why = address.without_secrets(str(error))
    return ConfigError(f"store = {address.label!r}: redis-py does not take this URL: {why}")


def is_refusal(error: Exception) -> bool:
    """Whether the server refused to run a script: a right is missing, or a key has another type."""
    return isinstance(error, ResponseError)


def is_passing(error: Exception) -> bool:
    """Whether a script failed only because a Cluster is moving its keys."""
    return elsewhere(error, "") is not None

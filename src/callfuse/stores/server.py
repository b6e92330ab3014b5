"""Run Lua scripts on a Redis, Valkey or Cluster. The only module that imports redis-py.

A `RedisServer` belongs to the event loop in which it first runs a script. It connects then, and raises every failure;
the circuit breaker of the ledger decides what follows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

from redis.asyncio import ConnectionPool
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import NoScriptError, ResponseError

from callfuse.boundary import Boundary
from callfuse.errors import ConfigError
from callfuse.stores.address import Address

CONNECTIONS: Final = 32
"""Scripts of one process that run at a time; further ones wait."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script. All of its keys must have the same hash tag, so that one node of a Cluster has them."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the SHA-1 digest, by which EVALSHA knows the script."""
        object.__setattr__(self, "digest", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class RedisServer:
    """Runs scripts on the server at an address. Raises ConfigError if redis-py refuses an option of the URL."""

    def __init__(self, address: Address) -> None:
        # The ledger has a time limit of its own; with retries of redis-py an exchange would wait longer.
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "protocol": 2,
        }
        self._client: Any
        most = CONNECTIONS
        with Boundary() as boundary:  # options of a URL can make redis-py raise anything
            if address.cluster:
                self._client = RedisCluster.from_url(address.url, **options)
            else:
                pool: Any = ConnectionPool.from_url(address.url, **options)
                pool.make_connection()  # checks the options, without IO
                self._client = _Node(pool)
                most = min(most, pool.max_connections)
        if boundary.error is not None:
            why = address.without_secrets(str(boundary.error))
            raise ConfigError(f"store = {address.label!r}: redis-py does not take this URL: {why}")
        self._free = asyncio.Semaphore(most)
        self._closed = 0

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run a script and return its answer. Raises what redis-py raises if the server is down or refuses."""
        async with self._free:
            closed = self._closed
            try:
                return await self._run(script, keys, arguments)
            except Broken:
                if closed != self._closed:
                    raise
            # Idle connections may have been closed by the server. Running a script twice does no harm.
            if isinstance(self._client, _Node):
                await self._client.drop_idle()
            return await self._run(script, keys, arguments)

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    async def aclose(self) -> None:
        """Close all connections; scripts that are running fail."""
        self._closed += 1
        await self._client.aclose()


class _Node:
    """Runs commands on one server, over connections that redis-py makes and reads. With its pool and client a command
    takes twice the time, for retries, callbacks and metrics that nothing here asks for."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._connections: set[Any] = set()
        self._idle: list[Any] = []

    async def execute_command(self, *arguments: str | bytes | int) -> Any:
        """Run a command and return its answer."""
        connection = self._idle.pop() if self._idle else self._pool.make_connection()
        self._connections.add(connection)
        is_free = False
        try:
            await connection.send_packed_command(_packed(arguments))
            answer = await connection.read_response()
            is_free = True
        except ResponseError:  # an answer, too
            is_free = True
            raise
        finally:
            if is_free:
                self._idle.append(connection)
            else:  # an answer may still come; redis-py has closed it
                self._connections.discard(connection)
        return answer

    async def drop_idle(self) -> None:
        """Close the connections that run no command."""
        idle, self._idle = self._idle, []
        self._connections.difference_update(idle)
        await asyncio.gather(*(connection.disconnect() for connection in idle))

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(connection.disconnect() for connection in self._connections))


def _packed(arguments: Sequence[str | bytes | int]) -> bytes:
    """Encode a command as it is sent."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        text = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def is_refusal(error: Exception) -> bool:
    """Whether the server has answered that it does not run a script: a right is missing, or a key has another type."""
    return isinstance(error, ResponseError)

"""Run scripts on a Redis, Valkey or Cluster: the only module that knows redis-py.

A server belongs to the event loop in which it first runs a script. It connects when a script runs, and raises what
fails: the ledger's circuit breaker decides what follows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import NoScriptError

from callfuse.boundary import Boundary
from callfuse.errors import ConfigError
from callfuse.stores.address import Address

CONNECTIONS: Final = 32
"""Scripts that run at a time, in each process; the others wait for their turn."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a server runs in one piece. All of its keys have one hash tag, so that one node of a Cluster has them."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Servers know scripts by SHA-1."""
        object.__setattr__(self, "digest", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Server:
    """The server at an address. Raises ConfigError for a URL with options that redis-py does not take."""

    def __init__(self, address: Address) -> None:
        # Timeouts and retries of its own would add up to the ledger's limit.
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": None,
            "protocol": 2,
        }
        self._client: Any
        most = CONNECTIONS
        with Boundary() as boundary:  # redis-py may raise anything: an option may name anything in it
            if address.cluster:
                self._client = RedisCluster.from_url(address.url, **options)
            else:
                self._client = Redis.from_url(address.url, **options)
                self._client.connection_pool.make_connection()  # only this looks at the options; it does no IO
                most = min(most, self._client.connection_pool.max_connections)
        if boundary.error is not None:
            why = address.without_secrets(str(boundary.error))
            raise ConfigError(f"store = {address.shown!r}: redis-py does not take this URL: {why}")
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
            # Connections that were silent for long may have been closed. Both scripts may run twice.
            if isinstance(self._client, Redis):
                await self._client.connection_pool.disconnect(inuse_connections=False)
            return await self._run(script, keys, arguments)

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    async def aclose(self) -> None:
        """Close its connections; what still waits for an answer fails."""
        self._closed += 1
        await self._client.aclose()

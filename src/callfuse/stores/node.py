"""Run Lua scripts on one server of Redis or Valkey, over connections of redis-py."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

from redis.exceptions import ConnectionError as Broken
from redis.exceptions import NoScriptError, ResponseError

CONNECTIONS: Final = 32
"""Scripts of one process that run at a time on one server; further ones wait."""

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script. All of its keys must have the same hash tag, so that they are on one node of a Cluster."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the SHA-1 digest, by which EVALSHA knows the script."""
        object.__setattr__(self, "digest", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Node:
    """Runs commands on one server. The pool and the client of redis-py would double the time of a command, for retries,
    callbacks and metrics that are not needed here."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._connections: set[Any] = set()
        self._idle: list[Any] = []
        self._free = asyncio.Semaphore(min(CONNECTIONS, pool.max_connections))
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], *, asking: bool = False
    ) -> Any:
        """Run a script and return its answer. `asking`: the keys are being moved to this node of a Cluster. Raises what
        redis-py raises if the server is down or refuses."""
        rest = (len(keys), *keys, *arguments)
        try:
            return await self.call("EVALSHA", script.digest, *rest, asking=asking)
        except NoScriptError:
            return await self.call("EVAL", script.text, *rest, asking=asking)

    async def call(self, *arguments: Argument, asking: bool = False) -> Any:
        """Run a command and return its answer, as `run` does."""
        packed = _ASKING + _packed(arguments) if asking else _packed(arguments)
        async with self._free:
            if self._is_closed:
                raise Broken("its connections were closed")
            try:
                return await self._exchange(packed, answers=1 + asking)
            except Broken:
                if self._is_closed:
                    raise
            # The server may have closed idle connections. Running a script twice does no harm.
            await self._drop_idle()
            return await self._exchange(packed, answers=1 + asking)

    async def aclose(self) -> None:
        """Close all connections. Running commands fail, and later ones, too."""
        self._is_closed = True
        await asyncio.gather(*(connection.disconnect() for connection in self._connections), *self._ending)

    async def _exchange(self, packed: bytes, answers: int) -> Any:
        """Send commands over one connection, and return the last answer."""
        connection = self._idle.pop() if self._idle else self._pool.make_connection()
        self._connections.add(connection)
        is_free = False
        try:
            if not connection.is_connected:
                await connection.connect()  # works with each release of redis-py
            await connection.send_packed_command(packed)
            for _ in range(answers - 1):
                with suppress(ResponseError):
                    await connection.read_response()
            answer = await connection.read_response()
            is_free = True
        except ResponseError:  # also an answer
            is_free = True
            raise
        finally:
            if is_free:
                self._idle.append(connection)
            else:  # a late answer must not be read; redis-py has closed the connection unless it was connecting
                self._connections.discard(connection)
                if connection.is_connected:
                    ending = asyncio.create_task(connection.disconnect(nowait=True))
                    self._ending.add(ending)
                    ending.add_done_callback(self._ending.discard)
        return answer

    async def _drop_idle(self) -> None:
        """Close the connections that run no command."""
        idle, self._idle = self._idle, []
        self._connections.difference_update(idle)
        await asyncio.gather(*(connection.disconnect() for connection in idle))


def _packed(arguments: Sequence[Argument]) -> bytes:
    """Return a command in the form of the protocol."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        text = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


_ASKING: Final = _packed(["ASKING"])

"""Share the events of several processes in one stream of a Redis or Valkey (`observe/feed.py` defines relays).

One script, in one round trip, adds the events of a process and returns the events that it has not read yet. Each
process uses one connection, and a circuit breaker for a server that fails.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from callfuse.boundary import Boundary
from callfuse.observe.bus import Bus
from callfuse.observe.events import StoreFailed
from callfuse.observe.ring import EventId
from callfuse.stores.address import Address
from callfuse.stores.breaker import Breaker
from callfuse.stores.keys import FEED, StreamPlace
from callfuse.stores.node import Script
from callfuse.stores.replies import read_entries
from callfuse.stores.server import RedisServer

LEAST_TIMEOUT_S: Final = 1.0
"""The least time limit: no exchange waits for it, and the last events may be some MB."""

EXCHANGE: Final = Script("""
local after, most = ARGV[1], tonumber(ARGV[2])
for at = 5, #ARGV do redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'e', ARGV[at]) end
if #ARGV > 4 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
if most == 0 then return {} end
if after == '' then
  local found, back = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', most), {}
  for at = #found, 1, -1 do back[#back + 1] = found[at] end
  return back
end
local found = redis.call('XREAD', 'COUNT', most, 'STREAMS', KEYS[1], after)
return found and found[1] and found[1][2] or {}
""")
"""Add the events from ARGV[5] on to the stream KEYS[1], which keeps about ARGV[3] events for ARGV[4] milliseconds.
Return at most ARGV[2] events after the id ARGV[1], or the last ones if that is empty, oldest first."""


class SharedStream:
    """A relay over the server at `address`. Raises ConfigError if redis-py refuses the URL. `clock` returns seconds."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
        stream: StreamPlace = FEED,
    ) -> None:
        self._stream = stream
        self._address = address
        self._timeout_s = max(LEAST_TIMEOUT_S, timeout_s)
        self._bus = bus
        self._breaker = Breaker(clock)
        RedisServer(address)  # raises ConfigError
        self._server: RedisServer | None = None

    async def exchange(
        self, data: Sequence[bytes], after: EventId | None, most: int
    ) -> Sequence[tuple[str, bytes]] | None:
        """Add events. Return at most `most` events after `after`, or the last ones if that is None. Returns None if the
        store is down; an event that was added just before may then come twice."""
        if not self._breaker.closed and not self._breaker.is_due():
            return None
        place = self._stream
        begin = "" if after is None else f"{after[0]}-{after[1]}"
        with Boundary():  # the client library may raise anything
            async with asyncio.timeout(self._timeout_s):
                server = self._server = self._server or RedisServer(self._address)
                reply = await server.run(EXCHANGE, [place.key], [begin, most, place.most, 1000 * place.kept_s, *data])
                # Entries of other programs are included, without data: their ids are needed to read on.
                found = read_entries(reply)
                if not self._breaker.closed:
                    self._breaker.close()
                return found
        self._breaker.record_failure()
        await self.aclose()
        self._bus.emit(StoreFailed(self._address.label, place.operation))
        return None

    async def aclose(self) -> None:
        """Close the connection. The next exchange opens another."""
        server, self._server = self._server, None
        if server is not None:
            with Boundary():  # errors do not matter: the server is not used any more
                async with asyncio.timeout(LEAST_TIMEOUT_S):
                    await server.aclose()

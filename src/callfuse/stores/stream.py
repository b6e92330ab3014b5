"""The events of several processes, in one stream of a Redis or Valkey (`observe/feed.py` says what a relay does).

One script, one round trip, adds what a process has and returns what it has not yet read. It is run in turns, over one
connection a process, and a circuit breaker leaves a server alone that fails.
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
"""Add the events ARGV[5] and on to the stream KEYS[1] of about ARGV[3] events, which lives for ARGV[4] milliseconds,
and return at most ARGV[2] behind the id ARGV[1], or if that is empty the last ones, oldest first."""


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
        """Add events, and return at most `most` that stand behind `after`, or the last ones (None). None where the
        store is down; an event that was added just before it went down may come twice."""
        if not self._breaker.closed and not self._breaker.is_due():
            return None
        place = self._stream
        begin = "" if after is None else f"{after[0]}-{after[1]}"
        with Boundary():  # the client library may raise anything
            async with asyncio.timeout(self._timeout_s):
                server = self._server = self._server or RedisServer(self._address)
                reply = await server.run(EXCHANGE, [place.key], [begin, most, place.most, 1000 * place.kept_s, *data])
                # Those of other programs, too, without data: what is behind them is asked for by their ids.
                found = read_entries(reply)
                if not self._breaker.closed:
                    self._breaker.close()
                return found
        self._breaker.record_failure()
        await self.aclose()
        self._bus.emit(StoreFailed(self._address.label, place.operation))
        return None

    async def aclose(self) -> None:
        """Close the connection; the next exchange opens one."""
        server, self._server = self._server, None
        if server is not None:
            with Boundary():  # the server is not used any more, so errors do not matter
                async with asyncio.timeout(LEAST_TIMEOUT_S):
                    await server.aclose()

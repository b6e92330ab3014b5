"""Share state between processes: Redis or Valkey behind a circuit breaker, with the memory of the process as fallback.

`open_ledger` makes the ledger for the URL of the setting `store`, `open_relay` the relay of the event feed.
"""

import asyncio
import time
from importlib.util import find_spec

from callfuse.boundary import Boundary
from callfuse.conversations.ledger import Ledger
from callfuse.conversations.memory import MAX_BYTES, MemoryLedger
from callfuse.errors import ConfigError, install_hint
from callfuse.observe.bus import Bus
from callfuse.observe.events import LedgerDropped
from callfuse.observe.feed import Relay
from callfuse.stores.address import address_of
from callfuse.stores.keys import FEED, StreamPlace

__all__ = ["open_ledger", "open_relay", "probe", "require"]


def require(store: str) -> None:
    """Check that a store URL can be used. Raises ConfigError if the client library is missing or refuses the URL."""
    open_ledger(store, max_lanes=1, ttl_s=1, timeout_s=1, bus=Bus())


def open_ledger(
    store: str, *, max_lanes: int, ttl_s: float, timeout_s: float, bus: Bus, max_bytes: int = MAX_BYTES
) -> Ledger:
    """Make the ledger for a checked URL. It connects when it is first used.

    `max_lanes` and `max_bytes` bound the memory of this process, `ttl_s` is how long lanes and sessions are kept after
    their last use, `timeout_s` how long an exchange waits for the server, both in seconds. `bus` gets the events of the
    store. Raises ConfigError if the client library is missing or refuses the URL.
    """
    local = MemoryLedger(
        max_lanes=max_lanes,
        ttl_s=ttl_s,
        max_bytes=max_bytes,
        on_drop=lambda limit: bus.emit(LedgerDropped(limit)),
    )
    address = address_of(store)
    if address is None:
        return local
    if find_spec("redis") is None:
        raise ConfigError(f"store = {address.label!r}: needs the package redis: {install_hint('redis')}")
    try:
        from callfuse.stores.redis import RedisLedger
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise ConfigError(
            f"store = {address.label!r}: the installed package redis has no {error.name}: {install_hint('redis')}"
        ) from None

    return RedisLedger(address, local=local, ttl_s=ttl_s, timeout_s=timeout_s, bus=bus)


def open_relay(store: str, *, timeout_s: float, bus: Bus, stream: StreamPlace = FEED) -> Relay | None:
    """Make the relay of the event feed, or of another stream, for the URL of a store with an open ledger; None for
    `memory://`."""
    address = address_of(store)
    if address is None:
        return None
    from callfuse.stores.stream import SharedStream

    return SharedStream(address, timeout_s=timeout_s, bus=bus, stream=stream)


async def probe(store: str, timeout_s: float) -> float:
    """Write a short-lived value to a shared store. Returns the seconds that a write takes on an open connection.

    Raises ConfigError if its URL cannot be used, and OSError with the reason, without credentials, if it fails.
    """
    require(store)
    address = address_of(store)
    if address is None:
        return 0.0
    from callfuse.stores.connection import touch
    from callfuse.stores.server import RedisServer

    server, began = RedisServer(address), 0.0
    with Boundary() as boundary:  # the client library may raise anything
        async with asyncio.timeout(timeout_s):
            await touch(server)
            began = time.perf_counter()
            await touch(server)
    seconds = time.perf_counter() - began
    with Boundary():
        await server.aclose()
    error = boundary.error
    if error is not None:
        why = "no answer" if isinstance(error, TimeoutError) else address.without_secrets(str(error))
        raise OSError(f"{address.label}: {type(error).__name__}: {why}")
    return seconds

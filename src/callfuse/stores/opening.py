"""The ledger for the URL of a setting."""

from importlib.util import find_spec

from callfuse.conversations.ledger import Ledger, MemoryLedger
from callfuse.errors import ConfigError
from callfuse.observe.counts import Counts
from callfuse.stores.address import address_of


def require(store: str) -> None:
    """Raises ConfigError where the client library of a store is missing, or does not take its URL."""
    opened(store, max_lanes=1, ttl_s=1, timeout_s=1, counts=Counts())


def opened(store: str, *, max_lanes: int, ttl_s: float, timeout_s: float, counts: Counts) -> Ledger:
    """The ledger at a URL that has been checked. Opens no connection before it is used. Raises ConfigError where the
    client library is missing, or does not take the URL."""
    local = MemoryLedger(max_lanes=max_lanes, ttl_s=ttl_s)
    address = address_of(store)
    if address is None:
        return local
    if find_spec("redis") is None:
        raise ConfigError(f"store = {address.shown!r}: needs the package redis: pip install 'callfuse[redis]'")
    try:
        from callfuse.stores.redis import RedisLedger
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "redis":
            raise
        raise ConfigError(
            f"store = {address.shown!r}: what is installed as redis has no {error.name}: pip install 'callfuse[redis]'"
        ) from None

    return RedisLedger(address, local=local, ttl_s=ttl_s, timeout_s=timeout_s, counts=counts)

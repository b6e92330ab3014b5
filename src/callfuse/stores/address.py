"""Parse the URL of a store into an address that can be logged without credentials.

`memory://` is the memory of the process; all other URLs are of Redis or Valkey, which speak the same protocol.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from callfuse.policy.nearest import nearest

MEMORY: Final = "memory://"
SCHEMES: Final = {
    "memory": "",
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
    "redis+cluster": "redis",
    "rediss+cluster": "rediss",
    "valkey+cluster": "redis",
    "valkeys+cluster": "rediss",
}
"""URL schemes, with the scheme that redis-py knows each by. An `s` at the end means TLS."""
STORE_HINT: Final = (
    "use memory://, or the URL of a Redis or Valkey: redis://HOST:PORT/DB, rediss:// (TLS), redis+cluster:// or "
    "unix:///PATH, as in redis://localhost:6379/0"
)

_OWN_OPTIONS: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "retry"})
"""Options of redis-py that callfuse sets itself; other values would break reading and writing."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis or Valkey. `url` is for redis-py, `cluster`: it is a Cluster, `label` is its name in logs."""

    url: str
    cluster: bool
    label: str
    secrets: tuple[str, ...]
    """Passwords, percent-encoded and decoded, the longest first."""

    def without_secrets(self, text: str) -> str:
        """Mask the passwords in a server's error message, which may quote a command."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def check_store_url(value: str) -> str:
    """Check the URL of a store, and return it. Raises ValueError, which says what would be right."""
    address_of(value)
    return value


def address_of(value: str) -> Address | None:
    """Parse the URL of a store; None for `memory://`. Raises ValueError, which says what would be right."""
    scheme, rest = _split(value)
    if scheme == "memory":
        if rest:
            raise ValueError("memory:// is the memory of this process, and takes no address")
        return None
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it contains white space or control characters; {STORE_HINT}")
    cluster = scheme.endswith("+cluster")
    parts = _parts(value)
    if scheme == "unix":
        if parts.path in ("", "/"):
            raise ValueError("name the socket's file, as in unix:///run/redis.sock")
        label = f"unix://{parts.path}"
    else:
        label = f"{scheme}://{_host_and_database(parts, cluster=cluster)}"
    return Address(f"{SCHEMES[scheme]}://{rest}", cluster, label, _secrets(parts))


def _split(value: str) -> tuple[str, str]:
    """Split a URL into its lower-case scheme and the rest. Raises ValueError for an unknown scheme."""
    scheme, mark, rest = value.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        near = nearest(scheme, SCHEMES) if mark else None
        raise ValueError(f"there is no such store; did you mean {near}://?" if near else STORE_HINT)
    return scheme, rest


def _secrets(parts: SplitResult) -> tuple[str, ...]:
    """The passwords in a URL, encoded and decoded, the longest first. Raises ValueError for an own option."""
    options = parse_qsl(parts.query)
    if wrong := next((name for name, _ in options if name in _OWN_OPTIONS), None):
        raise ValueError(f"leave out the option {wrong}, which callfuse sets itself")
    found = [parts.password, *(text for name, text in options if "password" in name)]
    secrets = {form for secret in found if secret for form in (secret, unquote(secret))}
    return tuple(sorted(secrets, key=len, reverse=True))


def _parts(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        # The text of urlsplit may quote the URL, credentials and all, so only the port's own complaint is kept.
        what = "its port is not a number from 1 to 65535" if str(error).startswith("Port") else "it is not a URL"
        raise ValueError(f"{what}; {STORE_HINT}") from None
    if port == 0 or parts.fragment:
        raise ValueError(STORE_HINT)
    return parts


def _host_and_database(parts: SplitResult, *, cluster: bool) -> str:
    """Host, port and database, for logs. Raises ValueError if one is wrong."""
    if not parts.hostname:
        raise ValueError(f"it names no host; {STORE_HINT}")
    if not re.fullmatch(r"(/\d*)?", parts.path, re.ASCII):
        raise ValueError(f"after the host only the number of a database is allowed; {STORE_HINT}")
    if cluster and parts.path not in ("", "/", "/0"):
        raise ValueError("a cluster only has database 0; leave out the number")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or 6379}{parts.path}"

"""Read the URL of a store into an address that shows no credentials in logs.

`memory://` is this process's own memory; all other URLs are of Redis or Valkey, which speak the same protocol.
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
"""The schemes of URLs, and what redis-py calls each. An `s` is TLS."""
RIGHT_STORE: Final = (
    "use memory://, or the URL of a Redis or Valkey: redis://HOST:PORT/DB, rediss:// (TLS), redis+cluster:// or "
    "unix:///PATH, as in redis://localhost:6379/0"
)

_OURS: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "retry"})
"""Options of redis-py that callfuse sets; another value would break what is read and written."""


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis or Valkey: its URL as redis-py takes it, whether it is a Cluster, and what logs call it."""

    url: str
    cluster: bool
    shown: str
    secrets: tuple[str, ...]
    """Passwords, as they are and unquoted, the longest first."""

    def without_secrets(self, text: str) -> str:
        """Mask the secrets in an error of a server, which may quote what it was sent."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def check_store_url(value: str) -> str:
    """Check the URL of a store, and return it. ValueError says what would be right."""
    address_of(value)
    return value


def address_of(value: str) -> Address | None:
    """Read the URL of a store; None for memory. ValueError says what would be right."""
    scheme, rest = _split(value)
    if scheme == "memory":
        if rest:
            raise ValueError("memory:// is the memory of this process, and takes no address")
        return None
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it has white space or control characters in it; {RIGHT_STORE}")
    cluster = scheme.endswith("+cluster")
    parts = _parts(value)
    if scheme == "unix":
        if parts.path in ("", "/"):
            raise ValueError("name the socket's file, as in unix:///run/redis.sock")
        shown = f"unix://{parts.path}"
    else:
        shown = f"{scheme}://{_host_and_database(parts, cluster=cluster)}"
    return Address(f"{SCHEMES[scheme]}://{rest}", cluster, shown, _secrets(parts))


def _split(value: str) -> tuple[str, str]:
    """The scheme of a URL in lower case, and what follows it; ValueError for an unknown scheme."""
    scheme, mark, rest = value.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        near = nearest(scheme, SCHEMES) if mark else None
        raise ValueError(f"there is no such store; did you mean {near}://?" if near else RIGHT_STORE)
    return scheme, rest


def _secrets(parts: SplitResult) -> tuple[str, ...]:
    """The passwords in a URL, as they are and unquoted, the longest first; ValueError for options that we set."""
    options = parse_qsl(parts.query)
    if wrong := next((name for name, _ in options if name in _OURS), None):
        raise ValueError(f"leave out the option {wrong}, which callfuse sets itself")
    given = [parts.password, *(text for name, text in options if "password" in name)]
    secrets = {form for secret in given if secret for form in (secret, unquote(secret))}
    return tuple(sorted(secrets, key=len, reverse=True))


def _parts(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        # The text of urlsplit may quote the URL, credentials and all, so only the port's own complaint is kept.
        what = "its port is no number from 1 to 65535" if str(error).startswith("Port") else "it is no URL"
        raise ValueError(f"{what}; {RIGHT_STORE}") from None
    if port == 0 or parts.fragment:
        raise ValueError(RIGHT_STORE)
    return parts


def _host_and_database(parts: SplitResult, *, cluster: bool) -> str:
    """Host, port and database for logs; ValueError if one is wrong."""
    if not parts.hostname:
        raise ValueError(f"it names no host; {RIGHT_STORE}")
    if not re.fullmatch(r"(/\d*)?", parts.path, re.ASCII):
        raise ValueError(f"what follows the host is the number of a database; {RIGHT_STORE}")
    if cluster and parts.path not in ("", "/", "/0"):
        raise ValueError("a Cluster has the database 0 only; leave out the number")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or 6379}{parts.path}"

"""Parse the URL of a store into an address that can be logged without credentials.

`memory://` is the memory of the process; all other URLs are for Redis or Valkey, which have the same protocol. They
name one server, nodes of a Cluster, or Sentinels, which know the address of the server.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from callfuse.policy.nearest import nearest

MEMORY: Final = "memory://"
CLUSTER: Final = "+cluster"
SENTINEL: Final = "+sentinel"
PORT: Final = 6379
SENTINEL_PORT: Final = 26379
SCHEMES: Final = {
    "memory": "",
    "unix": "unix",
    **{
        f"{name}{'s' * is_tls}{kind}": "rediss" if is_tls else "redis"
        for name, tls in (("redis", "rediss"), ("valkey", "valkeys"))
        for is_tls in (False, True)
        for kind in ("", CLUSTER, SENTINEL)
    },
}
"""URL schemes, each with its scheme in redis-py. An `s` at the end means TLS."""
STORE_HINT: Final = (
    "use memory://, or the URL of a Redis or Valkey: redis://HOST:PORT/DB, rediss:// (TLS), "
    "redis+cluster://HOST,HOST, redis+sentinel://HOST,HOST/MASTER or unix:///PATH, as in redis://localhost:6379/0"
)

_OWN_OPTIONS: Final = frozenset({"decode_responses", "encoding", "encoding_errors", "retry"})
"""Options of redis-py that callfuse sets itself; other values would break reading and writing."""
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
_TLS: Final = "ssl_"
_OPTIONS: Final = frozenset({
    "client_name", "db", "health_check_interval", "lib_name", "lib_version", "max_connections", "password", "protocol",
    "retry_on_timeout", "socket_connect_timeout", "socket_keepalive", "socket_read_size", "socket_timeout",
    "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers",
    "ssl_exclude_verify_flags", "ssl_include_verify_flags", "ssl_keyfile", "ssl_min_version", "ssl_password",
    "username", *_SENTINEL_OPTIONS,
})  # fmt: skip
"""Options of redis-py that a URL may have, and options for Sentinels."""


class Endpoint(NamedTuple):
    """The address of a server, a node or a Sentinel."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a Redis or Valkey. `url`: for redis-py, `label`: its name in logs. `hosts`: the server, nodes of a
    Cluster or Sentinels; empty for a Unix socket."""

    url: str
    label: str
    secrets: tuple[str, ...]
    """Passwords, percent-encoded and decoded, the longest first."""
    hosts: tuple[Endpoint, ...] = ()
    cluster: bool = False
    master: str = ""
    """The server's name at its Sentinels; empty without Sentinels."""
    sentinel_login: tuple[str, str] = ("", "")
    """User and password for Sentinels."""

    def without_secrets(self, text: str) -> str:
        """Mask the passwords in a server's error message, which may quote a command."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def check_store_url(value: str) -> str:
    """Check the URL of a store, and return it. Raises ValueError, which describes a valid URL."""
    address_of(value)
    return value


def address_of(value: str) -> Address | None:
    """Parse the URL of a store; None for `memory://`. Raises ValueError, which describes a valid URL."""
    scheme, rest = _split(value)
    if scheme == "memory":
        if rest:
            raise ValueError("memory:// is the memory of this process, and takes no address")
        return None
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it contains white space or control characters; {STORE_HINT}")
    parts = _parts(value)
    secrets = _secrets(parts)
    client = SCHEMES[scheme]
    if scheme == "unix":
        _check_options(parts.query, scheme)
        if parts.path in ("", "/"):
            raise ValueError("name the socket's file, as in unix:///run/redis.sock")
        return Address(f"{client}://{rest}", f"unix://{parts.path}", secrets)
    user, at, listed = parts.netloc.rpartition("@")
    hosts = _hosts(listed, scheme)
    _check_options(parts.query, scheme)
    if scheme.endswith(SENTINEL):
        master, database = _master_and_database(parts.path)
        options = parse_qsl(parts.query, keep_blank_values=True)
        login = tuple([dict(options).get(name, "") for name in _SENTINEL_OPTIONS])
        query = urlencode([one for one in options if one[0] not in _SENTINEL_OPTIONS])
        url = f"{client}://{user}{at}{hosts[0]}{database}{query and '?' + query}"
        label = f"{scheme}://{','.join(map(str, hosts))}/{master}{database}"
        return Address(url, label, secrets, hosts, master=master, sentinel_login=(login[0], login[1]))
    _check_database(parts.path, is_cluster=scheme.endswith(CLUSTER))
    url = f"{client}://{user}{at}{listed.partition(',')[0]}{parts.path}{parts.query and '?' + parts.query}"
    label = f"{scheme}://{','.join(map(str, hosts))}{parts.path}"
    return Address(url, label, secrets, hosts, cluster=scheme.endswith(CLUSTER))


def _split(value: str) -> tuple[str, str]:
    """Split a URL into its lower-case scheme and the rest. Raises ValueError for an unknown scheme."""
    scheme, mark, rest = value.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        near = nearest(scheme, SCHEMES) if mark else None
        raise ValueError(f"there is no such store; did you mean {near}://?" if near else STORE_HINT)
    return scheme, rest


def _secrets(parts: SplitResult) -> tuple[str, ...]:
    """Return the passwords in a URL, encoded and decoded, the longest first."""
    found = [parts.password, *(text for name, text in parse_qsl(parts.query) if "password" in name)]
    secrets = {form for secret in found if secret for form in (secret, unquote(secret))}
    return tuple(sorted(secrets, key=len, reverse=True))


def _check_options(query: str, scheme: str) -> None:
    """Raise ValueError for an option that does not exist, or that this scheme does not allow."""
    is_tls = SCHEMES[scheme] == "rediss"
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name in _OWN_OPTIONS:
            raise ValueError(f"leave out the option {name}, which callfuse sets itself")
        if name not in _OPTIONS:
            near = nearest(name[:40], _OPTIONS, typo_only=True)
            if near:
                raise ValueError(f"there is no option {name[:40]!r}; did you mean {near}?")
            # The option may be part of a password, so it is not quoted.
            known = ", ".join(sorted(_OPTIONS))
            raise ValueError(f"an option after ? is unknown. In a password, write %3F for ?; otherwise use {known}")
        if name in _SENTINEL_OPTIONS and not scheme.endswith(SENTINEL):
            raise ValueError(f"the option {name} is for Sentinels: {scheme.partition('+')[0]}{SENTINEL}://")
        if name.startswith(_TLS) and not is_tls:
            raise ValueError(f"the option {name} is for TLS: {_with_tls(scheme)}://")


def _with_tls(scheme: str) -> str:
    """Return the same scheme with TLS."""
    name, mark, kind = scheme.partition("+")
    return f"{'rediss' if name == 'unix' else f'{name}s'}{mark}{kind}"


def _parts(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
    except ValueError:  # its text may quote the URL with credentials
        raise ValueError(f"it is not a URL; {STORE_HINT}") from None
    if parts.fragment:
        raise ValueError(STORE_HINT)
    return parts


def _hosts(listed: str, scheme: str) -> tuple[Endpoint, ...]:
    """Return the hosts of a URL, which are separated by commas. Raises ValueError, which quotes no host, because it may
    be part of a password."""
    names = listed.split(",")
    several = scheme.endswith((CLUSTER, SENTINEL))
    if len(names) > 1 and not several:
        raise ValueError(
            f"only a Cluster or Sentinels may have several hosts: {scheme}{CLUSTER}:// or {scheme}{SENTINEL}://"
        )
    default = SENTINEL_PORT if scheme.endswith(SENTINEL) else PORT
    hosts = []
    for at, name in enumerate(names, 1):
        which = f"host {at} of {len(names)}: " if len(names) > 1 else ""
        try:
            one = urlsplit(f"//{name}")
            host, port = one.hostname, one.port
        except ValueError as error:
            is_port = str(error).startswith("Port")
            what = "its port is not a number from 1 to 65535" if is_port else "it is not a URL"
            raise ValueError(f"{which}{what}; {STORE_HINT}") from None
        if not host:
            raise ValueError(f"{which}it names no host; {STORE_HINT}")
        if port == 0:
            raise ValueError(f"{which}its port is not a number from 1 to 65535; {STORE_HINT}")
        hosts.append(Endpoint(host, port or default))
    return tuple(hosts)


def _check_database(path: str, *, is_cluster: bool) -> None:
    """Raise ValueError for a path that is not a database."""
    if not re.fullmatch(r"(/\d*)?", path, re.ASCII):
        raise ValueError(f"after the host only the number of a database is allowed; {STORE_HINT}")
    if is_cluster and path not in ("", "/", "/0"):
        raise ValueError("a cluster only has database 0; leave out the number")


def _master_and_database(path: str) -> tuple[str, str]:
    """Return the name of a master and `/DB`, which may be empty. Raises ValueError."""
    found = re.fullmatch(r"/([^/]+)(/\d*)?", path, re.ASCII)
    if found is None or found[1].isdigit():
        what = "names no master" if path.strip("/").isdigit() or not path.strip("/") else "has another path"
        raise ValueError(
            f"it {what}; after the Sentinels, give the name of the master and optionally a database: "
            "redis+sentinel://HOST:26379,HOST:26379/mymaster/0"
        )
    return unquote(found[1]), found[2] or ""

"""Define and validate the settings of the blocks `serve` and `admin`. Times are in seconds."""

import ipaddress
import re
from functools import cached_property
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from callfuse.policy.fields import Pause, Seconds, Strict, Whole, lower, lower_or_none

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
PATH_HINT: Final = "use / and names without ? # % or white space, as in /anthropic or /team/anthropic"
ADMIN_PATH_HINT: Final = "use / and names of letters, digits, - . _ and ~, as in /_callfuse or /internal/callfuse"
BACKEND_HINT: Final = "use a name without : or white space, as in anthropic"
FAILED_FOR_S: Final = 30.0
"""How long an upstream or store counts as down after a failure. A process that is not ready gets no requests, so it
must become ready again by itself. This is three times the interval of Kubernetes' probes."""
ANY_HOST: Final = "*"
UPSTREAM_HINT = "use http:// or https:// with a host, as in https://api.openai.com"


def _upstream(value: str) -> str:
    """Check the base URL of a vendor. It has no query, because the path of each request is appended."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        # urlsplit's message may quote the URL with credentials, so only its message about the port is used.
        what = "its port is not a number from 1 to 65535" if str(error).startswith("Port") else "it is not a URL"
        raise ValueError(f"{what}; {UPSTREAM_HINT}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(UPSTREAM_HINT)
    if any(not char.isprintable() or char.isspace() for char in value):
        raise ValueError(f"it contains white space or control characters; {UPSTREAM_HINT}")
    if "?" in value or "#" in value:
        raise ValueError(
            f"leave out the query (?) and the fragment (#), because each request has its own query; {UPSTREAM_HINT}"
        )
    return value


def _path(value: str) -> str:
    """Check a path prefix, and return it without a slash at its end."""
    path = value.rstrip("/")
    segments = path.split("/")
    if not path or segments[0] or "" in segments[1:] or {".", ".."} & set(segments) or re.search(r"[?#%\\\s]", path):
        raise ValueError(PATH_HINT)
    return path


def _admin_path(value: str) -> str:
    """Check a path as `_path` does. It may have only characters that are allowed in a cookie's path."""
    path = value.rstrip("/")
    if not re.fullmatch(r"(/[\w.~-]+)+", path, re.ASCII) or {".", ".."} & set(path.split("/")):
        raise ValueError(ADMIN_PATH_HINT)
    return path


def _is_every_address(host: str) -> bool:
    """Whether listening on `host` means listening on every address."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_below(path: str, above: str) -> bool:
    """Whether a path equals another, or lies below it, by whole segments."""
    return path.startswith(above) and path[len(above) : len(above) + 1] in ("", "/")


def _backend(value: str) -> str:
    if not re.fullmatch(r"[^\s:]+", value):
        raise ValueError(BACKEND_HINT)
    return value


def to_routes(value: Any) -> Any:
    """Convert routes that are written as texts, for example in a variable: `/anthropic=https://api.anthropic.com`."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return [_route(one) if isinstance(one, str) else one for one in value]


def _route(text: str) -> dict[str, str]:
    path, mark, upstream = text.partition("=")
    if not mark:
        raise ValueError("use PATH=URL, as in /anthropic=https://api.anthropic.com, or a list of mappings")
    return {"path": path, "upstream": upstream}


def _host_names(values: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(value.strip().lower().removeprefix("[").removesuffix("]") for value in values)
    for name in names:
        if name != ANY_HOST and not re.fullmatch(r"[\w-]+(\.[\w-]+)*|[0-9a-f.]*:[0-9a-f:.]+", name):
            raise ValueError(
                f"{name!r} is not the name of a host; use names without scheme and port, as in callfuse.internal, or *"
            )
    return names


class Route(Strict):
    """One more vendor, below a path of its own."""

    path: Annotated[str, AfterValidator(_path)]
    """Requests below this path go to this upstream, without the path. If several routes match, the longest wins."""
    upstream: Annotated[str, AfterValidator(_upstream)]
    """The vendor's base URL, as in `serve.upstream`."""
    backend: Annotated[str, AfterValidator(_backend)] | None = None
    """The name in `backend:model`; by default the vendor of the request's format."""

    def holds(self, path: str) -> bool:
        """Whether a path lies below this route's, by whole segments."""
        return is_below(path, self.path)


def _check_distinct(values: tuple[Route, ...]) -> tuple[Route, ...]:
    paths = [one.path for one in values]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise ValueError(f"the path {twice[0]} is given twice; keep one")
    return values


class ServeSettings(Strict):
    """The `serve` block: where `callfuse serve` listens, what it stands in front of, and how long it waits."""

    upstream: Annotated[str, AfterValidator(_upstream)] | None = None
    """The vendor's base URL, without a query. It may contain `user:password@`, which is never printed."""
    routes: Annotated[tuple[Route, ...], BeforeValidator(to_routes), AfterValidator(_check_distinct)] = ()
    """More vendors by path: a list of mappings with `path`, `upstream` and optionally `backend`, or of texts PATH=URL.
    Without `serve.upstream`, every other path gets 404."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for all addresses."""
    hosts: Annotated[tuple[str, ...], AfterValidator(_host_names)] = ()
    """Further names and addresses by which clients reach this proxy; `localhost`, loopback addresses and `host` are
    always allowed, and `*` allows any. A request with another `Host` gets 421, which protects against DNS rebinding. If
    `hosts` is empty and the proxy listens on all addresses, any `Host` is allowed."""
    port: Annotated[Whole, Field(ge=0, le=65535)] = 8100
    """The port to listen on; 0 chooses a free port and prints it."""
    workers: Annotated[Whole, Field(ge=1)] = 1
    """The number of worker processes. Each keeps its own sessions in memory, unless they share a `store`."""
    tls_certificate: Annotated[str, Field(min_length=1)] | None = None
    """A file in PEM format with the certificate for HTTPS and those that lead to its root. It is read again when it has
    changed, for new connections. Without it, callfuse serves plain HTTP."""
    tls_key: Annotated[str, Field(min_length=1)] | None = None
    """The file with the key of the certificate, without a passphrase. By default it is in `tls_certificate`."""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = "info"
    """The lowest level that callfuse logs. At debug, the server also logs a line for each request."""
    log_format: Annotated[Literal["text", "json"], BeforeValidator(lower)] = "text"
    """Log lines as text, or as JSON objects with the names in `docs/observing.md`."""
    access_log: bool = True
    """Whether to log each exchange at info: session, model, whether it was guarded, calls, action, milliseconds."""
    read_timeout_s: Seconds = 60
    """The longest wait for the head of a request, and for more of its body (1,000 bytes a second). Then it gets 408."""
    connect_timeout_s: Seconds = 10
    """The longest wait for a connection to the upstream."""
    first_byte_timeout_s: Seconds = 600
    """The longest wait for the upstream's answer to begin. The default is long because models think first."""
    idle_timeout_s: Seconds = 300
    """The longest pause within an upstream's answer."""
    drain_s: Pause = 0
    """How long requests are still served after SIGTERM, while `ready` answers 503: longer than a load balancer needs to
    see that. 0 stops listening at once."""
    shutdown_timeout_s: Seconds = 30
    """How long open streams may continue after callfuse has stopped listening."""
    max_connections: Annotated[Whole, Field(ge=0)] = 1000
    """The most simultaneous connections to an upstream, in each worker; 0 is unlimited."""

    def route_of(self, path: str) -> Route | None:
        """Return the route of a path, the longest if several match; None if `upstream` gets it."""
        if not self.routes:
            return None
        return max((one for one in self.routes if one.holds(path)), key=lambda one: len(one.path), default=None)

    @field_validator("tls_key")
    @classmethod
    def _has_a_certificate(cls, key: str | None, others: ValidationInfo) -> str | None:
        if key is not None and others.data.get("tls_certificate", key) is None:
            raise ValueError("set serve.tls_certificate, too")
        return key

    @property
    def scheme(self) -> str:
        """The scheme of callfuse's own URLs."""
        return "http" if self.tls_certificate is None else "https"

    @cached_property
    def own_names(self) -> frozenset[str]:
        """The names of this proxy in `Host` headers, in lower case."""
        return frozenset((self.host.lower(), *self.hosts)) - {ANY_HOST}

    @cached_property
    def is_any_host(self) -> bool:
        """Whether requests for any `Host` are served."""
        return ANY_HOST in self.hosts or (not self.hosts and _is_every_address(self.host))


class AdminSettings(Strict):
    """The admin page of `callfuse serve`. `admin: off` turns it off. Its token is in `CALLFUSE_ADMIN_TOKEN`."""

    enabled: bool = True
    """If off, requests for its path go to the vendor like any other."""
    path: Annotated[str, AfterValidator(_admin_path)] = "/_callfuse"
    """The path of the admin page. Requests for it, and below it, never reach the vendor."""
    feedback_file: Annotated[str, Field(min_length=1)] | None = None
    """A file to which feedback on findings is appended, one line of JSON each; `callfuse tune --feedback` reads it."""
    content: Annotated[Literal["none", "names", "short", "full"], BeforeValidator(lower_or_none)] = "short"
    """What the page and the feed show of calls: no tool names (`none`), tool names (`names`), also 200 characters of
    arguments and results (`short`), or 4,000 (`full`). Known forms of secrets are replaced by asterisks."""
    max_readers: Annotated[Whole, Field(ge=1)] = 100
    """The most simultaneous readers of the feed `events`, in each worker; a further one gets 503."""
    keep_exchanges: bool = False
    """Whether to keep in memory what the vendor sent and what the client got in each exchange with a finding. The page
    shows both. No request is kept."""
    keep_exchanges_s: Seconds = 3600
    """How long such an exchange is kept."""
    max_exchange_bytes: Annotated[Whole, Field(ge=16_384)] = 262_144
    """The most bytes that are kept of one exchange; between its first and its last bytes, the others are left out."""
    max_exchanges_bytes: Annotated[Whole, Field(ge=65_536)] = 33_554_432
    """The most bytes of all such exchanges, in each worker; the oldest ones are dropped."""

    def holds(self, path: str) -> bool:
        """Whether a path belongs to the admin page."""
        return is_below(path, self.path)

"""Where a request goes.

In: an upstream's base URL, once, and then the scope of each request. Out: the URL to ask. The path and the query of
the client stand in it byte for byte, behind the base URL's own path. Its host is the upstream's, whatever the path is.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from yarl import URL

from callfuse.proxy.asgi import Scope

_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server behind the proxy."""

    origin: str
    """Scheme, host and port: all of the upstream that is ever printed."""
    prefix: str
    """The base URL's path, without the slash at its end."""
    authorization: str | None = None
    """The base URL's `user:password@` as a header's value, for requests that bring none."""

    @classmethod
    def parse(cls, base_url: str) -> "Upstream":
        """Read a base URL. `ServeSettings` has checked its form."""
        url = URL(base_url)
        credentials = None
        if url.user is not None or url.password is not None:
            credentials = "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
        return cls(str(url.origin()), url.raw_path.rstrip("/"), credentials)

    @property
    def secure(self) -> bool:
        """Whether it is spoken to over TLS."""
        return self.origin.startswith("https:")

    def url(self, scope: Scope, route: str = "") -> URL:
        """The URL for a request, whose path begins with that of its route: `encoded`, so that nothing is quoted,
        unquoted or normalised on the way."""
        path = path_of(scope).removeprefix(route)
        target = self.prefix + (path if path.startswith("/") else "/" + path)
        if query := scope.get("query_string", b""):
            target += "?" + _text(query)
        # A `#` that a server lets through belongs to the target; in a URL it would begin a fragment and be left out.
        return URL(self.origin + target.replace("#", "%23"), encoded=True)


def path_of(scope: Scope) -> str:
    """The path as the client wrote it, below the place where the app is mounted. It always begins with a slash."""
    raw: Any = scope.get("raw_path")
    path = _text(raw.partition(b"?")[0]) if raw else quote(scope["path"], safe="/:@!$&'()*+,;=~")
    mount = scope.get("root_path", "").rstrip("/")
    if mount and path.startswith(mount) and path[len(mount) : len(mount) + 1] in ("", "/"):
        path = path[len(mount) :]
    return path if path.startswith("/") else "/" + path


def _text(raw: bytes) -> str:
    """Bytes of a request line as text that goes out as the same bytes; what is not UTF-8 is escaped."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return quote(raw, safe=_PRINTABLE)

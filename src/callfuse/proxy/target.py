"""Build the upstream URL of a request from the base URL and the ASGI scope.

The client's path and query follow the path of the base URL, byte for byte. The host is always that of the upstream,
whatever the path contains.
"""

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from yarl import URL

from callfuse.proxy.asgi import Scope

_VERSION = re.compile(r"/v[0-9]{1,3}(?:(?:alpha|beta)[0-9]{0,3})?$")
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server behind the proxy."""

    origin: str
    """Scheme, host and port: the only part that is logged."""
    prefix: str
    """The base URL's path, without a slash at its end."""
    authorization: str | None = None
    """The base URL's `user:password@` as a header value, for requests without credentials."""
    version: str = ""
    """The last part of the base URL's path if it names a version, as in `/v1`. It is left out if a request's path
    begins with the same part, because the base URLs of clients have it, too."""

    @classmethod
    def parse(cls, base_url: str) -> "Upstream":
        """Parse a base URL, which `ServeSettings` has validated."""
        url = URL(base_url)
        credentials = None
        if url.user is not None or url.password is not None:
            credentials = "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
        path = url.raw_path.rstrip("/")
        version = _VERSION.search(path)
        return cls(str(url.origin()), path, credentials, version[0] if version else "")

    @property
    def secure(self) -> bool:
        """Whether connections use TLS."""
        return self.origin.startswith("https:")

    def url(self, scope: Scope, route: str = "") -> URL:
        """Build the URL for a request; `route` is the path prefix to cut off.

        It is `encoded`, so that yarl does not quote, unquote or normalise it.
        """
        path = path_of(scope).removeprefix(route)
        if self.version and f"{path}/".startswith(f"{self.version}/"):
            path = path.removeprefix(self.version)
        target = self.prefix + (path if path.startswith("/") else "/" + path)
        if query := scope.get("query_string", b""):
            target += "?" + _text(query)
        # A raw `#` in the request target would begin a fragment of the URL, which is not sent.
        return URL(self.origin + target.replace("#", "%23"), encoded=True)


def path_of(scope: Scope) -> str:
    """Return the path as the client wrote it, without the app's mount path. It always begins with a slash."""
    raw: Any = scope.get("raw_path")
    path = _text(raw.partition(b"?")[0]) if raw else quote(scope["path"], safe="/:@!$&'()*+,;=~")
    mount = scope.get("root_path", "").rstrip("/")
    if mount and path.startswith(mount) and path[len(mount) : len(mount) + 1] in ("", "/"):
        path = path[len(mount) :]
    return path if path.startswith("/") else "/" + path


def _text(raw: bytes) -> str:
    """Decode bytes of a request line. Bytes that are not UTF-8 are percent-encoded."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return quote(raw, safe=_PRINTABLE)

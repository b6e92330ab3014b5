"""Detect requests that a foreign web page makes a browser send. They may not use credentials that the proxy adds.

A page can make its visitor's browser post a form to any address, even `http://127.0.0.1:8100`, or to a name of its own
that resolves there (DNS rebinding). If clients send their own credentials, such a request has none.
"""

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit


def is_cross_site(headers: Iterable[tuple[bytes, bytes]], names: Collection[str]) -> bool:
    """Whether a browser may have sent this request for a page of another site. `names`: the proxy's own names, in lower
    case.

    For every request, `Host` must be an IP address, `localhost` or one of the names: over plain HTTP, a page whose name
    resolves here can read answers without any header that only browsers send. Without an `Origin`, `Referer` is used.
    """
    found = {name.lower(): value.decode("latin-1").strip().lower() for name, value in headers}
    host = found.get(b"host", "")
    if not _is_own(host, names) or found.get(b"sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    page = found.get(b"origin", found.get(b"referer"))
    return page is not None and page.partition("://")[2].partition("/")[0] != host


def _is_own(host: str, names: Collection[str]) -> bool:
    """Whether a `Host` header names an IP address, this machine, or one of these names."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False

"""Tells requests that a foreign web page has a browser send, which may not use credentials that the proxy adds.

A page can have its visitor's browser post a form to any address, `http://127.0.0.1:8100` too, or by a name of its own
that leads there (DNS rebinding). Where clients bring their own credentials such a request has none.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

_OF_BROWSERS = frozenset({b"origin", b"referer", b"sec-fetch-site"})


def is_cross_site(headers: Iterable[tuple[bytes, bytes]], listens_on: str) -> bool:
    """Whether a browser sends this request for a page of another site. `listens_on`: the address of the proxy.

    Never for requests without the headers of browsers. On a loopback address `Host` must be an address or `localhost`.
    """
    found = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    if _OF_BROWSERS.isdisjoint(found):
        return False
    host = found.get(b"host", "").lower()
    if found.get(b"sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = found.get(b"origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        return True
    return _is_loopback(listens_on) and not _is_address(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    """Whether a `Host` header names no foreign name: an IP address, or this machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False

"""Detects requests that a foreign web page has a browser send. They may not use credentials that the proxy adds.

A page can have its visitor's browser post a form to any address, `http://127.0.0.1:8100` too, or by a name of its own
that leads there (DNS rebinding). Where clients bring their own credentials such a request has none.
"""

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit


def is_cross_site(headers: Iterable[tuple[bytes, bytes]], names: Collection[str]) -> bool:
    """Whether a browser may have sent this request for a page of another site. `names`: the proxy's own, lower case.

    `Host` must be an IP address, `localhost` or one of the names, whoever asks: over plain HTTP a page whose name leads
    here can read without any header that only browsers send. `Referer` counts where there is no `Origin`.
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

"""Decide whether the `Host` of a request is a name of this proxy.

A web page's own name may resolve to its visitor's address (DNS rebinding). Its requests then have that name as `Host`,
and the page may read the answers. The upstream cannot check this, because forwarded requests have its own `Host`.
"""

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]*)\]|(?P<name>[^\s:@/\[\]]+))(?::[0-9]*)?")


def is_own_host(host: str, names: Collection[str], local: str | None) -> bool:
    """Whether a `Host` header names `localhost`, a loopback address, one of `names` (in lower case), or `local`, the
    address at which the connection arrived."""
    found = _HOST.fullmatch(host.strip().lower())
    if found is None:
        return False
    name = found["address"] or found["name"] or ""
    return name in ("localhost", local) or name in names or is_loopback(name)


def is_loopback(name: str) -> bool:
    """Whether a name is a loopback address, such as 127.0.0.1."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(mapped.is_loopback if mapped else address.is_loopback)

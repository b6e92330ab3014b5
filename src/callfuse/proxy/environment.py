"""Read HTTP proxies and certificate authorities for an upstream from the environment, once, at the start.

`.netrc` is never read, because it would add credentials to requests; so aiohttp's own `trust_env` stays off.
"""

import os
import ssl
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies_environment, proxy_bypass

from yarl import URL

from callfuse.errors import ConfigError
from callfuse.proxy.target import Upstream


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """An HTTP proxy before the upstream: its URL without credentials, and the credentials as a header value."""

    url: URL
    authorization: str | None


def proxy_for(upstream: Upstream) -> HttpProxy | None:
    """Find the proxy for an upstream by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, in upper or lower case.

    None if there is none. Raises ConfigError for an invalid URL.
    """
    origin = URL(upstream.origin)
    proxies = getproxies_environment()
    value = proxies.get(origin.scheme) or proxies.get("all")
    if not value or proxy_bypass(f"{origin.raw_host}:{origin.port}"):
        return None
    return _proxy(value, f"{origin.scheme.upper()}_PROXY or ALL_PROXY")


def _proxy(value: str, variable: str) -> HttpProxy:
    right = "use http://host:port"
    try:
        url = URL(value if "://" in value else f"http://{value}")
    except ValueError:
        raise ConfigError(f"{variable} is not a URL; {right}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{variable} has the unsupported scheme {url.scheme!r}; {right}")
    authorization = None
    if url.user is not None or url.password is not None:
        authorization = "Basic " + b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()
    return HttpProxy(url.origin(), authorization)


def tls_context() -> ssl.SSLContext:
    """Make the TLS context for an https upstream.

    Authorities come from SSL_CERT_FILE and SSL_CERT_DIR, else from REQUESTS_CA_BUNDLE, else from the system. Raises
    ConfigError for a missing or broken file, which OpenSSL itself would ignore.
    """
    chosen = [name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
    chosen = chosen or [name for name in ("REQUESTS_CA_BUNDLE",) if os.environ.get(name)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in chosen:
        # OpenSSL reads SSL_CERT_DIR as a list of folders.
        places = os.environ[name].split(os.pathsep) if name == "SSL_CERT_DIR" else [os.environ[name]]
        for place in filter(None, places):
            _trust(context, Path(place), name)
    if not chosen:
        context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _trust(context: ssl.SSLContext, place: Path, variable: str) -> None:
    try:
        if place.is_dir():
            context.load_verify_locations(capath=str(place))
        else:
            context.load_verify_locations(cafile=str(place))
    except OSError as error:  # also SSLError, for a file without certificates
        raise ConfigError(f"{variable} is {str(place)!r}, which cannot be read as certificates: {error}") from None

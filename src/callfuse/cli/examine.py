"""Check everything that `callfuse serve` would use: settings, packages, port, upstreams, store, and the variables of
agents."""

import asyncio
import errno
import os
import platform
import re
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from callfuse import __version__
from callfuse.boundary import Boundary
from callfuse.cli.agents import VENDORS, Vendor
from callfuse.cli.certificate import load_context
from callfuse.cli.diagnosis import Check, failed, note, ok, warning
from callfuse.cli.greeting import base_url
from callfuse.cli.holder import holder_of
from callfuse.cli.serve import open_listener
from callfuse.config import Resolved, without_credentials
from callfuse.config.environment import CONFIG_FILE
from callfuse.config.serve import UPSTREAM_HINT, ServeSettings
from callfuse.errors import ConfigError, install_hint
from callfuse.observe.printable import plain
from callfuse.policy.presets import mode_name
from callfuse.policy.rungs import Rung
from callfuse.proxy.client import UpstreamClient
from callfuse.proxy.failures import FAILURES, explain, forget_frames
from callfuse.proxy.target import Upstream
from callfuse.stores import probe
from callfuse.stores.address import MEMORY
from callfuse.wire.jsontext import loads

PATIENCE_S: Final = 15.0
"""How long an upstream may take for a trivial answer."""
MOST_READ: Final = 4096
"""The most bytes that are read from the process at the port."""
LONGEST_VERSION: Final = 50
"""The most characters of its version."""
SLOW: Final = 0.5
"""A slow store is reported if a round trip takes more than this share of `store_timeout_s`."""
_EXTRAS: Final = ("serve", "envoy", "redis", "otel")
_NEEDED: Final = re.compile(r"""^([\w.-]+).*\bextra == ['"](\w+)['"]""")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared, not listened on


class ModelsQuery(NamedTuple):
    """How to ask a vendor for its list of models. `variables`: the variables that may contain the key."""

    path: str
    variables: tuple[str, ...]
    header: str
    prefix: str = ""
    further: tuple[tuple[str, str], ...] = ()


KEYS: Final = {
    "openai": ModelsQuery("/v1/models", ("OPENAI_API_KEY",), "authorization", "Bearer "),
    "anthropic": ModelsQuery(
        "/v1/models", ("ANTHROPIC_API_KEY",), "x-api-key", further=(("anthropic-version", "2023-06-01"),)
    ),
    "gemini": ModelsQuery("/v1beta/models", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "x-goog-api-key"),
    "ollama": ModelsQuery("/api/tags", (), ""),
    "cohere": ModelsQuery("/v1/models", ("CO_API_KEY", "COHERE_API_KEY"), "authorization", "Bearer "),
}
"""The queries by the name of the vendor. The list costs no tokens."""


async def examine(resolved: Resolved, *, request: bool) -> list[Check]:
    """Examine everything outside the settings. `request`: also ask each vendor with the user's key."""
    serve = resolved.config.serve
    checks = [*_examine_certificate(serve), *await _examine_port(serve, resolved.config.admin.path)]
    checks += _examine_variables(serve)
    places = [("", serve.upstream)] if serve.upstream else []
    for path, upstream in [*places, *((route.path, route.upstream) for route in serve.routes)]:
        checks += await _examine_upstream(path, upstream, serve, request=request)
    if not (serve.upstream or serve.routes):
        found = "not set: `callfuse serve` cannot start without it (an app that mounts callfuse does not need it)"
        checks.append(failed("upstream", found, f"set --upstream URL, or CALLFUSE_SERVE_UPSTREAM; {UPSTREAM_HINT}"))
    return [*checks, *await _examine_store(resolved)]


def examine_settings(resolved: Resolved) -> Iterator[Check]:
    """Check what the settings mean for the whole guard."""
    area, settings = "settings", resolved.config.tool_call_loop
    file = os.environ.get(CONFIG_FILE, "").strip()
    mode = mode_name(settings.ladder) or ", ".join(settings.ladder)
    count = len(resolved.sources)
    found = f"{count} {'key is' if count == 1 else 'keys are'} set{f', {CONFIG_FILE} names {file}' if file else ''}"
    yield ok(area, f"{found}; mode={mode}, max_repeats={settings.max_repeats}, window {settings.ttl_seconds:g} s")
    if not settings.enabled:
        source = resolved.sources.get(("tool_call_loop", "enabled"), "")
        yield failed(area, f"the guard is off: tool_call_loop.enabled is false ({source})", "set it to true")
    elif all(one == Rung.OBSERVE for one in settings.ladder):
        yield note(
            area,
            "loops are only logged: the mode is observe",
            "remove the mode to get guidance first, then a block (chance_then_block)",
        )
    elif all(one in (Rung.OBSERVE, Rung.WARN) for one in settings.ladder):
        yield note(
            area,
            "no call is ever withheld: the mode only warns",
            "remove the mode to get guidance first, then a block (chance_then_block)",
        )
    if settings.holdout:
        found = f"a share of {settings.holdout:g} of the sessions is only observed: tool_call_loop.holdout"
        yield note(area, found, "set it to 0 unless you measure the effect")


def examine_versions() -> list[Check]:
    """Report the versions of installed packages, and the packages of `callfuse[serve]` that are missing."""
    area = "versions"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    checks = [ok(area, f"callfuse {__version__}, {python}, {platform.system()} {platform.machine()}")]
    there: list[str] = []
    for extra in _EXTRAS:
        missing = []
        for name in _packages(extra):
            with Boundary() as boundary:
                there.append(f"{name} {metadata.version(name)}")
            if boundary.error is not None:
                missing.append(name)
        if missing and extra == "serve":
            checks.append(failed(area, f"missing: {', '.join(missing)}", install_hint(extra)))
    return [*checks, ok(area, ", ".join(there))] if there else checks


def _packages(extra: str) -> list[str]:
    """Return the packages of an extra that every platform and every Python needs, from the installed metadata; none if
    that is unknown."""
    requires: list[str] = []
    with Boundary():
        requires = metadata.requires("callfuse") or []
    found = [match for one in requires if (match := _NEEDED.match(one)) and " and " not in one]
    return [match[1] for match in found if match[2] == extra]


def _examine_certificate(serve: ServeSettings) -> Iterator[Check]:
    """Check that the certificate can be used, if there is one."""
    area, file = "certificate", serve.tls_certificate
    if file is None:
        return
    try:
        load_context(file, serve.tls_key)
    except ConfigError as error:
        yield failed(area, str(error), "use files in PEM format, with the certificate and its own key")
    else:
        yield ok(area, f"{file} has a certificate, and its key fits")


async def _examine_port(serve: ServeSettings, admin_path: str) -> list[Check]:
    """Check that callfuse can listen on the address; otherwise name the process that listens there."""
    area = "port"
    try:
        with open_listener(serve) as listener:
            port = listener.getsockname()[1]
        return [ok(area, f"{base_url(serve, port)} is free")]
    except OSError as error:
        why, is_taken = (error.strerror or str(error)).partition(" (while")[0], error.errno == errno.EADDRINUSE
    url = f"{base_url(serve, serve.port)}{admin_path}/health".replace("//0.0.0.0:", "//127.0.0.1:")
    with Boundary():  # any process may listen there, and answer anything
        async with (
            asyncio.timeout(PATIENCE_S),
            aiohttp.ClientSession() as http,
            http.get(url, allow_redirects=False, ssl=False) as answer,
        ):
            said = loads(await answer.content.read(MOST_READ))
            version = plain(str(said["version"]), LONGEST_VERSION)
            return [ok(area, f"{base_url(serve, serve.port)}: callfuse {version} is running there")]
    advice = "stop the other process, or choose another port or address: --port N (0 for any free one), --host ADDRESS"
    found = f"cannot listen on {base_url(serve, serve.port)}: {why}"
    if holder := holder_of(serve.port):
        found += f"; {holder} listens there"
    elif is_taken:
        advice += f"; `lsof -nP -iTCP:{serve.port} -sTCP:LISTEN` names the process"
    return [failed(area, found, advice)]


def _examine_variables(serve: ServeSettings) -> Iterator[Check]:
    """Check that the variables of this environment route agents to callfuse."""
    area = "agents"
    own = base_url(serve, serve.port)
    named = {name: value for one in VENDORS for name in one.variables if (value := os.environ.get(name, "").strip())}
    here = [name for name, value in named.items() if _is_own(value, serve)]
    if here:
        yield ok(area, f"these variables point to {own}: {', '.join(here)}")
    for name in sorted({*named} - {*here}):
        found = f"{name}={without_credentials(named[name])} in this environment bypasses callfuse"
        yield warning(area, found, f"to guard agents that read it, set it to {own} followed by its old path")
    if not named:
        yield ok(area, f"no variable in this environment names a vendor; an agent needs the base URL {own}")


def _is_own(url: str, serve: ServeSettings) -> bool:
    """Whether a base URL is the address on which `callfuse serve` listens."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    host = parts.hostname or ""
    return port == serve.port and (host in _LOCAL or host == serve.host.lower() or host in serve.own_names)


async def _examine_upstream(path: str, url: str, serve: ServeSettings, *, request: bool) -> list[Check]:
    """Check that an upstream answers, with an empty request on the usual way."""
    area = f"upstream{f' {path}' if path else ''}"
    upstream = Upstream.parse(url)
    if serve.port and _is_own(upstream.origin, serve):
        found = f"{upstream.origin} is the address of callfuse itself: requests would loop forever"
        return [failed(area, found, "set the vendor's address, or listen on another --port")]
    try:
        client = UpstreamClient(serve, upstream)
    except ConfigError as error:
        return [failed(area, str(error), "correct or unset the variable")]
    way = f"through the HTTP proxy {client.proxy}" if client.proxy else "without an HTTP proxy"
    began = time.perf_counter()
    try:
        async with asyncio.timeout(serve.connect_timeout_s + PATIENCE_S):
            answer = await client.ask("HEAD", URL(upstream.origin + (upstream.prefix or "/"), encoded=True), [], None)
            answer.close()
            milliseconds = round(1000 * (time.perf_counter() - began))
        found = f"{upstream.origin} answers in {milliseconds} ms (HEAD: {answer.status}), {way}"
        checks = [ok(area, found) if answer.status < 500 else warning(area, found, "look at the upstream's own log")]
        return [*checks, *([await _ask_models(area, client, upstream)] if request else [])]
    except FAILURES as error:
        reason = explain(forget_frames(error), upstream.origin, client.proxy).reason
        return [failed(area, f"{reason} ({way})", _advice(error, has_proxy=client.proxy is not None))]
    finally:
        await client.close()


def _advice(error: BaseException, *, has_proxy: bool) -> str:
    """Return what to do about an upstream that cannot be reached."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "check the spelling; in a network without external DNS, set HTTPS_PROXY=http://HOST:PORT"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return (
                "if a gateway signs certificates with its own authority, set SSL_CERT_FILE to that "
                "authority's file; https:// to a plain HTTP server fails as well"
            )
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return "correct HTTPS_PROXY (HTTP_PROXY, ALL_PROXY), or name the upstream's host in NO_PROXY"
        case TimeoutError() if not has_proxy:
            return "is there a firewall in between, or a proxy that HTTPS_PROXY should name?"
        case _:
            return "is it running, and is this its address and scheme?"


async def _ask_models(area: str, client: UpstreamClient, upstream: Upstream) -> Check:
    """Ask for the list of models, with the key from the environment. Raises one of FAILURES."""
    vendor = _vendor_of(upstream.origin)
    key = KEYS[vendor.name]
    name, value = next(((name, value) for name in key.variables if (value := os.environ.get(name))), ("", ""))
    if key.variables and not value:
        return failed(area, f"no key for a request: {' and '.join(key.variables)} unset", "set it, or omit --request")
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        found = f"the key in {name} has a space, a line break or another character that no header may have"
        return failed(area, found, "set it again, because agents cannot send it either: does it end in a line break?")
    headers = [*key.further, *([(key.header, key.prefix + value)] if value else [])]
    if upstream.authorization and key.header != "authorization":
        headers.append(("authorization", upstream.authorization))
    async with asyncio.timeout(PATIENCE_S):
        answer = await client.ask("GET", upstream.url({"path": key.path}), headers, None)
        answer.close()
    found = f"GET {key.path} {f'with the key of {name}' if name else 'without a key'}: {answer.status}"
    match answer.status:
        case 200:
            return ok(area, found)
        case 401 | 403:
            return failed(area, f"{found}, the key is refused", f"is {name or 'a key'} valid, and for this vendor?")
        case 404:
            return warning(area, found, "is the path of the upstream right? Some vendors have no list of models")
        case _:
            return warning(area, found, "the vendor is reached, but does not answer as usual; look at its status page")


def _vendor_of(origin: str) -> Vendor:
    """Return the vendor in a host name; OpenAI if there is none, because most other vendors use its format."""
    return next((one for one in VENDORS if any(word in origin for word in one.words)), VENDORS[0])


async def _examine_store(resolved: Resolved) -> list[Check]:
    """Check that the store can be written, as exchanges do."""
    area, config = "store", resolved.config
    if config.store == MEMORY:
        if config.serve.workers == 1:
            return [ok(area, "the memory of this process")]
        found = f"the memory of each of {config.serve.workers} workers, which do not share it"
        return [warning(area, found, "use --store redis://HOST:PORT to share it")]
    try:
        seconds = await probe(config.store, max(PATIENCE_S, config.store_timeout_s))
    except ConfigError as error:
        return [failed(area, str(error), "correct `store`, or install what it needs")]
    except OSError as error:
        advice = (
            "is it running? Are the address, the password and the rights (EVALSHA, SET) correct? Until then "
            "callfuse uses memory"
        )
        return [failed(area, str(error), advice)]
    found = f"{without_credentials(config.store)} takes a write in {1000 * seconds:.1f} ms"
    if seconds > SLOW * config.store_timeout_s:
        advice = (
            f"an exchange waits {config.store_timeout_s:g} s for it: raise store_timeout_s, or move the store closer"
        )
        return [warning(area, found, advice)]
    return [ok(area, found)]

"""Route agents through a guard: the variables with the base URLs of vendors, and the environment of a guarded command.

Each vendor has its own route at the guard (`/anthropic`), which determines the upstream of a request. If the user has
set a variable, its value becomes the upstream of its route, and its path stays in the new value.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from callfuse.cli.codex import is_codex, led_to
from callfuse.errors import ConfigError

OLLAMA_PORT: Final = 11434
_EVERY_ADDRESS: Final = re.compile(r"\A(?:0\.0\.0\.0|\[::\])(?=[:/]|\Z)")
_HTTP: Final = ("http", "https")
_PROXIES: Final = ("HTTP_PROXY", "ALL_PROXY")
_OURSELVES: Final = "127.0.0.1,localhost"
_ANTHROPIC: Final = "/anthropic"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor and its clients. `upstream`: the clients' default upstream. `path`: the end of their base URLs.
    `variables`: the variables with their base URL. `words`: parts of the host names of their upstreams."""

    name: str
    upstream: str
    path: str
    variables: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def route(self) -> str:
        """The path of its route at the guard."""
        return f"/{self.name}"


VENDORS: Final = (
    Vendor("openai", "https://api.openai.com", "/v1", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), ("openai",)),
    Vendor("anthropic", "https://api.anthropic.com", "", ("ANTHROPIC_BASE_URL",), ("anthropic",)),
    Vendor(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "",
        ("GOOGLE_GEMINI_BASE_URL",),
        ("googleapis", "gemini"),
    ),
    Vendor("ollama", f"http://127.0.0.1:{OLLAMA_PORT}", "", ("OLLAMA_HOST", "OLLAMA_API_BASE"), ("ollama", ":11434")),
    Vendor("cohere", "https://api.cohere.com", "", ("CO_API_URL",), ("cohere",)),
)
"""Vendors whose clients read a base URL from the environment."""

IF_SET: Final = (
    "ANTHROPIC_API_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "AZURE_OPENAI_ENDPOINT",
    "COPILOT_PROVIDER_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "GROQ_BASE_URL",
)
"""Variables without a common default upstream: they are changed only if the user has set them. One is GitHub Copilot
CLI's: without it, the CLI uses GitHub's own models, whose URL no variable changes."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a command is routed through a guard. `routes`: upstreams by path of the guard. `paths`: by variable, the path
    to add to the guard's address."""

    routes: Mapping[str, str]
    paths: Mapping[str, str]

    def variables(self, guard: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to set for a guard at this address, `http://127.0.0.1:PORT`. `env`: the existing
        ones."""
        found = {name: guard + path for name, path in self.paths.items()}
        proxied = any(env.get(name) or env.get(name.lower()) for name in _PROXIES)
        if proxied:  # an HTTP proxy would look for the guard on its own machine
            before = env.get("no_proxy") or env.get("NO_PROXY")
            found |= dict.fromkeys(("NO_PROXY", "no_proxy"), f"{before},{_OURSELVES}" if before else _OURSELVES)
        return found

    def command(self, command: Sequence[str], guard: str, env: Mapping[str, str]) -> AbstractContextManager[list[str]]:
        """Return the command with options that it needs in addition to the variables. Their files exist while the
        context is open. Raises OSError."""
        if is_codex(command):
            return led_to(guard + self.paths["OPENAI_BASE_URL"], command, env)
        return nullcontext([*command])


def wire(env: Mapping[str, str], upstream: str | None = None) -> Wiring:
    """Determine routes and variables for a command with this environment.

    `upstream`: a base URL that overrides the variables of the vendor in its host name, or of all vendors if there is
    none. Raises ConfigError for a variable that is not a base URL.
    """
    routes: dict[str, str] = {}
    paths: dict[str, str] = {}
    for vendor in VENDORS:
        if upstream is not None and _is_for(upstream, vendor):
            routes[vendor.route] = upstream
            paths |= dict.fromkeys(vendor.variables, vendor.route + vendor.path)
            continue
        own = {name: _split(name, value) for name in vendor.variables if (value := env.get(name, "").strip())}
        for name, (origin, path) in own.items():
            route = vendor.route if routes.get(vendor.route, origin) == origin else f"/{name.lower()}"
            routes[route], paths[name] = origin, route + path
        if len(own) < len(vendor.variables):
            rest = next((paths[name] for name in own), vendor.route + vendor.path)
            routes.setdefault(vendor.route, vendor.upstream)
            paths |= dict.fromkeys((name for name in vendor.variables if name not in own), rest)
    for name in IF_SET:
        if value := env.get(name, "").strip():
            origin, path = _split(name, value)
            route = f"/{name.lower()}"
            routes[route], paths[name] = origin, route + path
    return Wiring(routes, paths)


def with_version(path: str) -> str:
    """Add the version to the path of a request if it is missing, so that the dialect recognises the path. Two kinds of
    clients read ANTHROPIC_BASE_URL: some add /v1 to it, others expect it in the variable."""
    return f"{_ANTHROPIC}/v1/messages" if path == f"{_ANTHROPIC}/messages" else path


def _is_for(upstream: str, vendor: Vendor) -> bool:
    """Whether an upstream serves the clients of a vendor, judged by its host."""
    host = urlsplit(upstream).netloc.rpartition("@")[2].lower()
    named = [one for one in VENDORS if any(word in host for word in one.words)]
    return vendor in named if named else True


def _split(name: str, value: str) -> tuple[str, str]:
    """Split a base URL into origin (with credentials) and path. Raises ConfigError."""
    url = value
    if name.startswith("OLLAMA") and "://" not in url:
        host, slash, path = _EVERY_ADDRESS.sub("127.0.0.1", url if url[0] != ":" else f"127.0.0.1{url}").partition("/")
        url = f"http://{host if re.search(r':[0-9]+$', host) else f'{host}:{OLLAMA_PORT}'}{slash}{path}"
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in _HTTP and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or parts.query or parts.fragment or any(char.isspace() for char in url):
        raise ConfigError(
            f"{name}: this environment variable contains no base URL; use one as in https://api.example.com"
        )
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
